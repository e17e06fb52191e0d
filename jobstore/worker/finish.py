"""
The finisher: commits outcomes in batches, and does not let go of one.

There is no delay and no size to tune: what is handed in while one batch is being
committed is the next batch.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from jobstore.errors import (
    InvalidInput,
    JobstoreError,
    OutcomeUnknown,
    StoreUnavailable,
)
from jobstore.model import Completed, Failed, Lease, Outcome
from jobstore.store import Store
from jobstore.worker.held import Held, HeldJobs
from jobstore.worker.pacing import Loop

__all__ = ["Finisher"]

_log = logging.getLogger("jobstore.worker")

_LARGEST_BATCH = 500
_LARGEST_BATCH_BYTES = 64 * 1024 * 1024
_IDLE_SECONDS = 60.0

Ending = tuple[Held, Outcome]


class Finisher:
    """
    Takes outcomes from handlers and commits them.

    An outcome that the database could not take because it was away is kept and tried
    again, until it is written or its lease is lost. The heartbeat goes on meanwhile.
    """

    def __init__(
        self, store: Store, held: HeldJobs, crashed: Callable[[BaseException], None]
    ) -> None:
        self._store = store
        self._held = held
        self._waiting: deque[Ending] = deque()
        self._idle = threading.Condition()
        self._unfinished = 0
        self.completed = 0
        self.failed = 0
        self.loop = Loop("finish", self._step, crashed)

    def put(self, held: Held, outcome: Outcome) -> None:
        """
        Hand in the outcome of a job. From any thread; never blocks.
        """
        held.has_outcome = True
        with self._idle:
            self._unfinished += 1
        self._waiting.append((held, outcome))
        self.loop.poke()

    @property
    def backlog(self) -> int:
        """
        How many outcomes are not committed yet.
        """
        return self._unfinished

    def flush(self, timeout: float) -> bool:
        """
        Wait until all that was handed in is committed; False if time ran out.
        """
        with self._idle:
            return self._idle.wait_for(lambda: self._unfinished == 0, timeout)

    def _step(self) -> float:
        batch: list[Ending] = []
        size = 0
        while self._waiting and len(batch) < _LARGEST_BATCH:
            ending = self._waiting.popleft()
            batch.append(ending)
            size += _size_of(ending[1])
            if size > _LARGEST_BATCH_BYTES:
                break
        if not batch:
            return _IDLE_SECONDS
        try:
            self._write(batch)
        except (StoreUnavailable, OutcomeUnknown):
            # Back to the front, in order; the loop pauses and comes again. Writing an
            # outcome twice with the same lease is a no-op that succeeds.
            self._waiting.extendleft(reversed(batch))
            raise
        with self._idle:
            self._unfinished -= len(batch)
            if self._unfinished == 0:
                self._idle.notify_all()
        return 0.0 if self._waiting else _IDLE_SECONDS

    def _write(self, batch: Sequence[Ending]) -> None:
        try:
            self._settle(batch)
        except (StoreUnavailable, OutcomeUnknown):
            raise
        except JobstoreError as error:
            if len(batch) > 1:
                # One outcome that can't be written must not hold up the others.
                for ending in batch:
                    self._write([ending])
                return
            self._give_up(batch[0][0], batch[0][1], error)

    def _settle(self, batch: Sequence[Ending]) -> None:
        answers = self._store.set_results([(one.lease, end) for one, end in batch])
        done: list[Lease] = []
        for (one, outcome), answer in zip(batch, answers, strict=True):
            done.append(one.lease)
            if isinstance(answer, JobstoreError):
                _log.warning("outcome not taken: %s", answer)
            elif isinstance(outcome, Completed):
                self.completed += 1
            elif isinstance(outcome, Failed):
                self.failed += 1
        self._held.drop(done)

    def _give_up(self, one: Held, outcome: Outcome, error: JobstoreError) -> None:
        """
        The outcome itself was refused: say so in its place.
        """
        code = "INVALID_RESULT" if isinstance(error, InvalidInput) else error.code
        if isinstance(outcome, Failed):
            _log.error("failure of job %s not recorded: %s", one.lease.job_id, error)
            self._held.drop([one.lease])
            return
        self._write([(one, Failed(code, str(error), final=True))])


def _size_of(outcome: Outcome) -> int:
    result = outcome.result if isinstance(outcome, Completed) else None
    return len(result) if result else 0
