"""
`ObservedStore`: any store, and its acts told to listeners.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

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
from jobstore.observe.telling import Telling
from jobstore.outcomes import Outcomes
from jobstore.store import Listening, Store

__all__ = ["ObservedStore"]


class ObservedStore(Outcomes):
    """
    A store whose acts are told to listeners; made by `jobstore.observe.observed`.

    What else *store* has (`within`, `wake`, `check_schema`) is there too, unwatched.
    """

    def __init__(self, store: Store, telling: Telling) -> None:
        self._store = store
        self._telling = telling

    def __getattr__(self, name: str) -> Any:
        # Only what is not found here. A private name is never asked for: a copy that is
        # not built yet would look for its own `_store` without end.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._store, name)

    # -- submit ----------------------------------------------------------------

    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        with self._telling.failures_of("create"):
            answer = self._store.create(new, strict=strict, job_id=job_id)
        self._telling.created([answer])
        return answer

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        with self._telling.failures_of("create_many"):
            answers = self._store.create_many(new, strict=strict)
        self._telling.created(answers)
        return answers

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        with self._telling.fan_out_of(lease):
            answers = self._store.fan_out(
                lease, children, on_child_failure=on_child_failure
            )
        self._telling.fanned_out(lease, answers)
        return answers

    # -- finish ----------------------------------------------------------------

    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        with self._telling.failures_of("set_results"):
            answers = self._store.set_results(outcomes)
        self._telling.finished(outcomes, answers)
        return answers

    # -- read ------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """See `Store.get`."""
        with self._telling.failures_of("get"):
            return self._store.get(job_id)

    def payload(self, job_id: str) -> Payload:
        """See `Store.payload`."""
        with self._telling.failures_of("payload"):
            return self._store.payload(job_id)

    def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """See `Store.list_children`."""
        with self._telling.failures_of("list_children"):
            return self._store.list_children(
                parent_id, after=after, limit=limit, with_result=with_result
            )

    def attempts(self, job_id: str) -> list[Attempt]:
        """See `Store.attempts`."""
        with self._telling.failures_of("attempts"):
            return self._store.attempts(job_id)

    def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """See `Store.stats`."""
        with self._telling.failures_of("stats"):
            return self._store.stats(window=window)

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
        with self._telling.failures_of("list"):
            return self._store.list(
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

    def claim_next(
        self,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> Claim | None:
        """See `Store.claim_next`."""
        with self._telling.failures_of("claim_next"):
            claim = self._store.claim_next(
                queue=queue, job_class=job_class, worker=worker, lease=lease
            )
        if claim is not None:
            self._telling.claimed([claim])
        return claim

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
        with self._telling.failures_of("claim"):
            claims = self._store.claim(
                limit, queue=queue, job_class=job_class, worker=worker, lease=lease
            )
        self._telling.claimed(claims)
        return claims

    def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """See `Store.heartbeat`."""
        with self._telling.failures_of("heartbeat"):
            answer = self._store.heartbeat(leases)
        self._telling.heard(answer)
        return answer

    # -- upkeep ----------------------------------------------------------------

    def promote_due(self, *, limit: int = 1000) -> int:
        """See `Store.promote_due`."""
        with self._telling.failures_of("promote_due"):
            jobs = self._store.promote_due(limit=limit)
        self._telling.promoted(jobs)
        return jobs

    def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """See `Store.reclaim_stale`."""
        with self._telling.failures_of("reclaim_stale"):
            answer = self._store.reclaim_stale(visibility_timeout, limit=limit)
        self._telling.reclaimed(answer)
        return answer

    def repair_families(self, *, limit: int = 1000) -> int:
        """See `Store.repair_families`."""
        with self._telling.failures_of("repair_families"):
            parents = self._store.repair_families(limit=limit)
        self._telling.repaired(parents)
        return parents

    def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """See `Store.prune`."""
        with self._telling.failures_of("prune"):
            jobs = self._store.prune(
                older_than, status=status, keep_keys_for=keep_keys_for, limit=limit
            )
        self._telling.pruned(jobs)
        return jobs

    # -- operate ---------------------------------------------------------------

    def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """See `Store.update_status`."""
        with self._telling.failures_of("update_status"):
            job = self._store.update_status(job_id, fn)
        self._telling.changed("update_status", job)
        return job

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """See `Store.cancel`."""
        with self._telling.failures_of("cancel"):
            job = self._store.cancel(job_id, reason=reason)
        self._telling.changed("cancel", job)
        return job

    def requeue(self, job_id: str) -> Job:
        """See `Store.requeue`."""
        with self._telling.failures_of("requeue"):
            job = self._store.requeue(job_id)
        self._telling.changed("requeue", job)
        return job

    # -- connect ---------------------------------------------------------------

    def listen(self, callback: Callable[[str | None], None]) -> Listening:
        """See `Store.listen`."""
        return self._store.listen(callback)

    def dedicated(self) -> "ObservedStore":
        """See `Store.dedicated`; it tells the same listeners."""
        return ObservedStore(self._store.dedicated(), self._telling)

    def close(self) -> None:
        """See `Store.close`."""
        self._store.close()
