"""
What operators do to one job.
"""

from collections.abc import Callable

from jobstore import checks
from jobstore.errors import JobNotFound
from jobstore.lifecycle import TERMINAL, JobStatus, check_reopen
from jobstore.model import AttemptOutcome, Job
from jobstore.postgres.operations.families import tell_parents
from jobstore.postgres.rows import to_job
from jobstore.postgres.session import Session
from jobstore.postgres.statements import families as family_sql
from jobstore.postgres.statements import operate as sql
from jobstore.postgres.statements import read

__all__ = ["requeue", "update_status"]

_ENDED_BY_HAND = {
    JobStatus.QUEUED: AttemptOutcome.RELEASED,
    JobStatus.SCHEDULED: AttemptOutcome.RELEASED,
    JobStatus.WAITING: AttemptOutcome.WAITING,
    JobStatus.FAILED: AttemptOutcome.FAILED,
    JobStatus.CANCELLED: AttemptOutcome.CANCELLED,
}


def update_status(
    session: Session, job_id: str, fn: Callable[[Job], Job], max_result_bytes: int
) -> Job:
    before = _locked(session, job_id)
    wanted = checks.check_update(before, fn(before), max_result_bytes)
    row = session.row(
        sql.UPDATE,
        job_id=job_id,
        status=str(wanted.status),
        queue=wanted.queue,
        job_class=str(wanted.job_class),
        max_attempts=wanted.max_attempts,
        available_at=wanted.available_at,
        result=wanted.result,
        error_code=wanted.error_code,
        error_message=wanted.error_message,
    )
    assert row is not None, "the row is locked"
    after = to_job(row)
    if before.status is JobStatus.PROCESSING and after.status in _ENDED_BY_HAND:
        outcome = _ENDED_BY_HAND[after.status]
        session.run(sql.RECORD_ATTEMPT, job_id=job_id, outcome=str(outcome))
    if after.status is JobStatus.QUEUED:
        session.queued(after.queue)
    ended = after.status in TERMINAL and before.status not in TERMINAL
    if ended and after.parent_id is not None:
        completed = after.status is JobStatus.COMPLETED
        tell_parents(session, [(after.parent_id, completed)])
    return after


def requeue(session: Session, job_id: str) -> Job:
    before = _locked(session, job_id)
    check_reopen(job_id, before.status)
    row = session.row(sql.REOPEN, job_id=job_id)
    assert row is not None, "the row is locked"
    after = to_job(row)
    session.queued(after.queue)
    if before.status in TERMINAL and before.parent_id is not None:
        session.run(family_sql.CHILD_REOPENED, parent_id=before.parent_id)
    return after


def _locked(session: Session, job_id: str) -> Job:
    row = session.row(read.GET_FOR_UPDATE, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return to_job(row)
