"""
Reading.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta

from jobstore.errors import JobNotFound, PayloadMissing
from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import Attempt, Job, Payload, QueueStats
from jobstore.postgres.rows import to_attempt, to_job
from jobstore.postgres.session import Session
from jobstore.postgres.statements import read as sql

__all__ = ["attempts", "get", "list_children", "list_jobs", "payload", "stats"]

_BY_RANK = {job_class.rank: job_class for job_class in JobClass}


def get(session: Session, job_id: str) -> Job:
    row = session.row(sql.GET, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return to_job(row)


def payload(session: Session, job_id: str) -> Payload:
    row = session.row(sql.PAYLOAD, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    if row[0] is None:
        raise PayloadMissing(job_id)
    return Payload(bytes(row[0]), row[1])


def attempts(session: Session, job_id: str) -> list[Attempt]:
    rows = session.rows(sql.ATTEMPTS, job_id=job_id)
    if not rows:
        raise JobNotFound(job_id)
    return [to_attempt(row) for row in rows if row[0] is not None]


def list_jobs(
    session: Session,
    filters: Mapping[str, str],
    statuses: Sequence[JobStatus],
    *,
    after: str | None,
    oldest_first: bool,
    limit: int,
    with_result: bool,
) -> list[Job]:
    statement = sql.list_jobs(
        sorted(filters), statuses, oldest_first=oldest_first, with_result=with_result
    )
    rows = session.rows(statement, **filters, after=after, limit=limit)
    return [to_job(row) for row in rows]


def list_children(
    session: Session,
    parent_id: str,
    *,
    after: str | None,
    limit: int | None,
    with_result: bool,
) -> list[Job]:
    rows = session.rows(
        sql.list_children(with_result=with_result),
        parent_id=parent_id,
        after=after,
        limit=limit,
    )
    if not rows:
        get(session, parent_id)
    return [to_job(row) for row in rows]


def stats(session: Session, window: timedelta) -> list[QueueStats]:
    found: dict[tuple[str, int, JobStatus], QueueStats] = {}
    for queue, rank, word, jobs, oldest_at in session.rows(sql.STATS, window=window):
        status = JobStatus(word)
        line = QueueStats(
            queue=queue,
            job_class=_BY_RANK[rank],
            status=status,
            jobs=jobs,
            oldest_at=oldest_at.astimezone(UTC),
        )
        known = found.get((queue, rank, status))
        found[queue, rank, status] = line if known is None else _sum(known, line)
    order = list(JobStatus)
    return [
        found[key]
        for key in sorted(found, key=lambda key: (key[0], key[1], order.index(key[2])))
    ]


def _sum(one: QueueStats, other: QueueStats) -> QueueStats:
    oldest = [at for at in (one.oldest_at, other.oldest_at) if at is not None]
    return QueueStats(
        queue=one.queue,
        job_class=one.job_class,
        status=one.status,
        jobs=one.jobs + other.jobs,
        oldest_at=min(oldest),
    )
