"""
What operators do to one job.
"""

from collections.abc import Callable

from jobstore import checks
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus, check_reopen
from jobstore.memory.families import child_reopened, tell_parents
from jobstore.memory.state import State
from jobstore.model import AttemptOutcome, Job

__all__ = ["requeue", "update_status"]

_ENDED_BY_HAND = {
    JobStatus.QUEUED: AttemptOutcome.RELEASED,
    JobStatus.SCHEDULED: AttemptOutcome.RELEASED,
    JobStatus.WAITING: AttemptOutcome.WAITING,
    JobStatus.FAILED: AttemptOutcome.FAILED,
    JobStatus.CANCELLED: AttemptOutcome.CANCELLED,
}


def update_status(state: State, job_id: str, fn: Callable[[Job], Job]) -> Job:
    before = state.job(job_id)
    wanted = checks.check_update(before, fn(before), state.settings.max_payload_bytes)
    status = JobStatus(wanted.status)
    has_ended = status in TERMINAL
    after = state.change(
        before,
        status=status,
        queue=wanted.queue,
        job_class=JobClass(wanted.job_class),
        max_attempts=wanted.max_attempts,
        available_at=wanted.available_at,
        result=wanted.result,
        error_code=wanted.error_code,
        error_message=wanted.error_message,
        heartbeat_at=(before.heartbeat_at if status is JobStatus.PROCESSING else None),
        finished_at=(before.finished_at or state.now) if has_ended else None,
    )
    if before.status is JobStatus.PROCESSING and status in _ENDED_BY_HAND:
        state.record(
            after,
            _ENDED_BY_HAND[status],
            error_code=after.error_code,
            error_message=after.error_message,
        )
    ended = has_ended and before.status not in TERMINAL
    if ended and after.parent_id is not None:
        tell_parents(state, [(after.parent_id, status is JobStatus.COMPLETED)])
    return after


def requeue(state: State, job_id: str) -> Job:
    before = state.job(job_id)
    check_reopen(job_id, before.status)
    after = state.change(
        before,
        status=JobStatus.QUEUED,
        attempts=0,
        available_at=state.now,
        finished_at=None,
        error_code=None,
        error_message=None,
    )
    if before.status in TERMINAL and before.parent_id is not None:
        child_reopened(state, before.parent_id)
    return after
