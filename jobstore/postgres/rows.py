"""
From rows to values: the only place that knows the order of a result's columns.
"""

from collections.abc import Sequence
from dataclasses import fields, make_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import Attempt, AttemptOutcome, ChildFailure, Job, NewJob

__all__ = [
    "JOB_COLUMNS",
    "JOB_COLUMNS_WITHOUT_RESULT",
    "to_attempt",
    "to_job",
    "to_new_job",
]

_NAMES = (
    "id",
    "tenant",
    "idem_key",
    "queue",
    "kind",
    "job_class",
    "status",
    "attempts",
    "max_attempts",
    "fence",
    "parent_id",
    "pages",
    "on_child_failure",
    "children_total",
    "children_open",
    "children_failed",
    "result",
    "error_code",
    "error_message",
    "created_at",
    "updated_at",
    "available_at",
    "started_at",
    "heartbeat_at",
    "finished_at",
    "worker",
    "traceparent",
)

JOB_COLUMNS = ", ".join(f"job.{name}" for name in _NAMES)
JOB_COLUMNS_WITHOUT_RESULT = JOB_COLUMNS.replace("job.result", "NULL::bytea")

_NO_TIME = timedelta(0)

# Plain look-ups: an Enum call for each cell costs as much as the rest of a row.
_STATUS = {str(status): status for status in JobStatus}
_CLASS = {str(job_class): job_class for job_class in JobClass}
_CHILD_FAILURE = {str(policy): policy for policy in ChildFailure}

# A frozen dataclass sets each of its many fields by a call, which takes five times as
# long as making one that is not frozen. So a job is made as a draft of the same slots,
# and frozen by becoming a Job; nobody has seen it before.
_Draft: Any = make_dataclass("_Draft", [one.name for one in fields(Job)], slots=True)


def _frozen(draft: Any) -> Job:
    draft.__class__ = Job
    job: Job = draft
    return job


def to_job(row: Sequence[Any]) -> Job:
    """
    Make a job of a row of `JOB_COLUMNS`.
    """
    draft = _Draft(
        id=row[0],
        tenant=row[1],
        idem_key=row[2],
        queue=row[3],
        kind=row[4],
        job_class=_CLASS[row[5]],
        status=_STATUS[row[6]],
        attempts=row[7],
        max_attempts=row[8],
        fence=row[9],
        parent_id=row[10],
        pages=tuple(row[11]),
        on_child_failure=_CHILD_FAILURE[row[12]],
        children_total=row[13],
        children_open=row[14],
        children_failed=row[15],
        result=row[16],
        error_code=row[17],
        error_message=row[18],
        created_at=row[19].astimezone(UTC),
        updated_at=row[20].astimezone(UTC),
        available_at=row[21].astimezone(UTC),
        started_at=_utc(row[22]),
        heartbeat_at=_utc(row[23]),
        finished_at=_utc(row[24]),
        worker=row[25],
        traceparent=row[26],
    )
    return _frozen(draft)


def to_new_job(
    new: NewJob, job_id: str, status: JobStatus, created_at: datetime
) -> Job:
    """
    Make the job that *new* became of what only the database knew.
    """
    draft = _Draft(
        id=job_id,
        tenant=new.tenant,
        idem_key=new.idem_key,
        queue=new.queue,
        kind=new.kind,
        job_class=new.job_class,
        status=status,
        attempts=0,
        max_attempts=new.max_attempts,
        fence=0,
        parent_id=new.parent_id,
        pages=new.pages,
        on_child_failure=ChildFailure.RESUME,
        children_total=0,
        children_open=0,
        children_failed=0,
        result=None,
        error_code=None,
        error_message=None,
        created_at=created_at,
        updated_at=created_at,
        available_at=new.available_at or created_at + (new.delay or _NO_TIME),
        started_at=None,
        heartbeat_at=None,
        finished_at=None,
        worker=None,
        traceparent=new.traceparent,
    )
    return _frozen(draft)


def to_attempt(row: Sequence[Any]) -> Attempt:
    """
    Make an attempt of a row of ``ATTEMPTS``.
    """
    return Attempt(
        job_id=row[0],
        fence=row[1],
        attempt=row[2],
        worker=row[3],
        started_at=row[4].astimezone(UTC),
        ended_at=row[5].astimezone(UTC),
        outcome=AttemptOutcome(row[6]),
        error_code=row[7],
        error_message=row[8],
    )


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)
