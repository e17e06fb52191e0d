"""
The jobs that this worker holds, from their claim until their outcome is committed.
"""

import threading
from collections.abc import Callable, Iterable

from jobstore.model import Claim, Job, Lease

__all__ = ["Held", "HeldJobs"]


class Held:
    """
    One job in hand.

    It is *settled* once: by its handler's outcome, by a fan-out, by a stop. Whatever
    comes after is dropped. A settled job is still held, and its lease kept alive,
    until its outcome is committed.
    """

    __slots__ = (
        "_lock",
        "_settled",
        "has_outcome",
        "interrupt",
        "is_cancelled",
        "is_lost",
        "job",
        "lease",
    )

    def __init__(self, claim: Claim) -> None:
        self.job: Job = claim.job
        self.lease: Lease = claim.lease
        self.has_outcome = False
        """Its outcome is with the finisher, who lets go of it when it is committed."""
        self.is_lost = False
        self.is_cancelled = False
        self.interrupt: Callable[[], None] | None = None
        """Stops the handler, where that can be done."""
        self._lock = threading.Lock()
        self._settled = False

    def settle(self) -> bool:
        """
        Return True to the first caller, who may decide the outcome.
        """
        with self._lock:
            first, self._settled = not self._settled, True
            return first

    @property
    def is_settled(self) -> bool:
        return self._settled

    def lose(self, *, cancelled: bool) -> None:
        """
        The lease is gone: tell the handler, and take nothing from it any more.
        """
        self.is_cancelled = cancelled
        self.is_lost = True
        if self.settle() and self.interrupt is not None:
            self.interrupt()


class HeldJobs:
    """
    All of them. Safe between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[Lease, Held] = {}

    def add(self, jobs: Iterable[Held]) -> None:
        with self._lock:
            for one in jobs:
                self._jobs[one.lease] = one

    def drop(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._jobs.pop(lease, None)

    def get(self, lease: Lease) -> Held | None:
        return self._jobs.get(lease)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)
