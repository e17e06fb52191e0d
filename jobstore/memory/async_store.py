"""
`AsyncMemoryStore`: the twin of `jobstore.memory.store.MemoryStore`.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from jobstore.errors import JobNotFound, LeaseLost
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.memory.store import MemoryStore
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
from jobstore.outcomes import AsyncOutcomes
from jobstore.retry import RetryPolicy
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES

__all__ = ["AsyncMemoryStore"]


class AsyncMemoryStore(AsyncOutcomes):
    """
    A job store in memory, for asyncio. Arguments as for `MemoryStore`.

    Every verb answers at once: it holds the loop no longer than its dicts take.
    """

    def __init__(
        self,
        *,
        retry: RetryPolicy = RetryPolicy(),
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._blocking = MemoryStore(
            retry=retry, max_payload_bytes=max_payload_bytes, clock=clock
        )

    # -- submit ----------------------------------------------------------------

    async def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        return self._blocking.create(new, strict=strict, job_id=job_id)

    async def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        return self._blocking.create_many(new, strict=strict)

    async def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        return self._blocking.fan_out(
            lease, children, on_child_failure=on_child_failure
        )

    # -- finish ----------------------------------------------------------------

    async def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        return self._blocking.set_results(outcomes)

    # -- read ------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """See `Store.get`."""
        return self._blocking.get(job_id)

    async def payload(self, job_id: str) -> Payload:
        """See `Store.payload`."""
        return self._blocking.payload(job_id)

    async def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """See `Store.list_children`."""
        return self._blocking.list_children(
            parent_id, after=after, limit=limit, with_result=with_result
        )

    async def attempts(self, job_id: str) -> list[Attempt]:
        """See `Store.attempts`."""
        return self._blocking.attempts(job_id)

    async def stats(
        self, *, window: timedelta = timedelta(minutes=5)
    ) -> list[QueueStats]:
        """See `Store.stats`."""
        return self._blocking.stats(window=window)

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
        """See `Store.list`."""
        return self._blocking.list(
            tenant=tenant,
            queue=queue,
            kind=kind,
            job_class=job_class,
            status=status,
            worker=worker,
            error_code=error_code,
            idem_key=idem_key,
            after=after,
            oldest_first=oldest_first,
            limit=limit,
            with_result=with_result,
        )

    # -- claim -----------------------------------------------------------------

    async def claim_next(
        self,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> Claim | None:
        """See `Store.claim_next`."""
        return self._blocking.claim_next(
            queue=queue, job_class=job_class, worker=worker, lease=lease
        )

    async def claim(
        self,
        limit: int,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> builtins.list[Claim]:
        """See `Store.claim`."""
        return self._blocking.claim(
            limit, queue=queue, job_class=job_class, worker=worker, lease=lease
        )

    async def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """See `Store.heartbeat`."""
        return self._blocking.heartbeat(leases)

    # -- upkeep ----------------------------------------------------------------

    async def promote_due(self, *, limit: int = 1000) -> int:
        """See `Store.promote_due`."""
        return self._blocking.promote_due(limit=limit)

    async def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """See `Store.reclaim_stale`."""
        return self._blocking.reclaim_stale(visibility_timeout, limit=limit)

    async def repair_families(self, *, limit: int = 1000) -> int:
        """See `Store.repair_families`."""
        return self._blocking.repair_families(limit=limit)

    async def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """See `Store.prune`."""
        return self._blocking.prune(
            older_than, status=status, keep_keys_for=keep_keys_for, limit=limit
        )

    # -- operate ---------------------------------------------------------------

    async def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """See `Store.update_status`."""
        return self._blocking.update_status(job_id, fn)

    async def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """See `Store.cancel`."""
        return self._blocking.cancel(job_id, reason=reason)

    async def requeue(self, job_id: str) -> Job:
        """See `Store.requeue`."""
        return self._blocking.requeue(job_id)

    @property
    def blocking(self) -> MemoryStore:
        """
        See `AsyncStore.blocking`.
        """
        return self._blocking

    async def close(self) -> None:
        """
        See `Store.close`. There is nothing to give back.
        """
