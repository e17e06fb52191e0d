"""
`PostgresStore`: the synchronous store. What the verbs promise: `jobstore.store.Store`.
"""

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypedDict, TypeVar

from sqlalchemy import URL, Engine

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
    check_flag,
    check_text,
)
from jobstore.outcomes import Outcomes
from jobstore.postgres.core import Core, Tries, only_completions
from jobstore.postgres.engine import (
    Limits,
    adopt,
    own_connection,
    recreated,
    shared_connection,
)
from jobstore.postgres.engine import engine as make_engine
from jobstore.postgres.enlisted import Enlisted, Transaction
from jobstore.postgres.notify import Listener, Notifier, connect_apart
from jobstore.postgres.operations.upkeep import OLDEST, Cursor
from jobstore.postgres.session import Call, Executor, OwnConnection, SharedConnection
from jobstore.postgres.translate import DATABASE_ERRORS
from jobstore.retry import RetryPolicy
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES

__all__ = ["PostgresStore"]

T = TypeVar("T")


class Settings(TypedDict):
    """
    What a store was made with, beside its target.
    """

    schema: str
    retry: RetryPolicy
    max_payload_bytes: int
    limits: Limits
    pool_size: int
    through_pooler: bool
    wake_ups: bool


class PostgresStore(Outcomes):
    """
    A durable job store in PostgreSQL.

    Safe to share between threads, and to use in a forked child: it drops the
    connections it had and makes its own.

    Args:
        target: A DSN, or an engine of yours (for psycopg 3). On your engine each verb
            is a transaction of its own at READ COMMITTED, whatever the engine's
            setting; with a DSN most verbs are a single statement, which is faster.
        schema: Where the tables are; any legal name.
        retry: How long a failed job waits for its next attempt.
        max_payload_bytes: Largest payload or result, up to about 1 GB.
        limits: How long the parts of a call may take.
        pool_size: Most connections at once; for a DSN only. A worker needs one for
            each of its loops, four, beside what handlers use.
        through_pooler: The DSN leads to a pooler in transaction mode: nothing is
            prepared or set for a session.
        wake_ups: Tell idle workers of new jobs, by a NOTIFY after the commit.
            Without, or where it can't be sent, they find them by polling.

    Raises:
        InvalidInput: An argument does not fit. No connection is made here.
    """

    def __init__(
        self,
        target: str | URL | Engine,
        *,
        schema: str = "jobstore",
        retry: RetryPolicy = RetryPolicy(),
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        limits: Limits = Limits(),
        pool_size: int = 10,
        through_pooler: bool = False,
        wake_ups: bool = True,
    ) -> None:
        check_flag("wake_ups", wake_ups)
        self._settings: Settings = {
            "schema": schema,
            "retry": retry,
            "max_payload_bytes": max_payload_bytes,
            "limits": limits,
            "pool_size": pool_size,
            "through_pooler": through_pooler,
            "wake_ups": wake_ups,
        }
        self._is_foreign = isinstance(target, Engine)
        self._closes_engine = not self._is_foreign
        self._core = Core(
            schema=schema,
            retry=retry,
            max_payload_bytes=max_payload_bytes,
            limits=limits,
            sets_limits=self._is_foreign or through_pooler,
        )
        self._engine = (
            target
            if isinstance(target, Engine)
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
        if self._is_foreign:
            adopt(self._transactions)
        self._calls = self._core.calls
        self._connect = partial(connect_apart, self._engine)
        self._notifier = (
            Notifier(self._connect, self._core.channel) if wake_ups else None
        )

    def within(self, transaction: Transaction) -> Enlisted:
        """
        Lend the submitting and finishing verbs to a transaction of yours.

        What they do is committed, or rolled back, with your own rows. Each runs in
        a savepoint: an error it raises (a lost lease, a strict conflict) leaves your
        transaction usable. It is bounded by the store's lock timeout. Workers find
        the jobs by polling; call `wake` after your commit if it should be sooner.

        Raises:
            InvalidInput: It is neither a Connection nor a Session; or, at the first
                verb, it is in autocommit mode: there is no transaction to be part of.
        """
        return Enlisted(self._core, transaction)

    def wake(self, *queues: str) -> None:
        """
        Tell idle workers that *queues* have work. A hint; returns at once.

        Raises:
            InvalidInput: One of them is no name of a queue; none is told.
        """
        checked = [check_text("queue", queue) for queue in queues]
        if self._notifier is not None:
            for queue in checked:
                self._notifier.wake(queue)

    # -- submit ----------------------------------------------------------------

    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        return self._run(self._calls.create(new, strict=strict, job_id=job_id))

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        return self._run(self._calls.create_many(new, strict=strict))

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        return self._run(
            self._calls.fan_out(lease, children, on_child_failure=on_child_failure)
        )

    # -- finish ----------------------------------------------------------------

    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        endings = self._calls.check_endings(outcomes)
        if not endings:
            return []
        written: set[tuple[str, int]] = set()
        if plain := only_completions(endings):
            written = self._run(self._calls.complete_orphans(plain))
        if len(written) == len(endings):
            return [JobStatus.COMPLETED] * len(endings)
        rest = [end for end in endings if end[0].token not in written]
        others = self._run(self._calls.set_results(rest))
        answers = iter(others)
        return [
            JobStatus.COMPLETED if end[0].token in written else next(answers)
            for end in endings
        ]

    # -- read ------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """See `Store.get`."""
        return self._run(self._calls.get(job_id))

    def payload(self, job_id: str) -> Payload:
        """See `Store.payload`."""
        return self._run(self._calls.payload(job_id))

    def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """See `Store.list_children`."""
        return self._run(
            self._calls.list_children(
                parent_id, after=after, limit=limit, with_result=with_result
            )
        )

    def attempts(self, job_id: str) -> list[Attempt]:
        """See `Store.attempts`."""
        return self._run(self._calls.attempts(job_id))

    def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """See `Store.stats`."""
        return self._run(self._calls.stats(window))

    def list(
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
        return self._run(
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

    def check_schema(self) -> str:
        """
        Return the schema's revision if this code works on it.

        Not needed before other calls: the first of a store looks by itself whether it
        is too old for the schema. For a start that is to fail early, and clearly.

        Raises:
            SchemaMissing, SchemaOutdated: Run ``jobstore migrate up``.
            SchemaTooNew: A newer release migrated it, and says that this one no longer
                works on it.
            StoreUnavailable: The database could not be reached.
        """
        return self._run(self._calls.check_schema())

    # -- claim -----------------------------------------------------------------

    def claim_next(
        self,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> Claim | None:
        """See `Store.claim_next`."""
        claims = self.claim(
            1, queue=queue, job_class=job_class, worker=worker, lease=lease
        )
        return claims[0] if claims else None

    def claim(
        self,
        limit: int,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> builtins.list[Claim]:
        """See `Store.claim`."""
        return self._run(
            self._calls.claim(
                limit, queue=queue, job_class=job_class, worker=worker, lease=lease
            )
        )

    def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """See `Store.heartbeat`."""
        return self._run(self._calls.heartbeat(leases))

    # -- upkeep ----------------------------------------------------------------

    def promote_due(self, *, limit: int = 1000) -> int:
        """See `Store.promote_due`."""
        return self._run(self._calls.promote_due(limit))

    def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """See `Store.reclaim_stale`."""
        call = self._calls.reclaim_stale(visibility_timeout, limit)
        total = batch = self._run(call)
        while batch.requeued + batch.failed >= limit:
            batch = self._run(call)
            total += batch
        return total

    def repair_families(self, *, limit: int = 1000) -> int:
        """See `Store.repair_families`."""
        return self._run(self._calls.repair_families(limit))

    def prune(
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
            deleted, after = self._run(
                self._calls.prune(older_than, statuses, keep_keys_for, limit, after)
            )
            total += deleted
        return total

    # -- operate ---------------------------------------------------------------

    def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """See `Store.update_status`."""
        return self._run(self._calls.update_status(job_id, fn))

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """See `Store.cancel`."""
        return self._run(self._calls.cancel(job_id, reason))

    def requeue(self, job_id: str) -> Job:
        """See `Store.requeue`."""
        return self._run(self._calls.requeue(job_id))

    # -- connect ---------------------------------------------------------------

    def listen(self, callback: Callable[[str | None], None]) -> Listener:
        """
        See `Store.listen`. The connection must not lead through a pooler.
        """
        checks.check_callable("callback", callback)
        return Listener(self._connect, self._core.channel, callback)

    def dedicated(self) -> "PostgresStore":
        """See `Store.dedicated`."""
        target = self._engine if self._is_foreign else self._engine.url
        twin = PostgresStore(
            recreated(target) if isinstance(target, Engine) else target,
            **self._settings,
        )
        twin._closes_engine = True
        return twin

    def close(self) -> None:
        """See `Store.close`. An engine that was handed in is left alone."""
        if self._notifier is not None:
            self._notifier.close()
        if self._closes_engine:
            self._engine.dispose()

    def _run(self, call: Call[T]) -> T:
        """
        Run *call* on a connection, in its own transaction if it needs one.
        """
        tries = Tries(call)
        while True:
            try:
                with self._executor(call, tries) as executor:
                    result = self._core.run(executor, call, tries)
            except DATABASE_ERRORS as error:
                verdict = tries.failed(error)
            else:
                self.wake(*tries.queues_to_wake)
                return result
            finally:
                tries.unwatch()
            # Outside the handler: the driver's error, which may quote a row, does
            # not travel along as context.
            if self._core.doubts(verdict, tries):
                continue
            if isinstance(verdict, JobstoreError):
                raise verdict
            time.sleep(verdict)

    @contextmanager
    def _executor(self, call: Call[T], tries: Tries) -> Iterator[Executor]:
        if self._is_foreign:
            with self._transactions.begin() as connection:
                shared = SharedConnection(connection)
                self._core.watch(shared.driver, tries)
                with shared_connection(connection):
                    yield shared
            return
        with own_connection(self._engine) as driver:
            self._core.watch(driver, tries)
            executor = OwnConnection(driver)
            if call.transaction or self._core.sets_limits:
                with executor.transaction():
                    yield executor
            else:
                yield executor
