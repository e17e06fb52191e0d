"""
What a handler is given: its job, and what it may do with it.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Final, NoReturn, TypeVar

from jobstore.errors import LeaseLost, OutcomeUnknown, StoreUnavailable
from jobstore.model import (
    AttemptOutcome,
    ChildFailure,
    Failed,
    Job,
    Lease,
    NewJob,
    Outcome,
    Payload,
    Snoozed,
)
from jobstore.retry import RetryPolicy
from jobstore.store import Store
from jobstore.worker.held import Held, HeldJobs, Unwritten
from jobstore.worker.threads import Threads

__all__ = [
    "DONE",
    "AsyncContext",
    "AttemptEnded",
    "Context",
    "Desk",
    "Done",
    "JobFailed",
]

T = TypeVar("T")

_PATIENCE = RetryPolicy(initial=timedelta(milliseconds=100), cap=timedelta(seconds=5))


class Done(Enum):
    """
    The type of `DONE`.
    """

    DONE = "done"


DONE: Final = Done.DONE
"""
Returned by a handler that ended its job itself, in a transaction of its own.

The worker looks whether that is so; a job that is still held then fails with error
code NOT_ENDED.
"""


class AttemptEnded(Exception):
    """
    Raised by a handler to end its attempt with *outcome*, from however deep.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class JobFailed(AttemptEnded):
    """
    Raised by a handler to fail its attempt in its own words.

    Args:
        error_code: Short and stable, for counting and filtering.
        error_message: For people; it is stored with the job.
        final: No further attempt, whatever is left.
        retry_in: Wait before the next attempt; None: by the store's policy.
    """

    def __init__(
        self,
        error_code: str,
        error_message: str = "",
        *,
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> None:
        super().__init__(Failed(error_code, error_message, final, retry_in))
        self.args = (error_code, error_message)


@dataclass(frozen=True, slots=True)
class Desk:
    """
    What the contexts of one worker share.
    """

    store: Store
    jobs: HeldJobs
    threads: Threads
    """Where calls to the store run that a coroutine waits for."""


class _Base:
    __slots__ = ("_desk", "_held")

    def __init__(self, desk: Desk, held: Held) -> None:
        self._desk = desk
        self._held = held

    @property
    def job(self) -> Job:
        """
        The job as it was when it was claimed.
        """
        return self._held.job

    @property
    def lease(self) -> Lease:
        """
        The lease, for ending the job in a transaction of your own; then return `DONE`.
        """
        return self._held.lease

    @property
    def is_lost(self) -> bool:
        """
        Whether the lease is gone: stop, what you return will not be taken.
        """
        return self._held.is_to_stop

    @property
    def is_stopping(self) -> bool:
        """
        Whether the worker was told to stop: what can be cut short, should be.

        The handler has the worker's grace time; then the job is given back.
        """
        return self._desk.jobs.is_stopping

    def check(self) -> None:
        """
        Raise `LeaseLost`, or `JobCancelled`, if the lease is gone.

        For handlers that are long at work without waiting: call it between steps, and
        before anything that can't be undone.
        """
        if self._held.is_to_stop:
            raise self._held.reason()

    def snooze(self, delay: timedelta) -> NoReturn:
        """
        End the attempt: not now, due again after *delay*, not charged.

        By an exception, `AttemptEnded`; ``return Snoozed(delay)`` does the same.
        """
        raise AttemptEnded(Snoozed(delay))

    def fail(
        self,
        error_code: str,
        error_message: str = "",
        *,
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> NoReturn:
        """
        End the attempt badly, by raising `JobFailed`.
        """
        raise JobFailed(error_code, error_message, final=final, retry_in=retry_in)

    def _insist(
        self, call: Callable[[], T], is_abandoned: Callable[[], bool] = bool
    ) -> T:
        """
        Make *call* until the database answers, or the handler is to stop.

        An outage would otherwise be charged to every job whose handler was reading.
        """
        attempt = 0
        while True:
            self.check()
            try:
                return call()
            except (StoreUnavailable, OutcomeUnknown):
                if is_abandoned():
                    raise
            attempt += 1
            stopped = self._desk.jobs.stop_event(self._held)
            stopped.wait(_PATIENCE.delay(attempt).total_seconds())

    def _park(
        self,
        children: Sequence[NewJob],
        on_child_failure: ChildFailure,
        is_abandoned: Callable[[], bool] = bool,
    ) -> Done:
        held = self._held
        is_unknown = False

        def fan_out() -> None:
            nonlocal is_unknown
            try:
                self._desk.store.fan_out(
                    held.lease, children, on_child_failure=on_child_failure
                )
            except OutcomeUnknown:
                is_unknown = True
                raise
            except LeaseLost:
                # Children without keys are not found again: was it our first call?
                if not (is_unknown and self._is_parked()):
                    raise

        # From here on the lease may end at any moment, by our own doing.
        held.own_ending = Unwritten.VERIFY
        try:
            self._insist(fan_out, is_abandoned)
        except BaseException:
            held.own_ending = None
            raise
        held.own_ending = Unwritten.NOTHING
        return DONE

    def _is_parked(self) -> bool:
        lease = self._held.lease
        return any(
            one.fence == lease.fence and one.outcome is AttemptOutcome.WAITING
            for one in self._desk.store.attempts(lease.job_id)
        )


class Context(_Base):
    """
    For a plain function, which runs in a thread of its own.
    """

    __slots__ = ()

    def wait(self, seconds: float) -> None:
        """
        Sleep; raise `LeaseLost` as soon as the lease is gone.
        """
        self._desk.jobs.stop_event(self._held).wait(seconds)
        self.check()

    def payload(self) -> Payload:
        """
        Fetch the payload. Waits for a database that is away.

        Raises:
            LeaseLost: The lease was lost meanwhile.
            PayloadMissing: Somebody removed it.
        """
        job_id = self._held.lease.job_id
        return self._insist(lambda: self._desk.store.payload(job_id))

    def children(self, *, with_result: bool = True) -> list[Job]:
        """
        Fetch the children, oldest first. See `Store.list_children`.
        """
        return self._insist(
            lambda: self._desk.store.list_children(
                self._held.lease.job_id, with_result=with_result
            )
        )

    def fan_out(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> Done:
        """
        Create *children* and wait for them: ``return context.fan_out(…)``.

        The lease ends with this, so whatever is returned afterwards is not taken. When
        all children have ended the handler is called again, with ``job.is_resumed``.
        See `Store.fan_out`.
        """
        return self._park(children, on_child_failure)


class AsyncContext(_Base):
    """
    For a coroutine function, which runs on the worker's event loop.

    When the lease is lost, or the grace time of a stop is over, its task is cancelled.
    """

    __slots__ = ()

    async def payload(self) -> Payload:
        """
        Fetch the payload. See `Context.payload`.
        """
        job_id = self._held.lease.job_id
        return await self._call(lambda: self._desk.store.payload(job_id))

    async def children(self, *, with_result: bool = True) -> list[Job]:
        """
        Fetch the children, oldest first. See `Store.list_children`.
        """
        return await self._call(
            lambda: self._desk.store.list_children(
                self._held.lease.job_id, with_result=with_result
            )
        )

    async def fan_out(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> Done:
        """
        Create *children* and wait for them: ``return await context.fan_out(…)``.

        See `Context.fan_out`.
        """
        return await self._apart(partial(self._park, children, on_child_failure))

    async def _call(self, call: Callable[[], T]) -> T:
        return await self._apart(partial(self._insist, call))

    async def _apart(self, work: Callable[[Callable[[], bool]], T]) -> T:
        # The database is asked from a thread: the store that a worker drives is
        # synchronous, so that one store serves all of its loops.
        abandoned = threading.Event()
        try:
            return await self._desk.threads.call(lambda: work(abandoned.is_set))
        except asyncio.CancelledError:
            abandoned.set()
            raise
