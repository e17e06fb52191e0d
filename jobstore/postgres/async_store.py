"""
`AsyncPostgresStore`: the twin of `jobstore.postgres.store.PostgresStore`.

The same calls on an asynchronous engine: each operation runs, in the simple colour,
under `AsyncConnection.run_sync`.
"""

import asyncio
import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from jobstore import checks
from jobstore.errors import JobNotFound, JobstoreError, LeaseLost
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
from jobstore.outcomes import AsyncOutcomes
from jobstore.postgres.core import Core, Tries, only_completions
from jobstore.postgres.engine import (
    Limits,
    adopt,
    own_connection,
    shared_connection,
)
from jobstore.postgres.engine import async_engine as make_engine
from jobstore.postgres.enlisted import AsyncEnlisted, AsyncTransaction
from jobstore.postgres.operations.upkeep import OLDEST, Cursor
from jobstore.postgres.session import AsyncOwnConnection, Call, SharedConnection
from jobstore.postgres.store import PostgresStore
from jobstore.postgres.translate import DATABASE_ERRORS
from jobstore.retry import RetryPolicy
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES

__all__ = ["AsyncPostgresStore"]

T = TypeVar("T")


class AsyncPostgresStore(AsyncOutcomes):
    """
    A durable job store in PostgreSQL, for asyncio.

    Arguments as for `PostgresStore`; *target* is a DSN or an `AsyncEngine`. Safe to
    share between the tasks of one event loop.
    """

    def __init__(
        self,
        target: str | URL | AsyncEngine,
        *,
        schema: str = "jobstore",
        retry: RetryPolicy = RetryPolicy(),
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        limits: Limits = Limits(),
        pool_size: int = 10,
        through_pooler: bool = False,
        wake_ups: bool = True,
    ) -> None:
        self._closes_engine = not isinstance(target, AsyncEngine)
        self._core = Core(
            schema=schema,
            retry=retry,
            max_payload_bytes=max_payload_bytes,
            limits=limits,
            sets_limits=not self._closes_engine or through_pooler,
        )
        self._engine = (
            target
            if isinstance(target, AsyncEngine)
            else make_engine(
                target,
                limits=limits,
                pool_size=pool_size,
                through_pooler=through_pooler,
            )
        )
        # For an engine that was handed in: whatever it does by itself.
        self._transactions = self._engine.execution_options(
            isolation_level="READ COMMITTED"
        )
        if not self._closes_engine:
            adopt(self._transactions.sync_engine)
        self._calls = self._core.calls
        self._blocking = PostgresStore(
            self._engine.url,
            schema=schema,
            retry=retry,
            max_payload_bytes=max_payload_bytes,
            limits=limits,
            pool_size=pool_size,
            through_pooler=through_pooler,
            wake_ups=wake_ups,
        )

    def within(self, transaction: AsyncTransaction) -> AsyncEnlisted:
        """
        Lend the verbs to a transaction of yours. See `PostgresStore.within`.
        """
        return AsyncEnlisted(self._core, transaction)

    def wake(self, *queues: str) -> None:
        """See `PostgresStore.wake`; never blocks."""
        self._blocking.wake(*queues)

    # -- submit ----------------------------------------------------------------

    async def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        return await self._run(self._calls.create(new, strict=strict, job_id=job_id))

    async def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        return await self._run(self._calls.create_many(new, strict=strict))

    async def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        return await self._run(
            self._calls.fan_out(lease, children, on_child_failure=on_child_failure)
        )

    # -- finish ----------------------------------------------------------------

    async def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        endings = self._calls.check_endings(outcomes)
        if not endings:
            return []
        written: set[tuple[str, int]] = set()
        if plain := only_completions(endings):
            written = await self._run(self._calls.complete_orphans(plain))
        if len(written) == len(endings):
            return [JobStatus.COMPLETED] * len(endings)
        rest = [end for end in endings if end[0].token not in written]
        others = await self._run(self._calls.set_results(rest))
        answers = iter(others)
        return [
            JobStatus.COMPLETED if end[0].token in written else next(answers)
            for end in endings
        ]

    # -- read ------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """See `Store.get`."""
        return await self._run(self._calls.get(job_id))

    async def payload(self, job_id: str) -> Payload:
        """See `Store.payload`."""
        return await self._run(self._calls.payload(job_id))

    async def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """See `Store.list_children`."""
        return await self._run(
            self._calls.list_children(
                parent_id, after=after, limit=limit, with_result=with_result
            )
        )

    async def attempts(self, job_id: str) -> list[Attempt]:
        """See `Store.attempts`."""
        return await self._run(self._calls.attempts(job_id))

    async def stats(
        self, *, window: timedelta = timedelta(minutes=5)
    ) -> list[QueueStats]:
        """See `Store.stats`."""
        return await self._run(self._calls.stats(window))

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
        return await self._run(
            self._calls.list_jobs(
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
        )

    async def check_schema(self) -> str:
        """See `PostgresStore.check_schema`."""
        return await self._run(self._calls.check_schema())

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
        claims = await self.claim(
            1, queue=queue, job_class=job_class, worker=worker, lease=lease
        )
        return claims[0] if claims else None

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
        return await self._run(
            self._calls.claim(
                limit, queue=queue, job_class=job_class, worker=worker, lease=lease
            )
        )

    async def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """See `Store.heartbeat`."""
        return await self._run(self._calls.heartbeat(leases))

    # -- upkeep ----------------------------------------------------------------

    async def promote_due(self, *, limit: int = 1000) -> int:
        """See `Store.promote_due`."""
        return await self._run(self._calls.promote_due(limit))

    async def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """See `Store.reclaim_stale`."""
        call = self._calls.reclaim_stale(visibility_timeout, limit)
        total = batch = await self._run(call)
        while batch.requeued + batch.failed >= limit:
            batch = await self._run(call)
            total += batch
        return total

    async def repair_families(self, *, limit: int = 1000) -> int:
        """See `Store.repair_families`."""
        return await self._run(self._calls.repair_families(limit))

    async def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """See `Store.prune`."""
        statuses = checks.check_terminal(status)
        total = 0
        after: Cursor | None = OLDEST
        while after is not None:
            deleted, after = await self._run(
                self._calls.prune(older_than, statuses, keep_keys_for, limit, after)
            )
            total += deleted
        return total

    # -- operate ---------------------------------------------------------------

    async def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """See `Store.update_status`."""
        return await self._run(self._calls.update_status(job_id, fn))

    async def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """See `Store.cancel`."""
        return await self._run(self._calls.cancel(job_id, reason))

    async def requeue(self, job_id: str) -> Job:
        """See `Store.requeue`."""
        return await self._run(self._calls.requeue(job_id))

    @property
    def blocking(self) -> PostgresStore:
        """
        See `AsyncStore.blocking`. Connects when it is first used.
        """
        return self._blocking

    async def close(self) -> None:
        """See `Store.close`. An engine that was handed in is left alone."""
        await asyncio.to_thread(self._blocking.close)
        if self._closes_engine:
            await self._engine.dispose()

    async def _run(self, call: Call[T]) -> T:
        """
        Run *call* on a connection, in its own transaction if it needs one.
        """
        tries = Tries(call)
        while True:
            try:
                if self._closes_engine:
                    result: T = await greenlet_spawn(self._run_on_own, call, tries)
                else:
                    async with self._transactions.begin() as connection:
                        result = await connection.run_sync(self._run_on, call, tries)
            except DATABASE_ERRORS as error:
                verdict = tries.failed(error)
            else:
                self.wake(*tries.queues_to_wake)
                return result
            finally:
                tries.unwatch()
            # As in the synchronous store: the driver's error does not travel along.
            if self._core.doubts(verdict, tries):
                continue
            if isinstance(verdict, JobstoreError):
                raise verdict
            await asyncio.sleep(verdict)

    def _run_on_own(self, call: Call[T], tries: Tries) -> T:
        with own_connection(self._engine.sync_engine) as driver:
            self._core.watch(driver, tries)
            executor = AsyncOwnConnection(driver)
            if call.transaction or self._core.sets_limits:
                with executor.transaction():
                    return self._core.run(executor, call, tries)
            return self._core.run(executor, call, tries)

    def _run_on(self, connection: Connection, call: Call[T], tries: Tries) -> T:
        shared = SharedConnection(connection)
        self._core.watch(shared.driver, tries)
        with shared_connection(connection):
            return self._core.run(shared, call, tries)
