"""
The lease keeper: one heartbeat for all jobs in hand, from a thread of its own.

A busy event loop can't starve it, nor can handlers that use up a pool: it has a store,
and so a connection, of its own. It is the last thing of a worker to stop.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from jobstore.errors import JobNotFound, JobstoreError, StoreBusy
from jobstore.lifecycle import JobStatus
from jobstore.model import Heartbeat
from jobstore.store import MAX_BATCH, Store
from jobstore.worker.held import Held, HeldJobs, Unwritten
from jobstore.worker.loop import Loop
from jobstore.worker.threads import Threads

__all__ = ["LeaseKeeper"]

_log = logging.getLogger("jobstore.worker")

# Beats that hang are left to themselves, each in a thread; more are not begun.
_MOST_HANGING = 3


class LeaseKeeper:
    """
    Keeps leases alive, and tells handlers whose lease is gone.

    A job is beaten for from half an interval after its claim, which counts as its first
    heartbeat; short jobs cost none.

    Args:
        on_lost: Called with the jobs whose handlers are to be stopped.
    """

    def __init__(
        self,
        store: Store,
        jobs: HeldJobs,
        *,
        every: timedelta,
        visibility_timeout: timedelta,
        on_lost: Callable[[list[Held]], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._every = every.total_seconds()
        self._visibility_timeout = visibility_timeout.total_seconds()
        self._on_lost = on_lost
        self._threads = Threads("jobstore-beat", _MOST_HANGING, crashed)
        self._beaten_at = time.monotonic()
        self._said_late = False
        self.loop = Loop(
            "heartbeat",
            self._step,
            crashed,
            allowance=max(visibility_timeout / 2, every * 2),
            # After an outage leases are refreshed before anybody reclaims them.
            longest_pause=min(every / 2, timedelta(seconds=10)),
        )

    @property
    def is_late(self) -> bool:
        """
        Whether leases may be lost before they are refreshed: take no more jobs.
        """
        return time.monotonic() - self._beaten_at > self._late_after

    @property
    def _late_after(self) -> float:
        return max(2 * self._every, self._visibility_timeout / 2)

    def close(self) -> None:
        self._threads.close()

    def _step(self) -> float:
        started = time.monotonic()
        due = [
            held
            for held in self._jobs.all()
            if held.loss is None
            and held.own_ending is not Unwritten.NOTHING
            and held.claimed_at <= started - self._every / 2
        ]
        self._report_lateness(started, len(due))
        for first in range(0, len(due), MAX_BATCH):
            batch = due[first : first + MAX_BATCH]
            self._take_in(batch, self._beat(batch))
        self._beaten_at = started
        return max(0.0, self._every - (time.monotonic() - started))

    def _report_lateness(self, now: float, due: int) -> None:
        late = now - self._beaten_at
        if late <= self._late_after or not due:
            self._said_late = False
        elif not self._said_late:
            self._said_late = True
            _log.warning(
                "the last heartbeat was %.1f s ago; of %d jobs the leases may be lost, "
                "which others may take after %.1f s",
                late,
                due,
                self._visibility_timeout,
            )

    def _beat(self, batch: Sequence[Held]) -> Heartbeat:
        """
        Send a heartbeat; wait for its answer no longer than till the next one.
        """
        leases = [held.lease for held in batch]
        answers: list[Heartbeat | JobstoreError] = []
        answered = threading.Event()

        def beat() -> None:
            try:
                answers.append(self._store.heartbeat(leases))
            except JobstoreError as error:
                answers.append(error)
            answered.set()

        self._threads.submit(beat)
        if not answered.wait(self._every):
            raise StoreBusy(f"no answer to a heartbeat within {self._every:g} s")
        (answer,) = answers
        if isinstance(answer, JobstoreError):
            raise answer
        return answer

    def _take_in(self, batch: Sequence[Held], answer: Heartbeat) -> None:
        if not answer.lost and not answer.cancelled:
            return
        told: list[Held] = []
        for held in batch:
            is_cancelled = held.lease in answer.cancelled
            if not is_cancelled and held.lease not in answer.lost:
                continue
            if not is_cancelled and self._ended_itself(held):
                held.own_ending = Unwritten.NOTHING
            elif self._jobs.lose(held, is_cancelled=is_cancelled):
                told.append(held)
                _log.warning(
                    "job %s: %s; its handler is told to stop",
                    held.lease.job_id,
                    "cancelled" if is_cancelled else "lease lost",
                )
        if told:
            self._on_lost(told)

    def _ended_itself(self, held: Held) -> bool:
        """
        Whether the handler completed the job, and is just about to say so.
        """
        try:
            job = self._store.get(held.lease.job_id)
        except JobNotFound:
            return False
        return job.fence == held.lease.fence and job.status in (
            JobStatus.COMPLETED,
            JobStatus.WAITING,
        )
