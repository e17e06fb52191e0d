"""
What a handler is given: its job, and what it may do with it.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Final

from jobstore.errors import JobCancelled, LeaseLost
from jobstore.model import (
    ChildFailure,
    Created,
    Job,
    Lease,
    NewJob,
    Payload,
    check_duration,
)
from jobstore.store import Store
from jobstore.worker.held import Held

__all__ = ["DONE", "AsyncContext", "Context", "Done", "JobFailed"]


class Done(Enum):
    """
    The type of `DONE`.
    """

    DONE = "done"


DONE: Final = Done.DONE
"""Returned by a handler that ended its job itself, in its own transaction."""


class JobFailed(Exception):
    """
    Raised by a handler to fail its attempt in its own words.

    Args:
        error_code: Short and stable.
        error_message: For people.
        final: No further attempt, whatever is left.
        retry_in: Wait before the next attempt; None: by the store's policy.

    Raises:
        InvalidInput: *retry_in* is negative, or longer than 3,650 days.
    """

    def __init__(
        self,
        error_code: str,
        error_message: str = "",
        *,
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> None:
        super().__init__(error_code, error_message)
        if retry_in is not None:
            check_duration("retry_in", retry_in, shortest=timedelta(0))
        self.error_code = error_code
        self.error_message = error_message
        self.final = final
        self.retry_in = retry_in


class _Base:
    __slots__ = ("_held", "_store")

    def __init__(self, store: Store, held: Held) -> None:
        self._store = store
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
        Whether the lease is gone: stop, nothing you return will be taken.
        """
        return self._held.is_lost

    def check(self) -> None:
        """
        Raise `LeaseLost`, or `JobCancelled`, if the lease is gone.

        For handlers that run long without awaiting: call it between steps.
        """
        if self._held.is_lost:
            kind = JobCancelled if self._held.is_cancelled else LeaseLost
            lease = self._held.lease
            raise kind(lease.job_id, lease.fence, "the heartbeat said so")


class Context(_Base):
    """
    For a plain function, which runs in a thread of its own.
    """

    __slots__ = ()

    def payload(self) -> Payload:
        """
        Fetch the payload. See `Store.payload`.
        """
        return self._store.payload(self._held.lease.job_id)

    def children(self, *, with_result: bool = True) -> list[Job]:
        """
        Fetch the children, oldest first. See `Store.list_children`.
        """
        return self._store.list_children(
            self._held.lease.job_id, with_result=with_result
        )

    def fan_out(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> Done:
        """
        Create *children* and wait for them: ``return context.fan_out(…)``.

        The handler is called again when all have ended, with ``job.is_resumed``.
        """
        self.fan_out_now(children, on_child_failure=on_child_failure)
        return DONE

    def fan_out_now(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """
        As `fan_out`, for who wants the children's ids. Return `DONE` after it.
        """
        created = self._store.fan_out(
            self._held.lease, children, on_child_failure=on_child_failure
        )
        self._held.settle()
        return created


class AsyncContext(_Base):
    """
    For a coroutine function, which runs on the worker's event loop.
    """

    __slots__ = ()

    async def payload(self) -> Payload:
        """
        Fetch the payload. See `Store.payload`.
        """
        return await asyncio.to_thread(self._store.payload, self._held.lease.job_id)

    async def children(self, *, with_result: bool = True) -> list[Job]:
        """
        Fetch the children, oldest first. See `Store.list_children`.
        """
        return await asyncio.to_thread(
            self._store.list_children, self._held.lease.job_id, with_result=with_result
        )

    async def fan_out(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> Done:
        """
        Create *children* and wait for them: ``return await context.fan_out(…)``.

        The handler is called again when all have ended, with ``job.is_resumed``.
        """
        await self.fan_out_now(children, on_child_failure=on_child_failure)
        return DONE

    async def fan_out_now(
        self,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """
        As `fan_out`, for who wants the children's ids. Return `DONE` after it.
        """
        created = await asyncio.to_thread(
            self._store.fan_out,
            self._held.lease,
            children,
            on_child_failure=on_child_failure,
        )
        self._held.settle()
        return created
