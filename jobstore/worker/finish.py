"""
The finisher: commits outcomes in batches, and does not let go of one.

There is no delay and no size to tune: what comes in while one batch is being committed
is the next batch.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobstore.errors import (
    InvalidInput,
    JobNotFound,
    JobstoreError,
    LeaseLost,
    StoreBusy,
    StoreFault,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed, Failed, Outcome, Released
from jobstore.retry import RetryPolicy
from jobstore.store import Store
from jobstore.worker.held import Ending, Held, HeldJobs, Unwritten
from jobstore.worker.loop import Loop

__all__ = ["Counts", "Finisher"]

_log = logging.getLogger("jobstore.worker")

_LARGEST_BATCH = 500
_LARGEST_BATCH_BYTES = 16 * 1024 * 1024
# Results that wait in memory while the database is slow or away.
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_IDLE_SECONDS = 60.0
_PATIENCE = RetryPolicy(initial=timedelta(seconds=1), cap=timedelta(seconds=15))
# SQLSTATE classes of values that a database will never take.
_UNFIT = ("22", "23", "54")

Writing = tuple[Held, Outcome]


@dataclass(slots=True)
class Counts:
    """
    What became of the jobs, since the worker began.
    """

    completed: int = 0
    failed: int = 0
    """Attempts that failed; whether the job is tried again or not."""
    released: int = 0
    snoozed: int = 0
    dropped: int = 0
    """Outcomes that were refused, because the lease was lost or the job cancelled."""


class Finisher:
    """
    Takes outcomes and commits them.

    An outcome that the database could not take because it was away is kept and tried
    again, until it is written or its lease is lost. One that can't be written does not
    hold up the others.
    """

    def __init__(
        self, store: Store, jobs: HeldJobs, crashed: Callable[[BaseException], None]
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._lock = threading.Lock()
        self._waiting: deque[Ending] = deque()
        # What is being written; what a failure leaves here comes next.
        self._in_hand: dict[Held, Outcome | Unwritten] = {}
        # What failed on its own: (due at, tie-breaker, job, outcome), and how often.
        self._stubborn: list[tuple[float, int, Held, Outcome]] = []
        self._ties = itertools.count()
        self._tries: dict[Held, int] = {}
        self._bytes = 0
        self._batch_limit = _LARGEST_BATCH
        self.counts = Counts()
        self.loop = Loop("finish", self._step, crashed)

    def put(self, endings: Sequence[Ending]) -> None:
        """
        Hand in outcomes. From any thread; never blocks.
        """
        with self._lock:
            self._waiting.extend(endings)
            self._bytes += sum(_size_of(outcome) for _, outcome in endings)
        self.loop.wake()

    @property
    def backlog(self) -> int:
        """
        How many outcomes are not committed yet.
        """
        return len(self._waiting) + len(self._in_hand) + len(self._stubborn)

    @property
    def is_full(self) -> bool:
        """
        Whether results pile up: take no more jobs for now.
        """
        return self._bytes > _MOST_WAITING_BYTES

    def _step(self) -> float:
        if not self._in_hand:
            self._take_in_hand()
        batch = list(itertools.islice(self._in_hand.items(), self._batch_limit))
        try:
            self._write(self._verified(batch))
            self._batch_limit = min(self._batch_limit * 2, _LARGEST_BATCH)
        except StoreBusy as error:
            # Perhaps one row that somebody has locked: close in on it, so that it does
            # not hold up the others.
            self._batch_limit = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._set_aside(*batch[0], error)
        self._retry_stubborn()
        if self._in_hand or self._waiting:
            return 0.0
        if self._stubborn:
            return max(0.0, self._stubborn[0][0] - time.monotonic())
        return _IDLE_SECONDS

    def _take_in_hand(self) -> None:
        size = 0
        with self._lock:
            while self._waiting and len(self._in_hand) < _LARGEST_BATCH:
                size += _size_of(self._waiting[0][1])
                if self._in_hand and size > _LARGEST_BATCH_BYTES:
                    break
                held, outcome = self._waiting.popleft()
                self._in_hand[held] = outcome

    def _verified(self, batch: Sequence[Ending]) -> list[Writing]:
        """
        Return what is to be written. Jobs that ended themselves are not, if they have.
        """
        doubtful = [held for held, outcome in batch if outcome is Unwritten.VERIFY]
        if doubtful:
            answer = self._store.heartbeat([held.lease for held in doubtful])
            for held in doubtful:
                if held.lease in answer.held:
                    self._replace(held, _NOT_ENDED)
                else:
                    self._let_go([held])
        return [
            (held, outcome)
            for held, _ in batch
            if not isinstance(outcome := self._in_hand.get(held), Unwritten | None)
        ]

    def _write(self, batch: Sequence[Writing]) -> None:
        if not batch:
            return
        try:
            answers = self._store.set_results(
                [(held.lease, outcome) for held, outcome in batch]
            )
        except (InvalidInput, StoreFault) as error:
            if len(batch) == 1:
                self._refused(*batch[0], error)
                return
            # One of them can't be written; it must not hold up the others.
            middle = len(batch) // 2
            self._write(batch[:middle])
            self._write(batch[middle:])
            return
        for (held, outcome), answer in zip(batch, answers, strict=True):
            self._count(held, outcome, answer)
        self._let_go([held for held, _ in batch])

    def _refused(self, held: Held, outcome: Outcome, error: JobstoreError) -> None:
        """
        Deal with an outcome that the store won't take.
        """
        is_unfit = isinstance(error, InvalidInput) or (
            isinstance(error, StoreFault) and (error.sqlstate or "")[:2] in _UNFIT
        )
        if not is_unfit:
            self._set_aside(held, outcome, error)
        elif isinstance(outcome, Completed):
            _log.warning("job %s: its result was refused", held.lease.job_id)
            failed = Failed("INVALID_RESULT", str(error), final=True)
            self._replace(held, failed)
            self._write([(held, failed)])
        else:
            _log.error(
                "job %s: %s not written (%s)", held.lease.job_id, _word(outcome), error
            )
            self.counts.dropped += 1
            self._let_go([held])

    def _set_aside(
        self, held: Held, outcome: Outcome | Unwritten, error: JobstoreError
    ) -> None:
        """
        Try this one again later, on its own.
        """
        if isinstance(outcome, Unwritten):
            raise error  # a heartbeat that found no connection: nothing of its own
        tries = self._tries[held] = self._tries.get(held, 0) + 1
        _log.log(
            # One line tells of any number that are refused for the same reason.
            logging.DEBUG if self._stubborn or tries > 1 else logging.WARNING,
            "job %s: %s not written yet: %s; trying again",
            held.lease.job_id,
            _word(outcome),
            error,
        )
        due_at = time.monotonic() + _PATIENCE.delay(tries).total_seconds()
        heapq.heappush(self._stubborn, (due_at, next(self._ties), held, outcome))
        del self._in_hand[held]

    def _retry_stubborn(self) -> None:
        if not self._stubborn or self._stubborn[0][0] > time.monotonic():
            return
        _, _, held, outcome = heapq.heappop(self._stubborn)
        self._in_hand[held] = outcome
        if held.loss is not None:
            self._count(held, outcome, held.loss)
            self._let_go([held])
            return
        try:
            self._write([(held, outcome)])
        except StoreBusy as error:
            self._set_aside(held, outcome, error)

    def _replace(self, held: Held, outcome: Outcome) -> None:
        size = _size_of(self._in_hand[held])
        self._in_hand[held] = outcome
        with self._lock:
            self._bytes -= size

    def _count(
        self, held: Held, outcome: Outcome, answer: JobStatus | LeaseLost | JobNotFound
    ) -> None:
        if isinstance(answer, JobstoreError):
            self.counts.dropped += 1
            _log.warning(
                "job %s: %s dropped: %s", held.lease.job_id, _word(outcome), answer
            )
        elif isinstance(outcome, Completed):
            self.counts.completed += 1
        elif isinstance(outcome, Failed):
            self.counts.failed += 1
        elif isinstance(outcome, Released):
            self.counts.released += 1
        else:
            self.counts.snoozed += 1

    def _let_go(self, jobs: Sequence[Held]) -> None:
        size = 0
        for held in jobs:
            size += _size_of(self._in_hand.pop(held))
            self._tries.pop(held, None)
        if size:
            with self._lock:
                self._bytes -= size
        self._jobs.settle(jobs)


_NOT_ENDED = Failed(
    "NOT_ENDED", "the handler said that it had ended the job, but the lease still stood"
)


def _word(outcome: Outcome | Unwritten) -> str:
    return type(outcome).__name__.lower()


def _size_of(outcome: Outcome | Unwritten) -> int:
    result = outcome.result if isinstance(outcome, Completed) else None
    return len(result) if result else 0
