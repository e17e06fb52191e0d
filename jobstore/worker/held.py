"""
The jobs that this worker holds: from their claim until their outcome is committed.

One table, shared by all threads of a worker. A job in it goes one way:

    CLAIMED   held, its handler has not begun
    RUNNING   its handler is at work
    ENDED     what becomes of it is decided, by its handler or by a stop

The first decision counts, whatever comes after it is dropped. A job leaves the table
when its outcome is committed, or when there is nothing to commit; until then its lease
is kept alive, also while the database is away.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from jobstore.errors import JobCancelled, LeaseLost
from jobstore.model import Claim, Job, Lease, Outcome

__all__ = ["Ending", "Held", "HeldJobs", "Stage", "Unwritten"]


class Stage(Enum):
    """
    How far a held job has come.
    """

    CLAIMED = 0
    RUNNING = 1
    ENDED = 2


class Unwritten(Enum):
    """
    What becomes of a job whose outcome is not for the worker to write.
    """

    NOTHING = 1
    """Its lease is known to have ended."""
    VERIFY = 2
    """Its handler says that it ended the lease; look, and fail the job if not."""


@dataclass(slots=True, eq=False)
class Held:
    """
    One job in hand.
    """

    job: Job
    lease: Lease
    claimed_at: float
    """By the monotonic clock, from before the claim was sent."""
    stage: Stage = Stage.CLAIMED
    loss: LeaseLost | None = None
    """Why the lease is gone, once that is known."""
    is_given_up: bool = False
    """The worker is stopping and has told the handler to break off."""
    own_ending: Unwritten | None = None
    """The handler ended the lease, or is about to: that it ends is no loss."""
    task: asyncio.Task[None] | None = None
    stopped: threading.Event | None = None
    """Set on loss and on giving up; made when a plain function waits for it."""

    def stop_waiting(self) -> None:
        if self.stopped is not None:
            self.stopped.set()

    @property
    def is_to_stop(self) -> bool:
        """
        Whether nothing that the handler still does will be of use.
        """
        return self.loss is not None or self.is_given_up

    def reason(self) -> LeaseLost:
        """
        Say why the handler is to stop.
        """
        return self.loss or LeaseLost(
            self.lease.job_id, self.lease.fence, "the worker is stopping"
        )


Ending: TypeAlias = tuple[Held, Outcome | Unwritten]


class HeldJobs:
    """
    All jobs in hand, and how many more there may be.

    Args:
        concurrency: Most handlers at once.
        backlog: Most jobs beyond that whose outcome is not committed yet.
    """

    def __init__(self, *, concurrency: int, backlog: int) -> None:
        self.concurrency = concurrency
        self._most = concurrency + backlog
        self._lock = threading.Lock()
        self._jobs: set[Held] = set()
        self._busy = 0
        self.is_stopping = False
        # Told outside the lock; wired up by the worker.
        self.on_room: Callable[[], None] = lambda: None
        self.on_ended: Callable[[list[Ending]], None] = lambda _: None
        self.on_idle: Callable[[], None] = lambda: None
        """Called during a stop: no handler is at work, or nothing is in hand at all."""

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def busy(self) -> int:
        """
        How many have not ended: their handler is at work or about to be.
        """
        return self._busy

    def room(self) -> int:
        """
        How many more to claim.
        """
        return min(self.concurrency - self._busy, self._most - len(self._jobs))

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._jobs)

    def take(self, claims: Iterable[Claim], claimed_at: float) -> list[Held]:
        """
        Hold what was claimed.
        """
        taken = [Held(claim.job, claim.lease, claimed_at) for claim in claims]
        with self._lock:
            self._jobs.update(taken)
            self._busy += len(taken)
        return taken

    def begin(self, jobs: Iterable[Held]) -> list[Held]:
        """
        Return those of *jobs* whose handler is to be called now.
        """
        with self._lock:
            fresh = [one for one in jobs if one.stage is Stage.CLAIMED]
            for one in fresh:
                one.stage = Stage.RUNNING
        return fresh

    def end(self, endings: Sequence[Ending]) -> None:
        """
        Take in what became of jobs. Each one's hand is free with this.

        What is to be written goes on to the finisher, in the given order.
        """
        with self._lock:
            fresh = [ending for ending in endings if ending[0].stage is not Stage.ENDED]
            for held, _ in fresh:
                held.stage = Stage.ENDED
            self._busy -= len(fresh)
            is_idle = self._busy == 0
            to_write = [
                ending
                for ending in fresh
                if ending[1] is not Unwritten.NOTHING and ending[0].loss is None
            ]
            if len(to_write) < len(fresh):
                self._jobs.difference_update(held for held, _ in fresh)
                self._jobs.update(held for held, _ in to_write)
        if to_write:
            self.on_ended(to_write)
        self.on_room()
        if is_idle and self.is_stopping:
            self.on_idle()

    def settle(self, jobs: Iterable[Held]) -> None:
        """
        Let go of jobs whose outcome is committed, or can't be any more.
        """
        with self._lock:
            self._jobs.difference_update(jobs)
            is_empty = not self._jobs
        self.on_room()
        if is_empty and self.is_stopping:
            self.on_idle()

    def lose(self, held: Held, *, is_cancelled: bool) -> bool:
        """
        Note that a lease is gone; return whether its handler is to be told.

        If the job has ended, or its handler is ending it, the write will find out.
        """
        lease = held.lease
        with self._lock:
            if held.own_ending or held.loss:
                return False
            held.loss = (
                JobCancelled(lease.job_id, lease.fence, "the job was cancelled")
                if is_cancelled
                else LeaseLost(
                    lease.job_id, lease.fence, "another holds it, or it ended"
                )
            )
            held.stop_waiting()
            return held.stage is not Stage.ENDED

    def give_up(self) -> list[Held]:
        """
        Tell all handlers at work to break off; return their jobs.
        """
        with self._lock:
            running = [one for one in self._jobs if one.stage is Stage.RUNNING]
            for one in running:
                one.is_given_up = True
                one.stop_waiting()
        return running

    def unstarted(self) -> list[Held]:
        with self._lock:
            return [one for one in self._jobs if one.stage is Stage.CLAIMED]

    def unended(self) -> list[Held]:
        with self._lock:
            return [one for one in self._jobs if one.stage is not Stage.ENDED]

    def stop_event(self, held: Held) -> threading.Event:
        """
        Return the event that a waiting handler is woken by.
        """
        with self._lock:
            if held.stopped is None:
                held.stopped = threading.Event()
                if held.is_to_stop:
                    held.stopped.set()
            return held.stopped
