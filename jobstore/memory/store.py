"""
`MemoryStore`: the store for development and tests. What the verbs promise:
`jobstore.store.Store`.
"""

import builtins
import copy
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from jobstore import checks
from jobstore.errors import JobNotFound, LeaseLost
from jobstore.ids import known_id, process_name
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.memory import claim as claiming
from jobstore.memory import create as creating
from jobstore.memory import families, operate, read
from jobstore.memory import finish as finishing
from jobstore.memory.state import Settings, State, utc_now
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
    check_duration,
    check_flag,
    check_text,
)
from jobstore.outcomes import Outcomes
from jobstore.retry import RetryPolicy
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES

__all__ = ["Listener", "MemoryStore"]


class Listener:
    """
    An ongoing `MemoryStore.listen`.
    """

    def __init__(self, state: State, callback: Callable[[str | None], None]) -> None:
        self._state = state
        state.listeners[self] = callback

    def close(self) -> None:
        """
        Stop calling back. Twice is fine.
        """
        self._state.listeners.pop(self, None)


class MemoryStore(Outcomes):
    """
    A job store in the memory of one process, for development, tests and examples.

    It keeps every promise of the contract but one: when the process ends, its jobs
    are gone. Safe to share between threads; a forked child has a copy of its own.

    Args:
        retry: How long a failed job waits for its next attempt.
        max_payload_bytes: Largest payload or result, up to about 1 GB.
        clock: What stands for the database's clock; must return aware UTC. None: the
            clock of this machine.

    Raises:
        InvalidInput: An argument does not fit.
    """

    def __init__(
        self,
        *,
        retry: RetryPolicy = RetryPolicy(),
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = Settings(
            retry=retry,
            max_payload_bytes=max_payload_bytes,
            clock=utc_now if clock is None else clock,
        )
        self._state = State(settings)
        self._max_bytes = max_payload_bytes

    # -- submit ----------------------------------------------------------------

    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        checks.check_new(new, self._max_bytes)
        check_flag("strict", strict)
        chosen = None if job_id is None else known_id(job_id)
        with self._state.transaction() as state:
            return creating.create(state, new, chosen, strict=strict)

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        jobs = checks.check_new_jobs(new, self._max_bytes)
        check_flag("strict", strict)
        with self._state.transaction() as state:
            return creating.create_many(state, jobs, strict=strict)

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        checks.check_lease(lease)
        jobs = checks.check_new_jobs(children, self._max_bytes, "children")
        policy = checks.check_child_failure(on_child_failure)
        with self._state.transaction() as state:
            return creating.fan_out(state, lease, jobs, on_child_failure=policy)

    # -- finish ----------------------------------------------------------------

    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        endings = checks.check_endings(outcomes, self._max_bytes)
        with self._state.transaction() as state:
            return finishing.set_results(state, endings)

    # -- read ------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """See `Store.get`."""
        known = known_id(job_id)
        with self._state.transaction() as state:
            return state.job(known)

    def payload(self, job_id: str) -> Payload:
        """See `Store.payload`."""
        known = known_id(job_id)
        with self._state.transaction() as state:
            return read.payload(state, known)

    def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """See `Store.list_children`."""
        known = known_id(parent_id, "parent_id")
        from_here = None if after is None else known_id(after, "after")
        if limit is not None:
            checks.check_limit(limit)
        check_flag("with_result", with_result)
        with self._state.transaction() as state:
            return read.list_children(
                state, known, after=from_here, limit=limit, with_result=with_result
            )

    def attempts(self, job_id: str) -> list[Attempt]:
        """See `Store.attempts`."""
        known = known_id(job_id)
        with self._state.transaction() as state:
            return [*state.attempts.get(state.job(known).id, ())]

    def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """See `Store.stats`."""
        check_duration("window", window, shortest=timedelta(0))
        with self._state.transaction() as state:
            return read.stats(state, window)

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
        texts = {
            "tenant": tenant,
            "queue": queue,
            "kind": kind,
            "worker": worker,
            "error_code": error_code,
            "idem_key": idem_key,
        }
        filters = {
            name: check_text(name, value)
            for name, value in texts.items()
            if value is not None
        }
        if job_class is not None:
            filters["job_class"] = checks.check_job_class(job_class)
        statuses = checks.check_statuses(status)
        with self._state.transaction() as state:
            return read.list_jobs(
                state,
                filters,
                statuses,
                after=None if after is None else known_id(after, "after"),
                oldest_first=check_flag("oldest_first", oldest_first),
                limit=checks.check_limit(limit),
                with_result=check_flag("with_result", with_result),
            )

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
        checks.check_limit(limit)
        check_text("queue", queue)
        wanted = None if job_class is None else checks.check_job_class(job_class)
        name = process_name() if worker is None else check_text("worker", worker)
        checks.check_lease_time(lease)
        with self._state.transaction() as state:
            return claiming.claim(
                state,
                limit,
                queue=queue,
                job_class=wanted,
                worker=name,
                lease=lease,
            )

    def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """See `Store.heartbeat`."""
        checked = checks.check_leases(leases)
        with self._state.transaction() as state:
            return claiming.heartbeat(state, checked)

    # -- upkeep ----------------------------------------------------------------

    def promote_due(self, *, limit: int = 1000) -> int:
        """See `Store.promote_due`."""
        checks.check_limit(limit)
        with self._state.transaction() as state:
            return claiming.promote_due(state, limit)

    def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """See `Store.reclaim_stale`."""
        check_duration("visibility_timeout", visibility_timeout, shortest=timedelta(0))
        checks.check_limit(limit)
        with self._state.transaction() as state:
            return claiming.reclaim_stale(state, visibility_timeout)

    def repair_families(self, *, limit: int = 1000) -> int:
        """See `Store.repair_families`."""
        checks.check_limit(limit)
        with self._state.transaction() as state:
            return families.repair_families(state, limit)

    def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """See `Store.prune`."""
        check_duration("older_than", older_than, shortest=timedelta(seconds=1))
        check_duration("keep_keys_for", keep_keys_for, shortest=timedelta(0))
        statuses = checks.check_terminal(status)
        checks.check_limit(limit)
        with self._state.transaction() as state:
            return claiming.prune(state, older_than, statuses, keep_keys_for)

    # -- operate ---------------------------------------------------------------

    def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """See `Store.update_status`."""
        known = known_id(job_id)
        checks.check_callable("fn", fn)
        with self._state.transaction() as state:
            return operate.update_status(state, known, fn)

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """See `Store.cancel`."""
        known = known_id(job_id)
        told = checks.recordable_reason(reason)
        with self._state.transaction() as state:
            return families.cancel(state, known, reason=told)

    def requeue(self, job_id: str) -> Job:
        """See `Store.requeue`."""
        known = known_id(job_id)
        with self._state.transaction() as state:
            return operate.requeue(state, known)

    # -- connect ---------------------------------------------------------------

    def listen(self, callback: Callable[[str | None], None]) -> "Listener":
        """
        See `Store.listen`. The callback comes from the thread that made the work.
        """
        checks.check_callable("callback", callback)
        return Listener(self._state, callback)

    def dedicated(self) -> "MemoryStore":
        """
        See `Store.dedicated`.
        """
        return copy.copy(self)

    def close(self) -> None:
        """
        See `Store.close`. There is nothing to give back.
        """
