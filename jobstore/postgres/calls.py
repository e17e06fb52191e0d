"""
The verbs as values: arguments checked, operation chosen, rules of repeating stated.

Both stores, and a caller's own transaction, run these; what differs between them is
only how a connection is had.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial

from jobstore import checks
from jobstore.ids import known_id, new_id, new_ids, process_name
from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import (
    Attempt,
    ChildFailure,
    Claim,
    Completed,
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
from jobstore.postgres.operations import claim as claiming
from jobstore.postgres.operations import create as creating
from jobstore.postgres.operations import families, operate, read, upkeep
from jobstore.postgres.operations import finish as finishing
from jobstore.postgres.operations.fan_out import fan_out
from jobstore.postgres.session import Call, Rules
from jobstore.postgres.window import require

__all__ = ["Calls"]


class Calls:
    """
    Makes a `Call` of each verb, for one store.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._promotion = claiming.Promotion()

    # -- submit ----------------------------------------------------------------

    def create(self, new: NewJob, *, strict: bool, job_id: str | None) -> Call[Created]:
        checks.check_new(new, self._rules.max_payload_bytes)
        chosen = new_id() if job_id is None else known_id(job_id)
        run = partial(
            creating.create,
            new=new,
            job_id=chosen,
            strict=check_flag("strict", strict),
            may_exist=job_id is not None,
        )
        return Call(run, transaction=new.parent_id is not None, job_id=chosen)

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool
    ) -> Call[list[Created]]:
        jobs = checks.check_new_jobs(new, self._rules.max_payload_bytes)
        run = partial(
            creating.create_many,
            new=jobs,
            job_ids=new_ids(len(jobs)),
            strict=check_flag("strict", strict),
        )
        # Of several, one may be refused after the others were inserted.
        transaction = any(one.parent_id or one.idem_key for one in jobs)
        return Call(run, transaction=transaction)

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure,
    ) -> Call[list[Created]]:
        checks.check_lease(lease)
        jobs = checks.check_new_jobs(
            children, self._rules.max_payload_bytes, "children"
        )
        run = partial(
            fan_out,
            lease=lease,
            children=jobs,
            job_ids=new_ids(len(jobs)),
            on_child_failure=checks.check_child_failure(on_child_failure),
        )
        return Call(run, transaction=True, repeatable=False)

    # -- finish ----------------------------------------------------------------

    def complete_orphans(
        self, endings: Sequence[tuple[Lease, Completed]]
    ) -> Call[set[tuple[str, int]]]:
        return Call(partial(finishing.complete_orphans, endings=endings))

    def check_endings(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[tuple[Lease, Outcome]]:
        return checks.check_endings(outcomes, self._rules.max_payload_bytes)

    def set_results(
        self, endings: Sequence[tuple[Lease, Outcome]]
    ) -> Call[list[finishing.Answer]]:
        run = partial(finishing.set_results, endings=endings, retry=self._rules.retry)
        return Call(run, transaction=True)

    # -- read ------------------------------------------------------------------

    def get(self, job_id: str) -> Call[Job]:
        return Call(partial(read.get, job_id=known_id(job_id)), writes=False)

    def payload(self, job_id: str) -> Call[Payload]:
        return Call(partial(read.payload, job_id=known_id(job_id)), writes=False)

    def attempts(self, job_id: str) -> Call[list[Attempt]]:
        return Call(partial(read.attempts, job_id=known_id(job_id)), writes=False)

    def list_jobs(
        self,
        *,
        tenant: str | None,
        queue: str | None,
        kind: str | None,
        job_class: JobClass | None,
        status: JobStatus | Iterable[JobStatus] | None,
        worker: str | None,
        error_code: str | None,
        idem_key: str | None,
        after: str | None,
        oldest_first: bool,
        limit: int,
        with_result: bool,
    ) -> Call[list[Job]]:
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
            filters["job_class"] = str(checks.check_job_class(job_class))
        run = partial(
            read.list_jobs,
            filters=filters,
            statuses=checks.check_statuses(status),
            after=None if after is None else known_id(after, "after"),
            oldest_first=check_flag("oldest_first", oldest_first),
            limit=checks.check_limit(limit),
            with_result=check_flag("with_result", with_result),
        )
        return Call(run, writes=False)

    def list_children(
        self, parent_id: str, *, after: str | None, limit: int | None, with_result: bool
    ) -> Call[list[Job]]:
        run = partial(
            read.list_children,
            parent_id=known_id(parent_id, "parent_id"),
            after=None if after is None else known_id(after, "after"),
            limit=None if limit is None else checks.check_limit(limit),
            with_result=check_flag("with_result", with_result),
        )
        return Call(run, writes=False)

    def stats(self, window: timedelta) -> Call[list[QueueStats]]:
        check_duration("window", window, shortest=timedelta(0))
        return Call(partial(read.stats, window=window), writes=False)

    def check_schema(self) -> Call[str]:
        return Call(require, writes=False)

    # -- claim -----------------------------------------------------------------

    def claim(
        self,
        limit: int,
        *,
        queue: str,
        job_class: JobClass | None,
        worker: str | None,
        lease: timedelta | None,
    ) -> Call[list[Claim]]:
        run = partial(
            claiming.claim,
            promotion=self._promotion,
            limit=checks.check_limit(limit),
            queue=check_text("queue", queue),
            job_class=None if job_class is None else checks.check_job_class(job_class),
            worker=process_name() if worker is None else check_text("worker", worker),
            lease=checks.check_lease_time(lease),
        )
        return Call(run)

    def heartbeat(self, leases: Sequence[Lease]) -> Call[Heartbeat]:
        checked = checks.check_leases(leases)
        return Call(partial(claiming.heartbeat, leases=checked))

    # -- upkeep ----------------------------------------------------------------

    def promote_due(self, limit: int) -> Call[int]:
        checks.check_limit(limit)
        return Call(partial(claiming.promote_due, limit=limit))

    def reclaim_stale(
        self, visibility_timeout: timedelta, limit: int
    ) -> Call[Reclaimed]:
        check_duration("visibility_timeout", visibility_timeout, shortest=timedelta(0))
        run = partial(
            upkeep.reclaim_stale,
            visibility_timeout=visibility_timeout,
            limit=checks.check_limit(limit),
        )
        return Call(run, transaction=True)

    def repair_families(self, limit: int) -> Call[int]:
        run = partial(families.repair_families, limit=checks.check_limit(limit))
        return Call(run, transaction=True)

    def prune(
        self,
        older_than: timedelta,
        status: Iterable[JobStatus],
        keep_keys_for: timedelta,
        limit: int,
        after: upkeep.Cursor,
    ) -> Call[tuple[int, upkeep.Cursor | None]]:
        check_duration("older_than", older_than, shortest=timedelta(seconds=1))
        run = partial(
            upkeep.prune,
            older_than=older_than,
            statuses=checks.check_terminal(status),
            keep_keys_for=check_duration(
                "keep_keys_for", keep_keys_for, shortest=timedelta(0)
            ),
            limit=checks.check_limit(limit),
            after=after,
        )
        return Call(run, transaction=True)

    # -- operate ---------------------------------------------------------------

    def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Call[Job]:
        checks.check_callable("fn", fn)
        run = partial(
            operate.update_status,
            job_id=known_id(job_id),
            fn=fn,
            max_result_bytes=self._rules.max_payload_bytes,
        )
        return Call(run, transaction=True, repeatable=False)

    def cancel(self, job_id: str, reason: str) -> Call[Job]:
        run = partial(
            families.cancel,
            job_id=known_id(job_id),
            reason=checks.recordable_reason(reason),
        )
        return Call(run, transaction=True)

    def requeue(self, job_id: str) -> Call[Job]:
        run = partial(operate.requeue, job_id=known_id(job_id))
        return Call(run, transaction=True, repeatable=False)
