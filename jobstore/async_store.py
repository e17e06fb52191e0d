"""
The async twin of the contract: the same verbs, awaited.

What they promise is written in `jobstore.store`; a test holds the signatures of the
two together. Cancelling an awaiting task never leaves a half-written job or a
leaked connection; whether a write was done is then unknown, as after
`OutcomeUnknown`.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from jobstore.errors import JobNotFound, LeaseLost
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.model import (
    Attempt,
    ChildFailure,
    Claim,
    Created,
    Heartbeat,
    Job,
    Lease,
    NewJob,
    Outcome,
    Payload,
    QueueStats,
    Reclaimed,
)
from jobstore.store import Store

__all__ = ["AsyncCreator", "AsyncFinisher", "AsyncStore"]


class AsyncCreator(Protocol):
    """
    Async twin of `Creator`.
    """

    async def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """
        Async twin of `Creator.create`.
        """
        ...

    async def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """
        Async twin of `Creator.create_many`.
        """
        ...


class AsyncFinisher(Protocol):
    """
    Async twin of `Finisher`.
    """

    async def set_result(self, lease: Lease, outcome: Outcome) -> JobStatus:
        """
        Async twin of `Finisher.set_result`.
        """
        ...

    async def complete(self, lease: Lease, result: bytes | None = None) -> JobStatus:
        """
        Async twin of `Finisher.complete`.
        """
        ...

    async def fail(
        self,
        lease: Lease,
        *,
        error_code: str,
        error_message: str = "",
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> JobStatus:
        """
        Async twin of `Finisher.fail`.
        """
        ...

    async def release(self, lease: Lease) -> JobStatus:
        """
        Async twin of `Finisher.release`.
        """
        ...

    async def snooze(self, lease: Lease, delay: timedelta) -> JobStatus:
        """
        Async twin of `Finisher.snooze`.
        """
        ...

    async def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """
        Async twin of `Finisher.set_results`.
        """
        ...

    async def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """
        Async twin of `Finisher.fan_out`.
        """
        ...


@runtime_checkable
class AsyncStore(AsyncCreator, AsyncFinisher, Protocol):
    """
    Async twin of `Store`.
    """

    # -- read ------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """
        Async twin of `Store.get`.
        """
        ...

    async def payload(self, job_id: str) -> Payload:
        """
        Async twin of `Store.payload`.
        """
        ...

    async def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """
        Async twin of `Store.list_children`.
        """
        ...

    async def attempts(self, job_id: str) -> list[Attempt]:
        """
        Async twin of `Store.attempts`.
        """
        ...

    async def stats(
        self, *, window: timedelta = timedelta(minutes=5)
    ) -> list[QueueStats]:
        """
        Async twin of `Store.stats`.
        """
        ...

    async def list(
        self,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        job_class: JobClass | None = None,
        status: JobStatus | Iterable[JobStatus] | None = None,
        worker: str | None = None,
        error_code: str | None = None,
        idem_key: str | None = None,
        after: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
        with_result: bool = True,
    ) -> builtins.list[Job]:
        """
        Async twin of `Store.list`.
        """
        ...

    # -- claim -----------------------------------------------------------------

    async def claim_next(
        self,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> Claim | None:
        """
        Async twin of `Store.claim_next`.
        """
        ...

    async def claim(
        self,
        limit: int,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> builtins.list[Claim]:
        """
        Async twin of `Store.claim`.
        """
        ...

    async def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """
        Async twin of `Store.heartbeat`.
        """
        ...

    # -- upkeep ----------------------------------------------------------------

    async def promote_due(self, *, limit: int = 1000) -> int:
        """
        Async twin of `Store.promote_due`.
        """
        ...

    async def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """
        Async twin of `Store.reclaim_stale`.
        """
        ...

    async def repair_families(self, *, limit: int = 1000) -> int:
        """
        Async twin of `Store.repair_families`.
        """
        ...

    async def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """
        Async twin of `Store.prune`.
        """
        ...

    # -- operate ---------------------------------------------------------------

    async def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """
        Async twin of `Store.update_status`.
        """
        ...

    async def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """
        Async twin of `Store.cancel`.
        """
        ...

    async def requeue(self, job_id: str) -> Job:
        """
        Async twin of `Store.requeue`.
        """
        ...

    @property
    def blocking(self) -> Store:
        """
        A synchronous store on the same jobs; the worker uses it.
        """
        ...

    async def close(self) -> None:
        """
        Async twin of `Store.close`.
        """
        ...
