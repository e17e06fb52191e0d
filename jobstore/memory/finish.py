"""
Ending attempts: set_results, and what to say of a lease that is lost.
"""

from collections.abc import Sequence
from datetime import timedelta

from jobstore.errors import JobCancelled, JobNotFound, LeaseLost
from jobstore.lifecycle import JobStatus
from jobstore.memory.families import tell_parents
from jobstore.memory.state import State
from jobstore.model import (
    AttemptOutcome,
    Completed,
    Failed,
    Job,
    Lease,
    Outcome,
    Released,
    Snoozed,
)

__all__ = ["lost_lease", "set_results"]

Answer = JobStatus | LeaseLost | JobNotFound


def set_results(state: State, endings: Sequence[tuple[Lease, Outcome]]) -> list[Answer]:
    written: dict[tuple[str, int], JobStatus] = {}
    ended: list[tuple[str, bool]] = []
    for lease, outcome in endings:
        job = state.held(lease.token)
        if job is None:
            continue
        after = _end(state, job, outcome)
        written[lease.token] = after.status
        if after.finished_at is not None and after.parent_id is not None:
            ended.append((after.parent_id, after.status is JobStatus.COMPLETED))
    tell_parents(state, ended)
    return [
        written.get(lease.token) or _explain(state, lease, outcome)
        for lease, outcome in endings
    ]


def lost_lease(state: State, lease: Lease) -> Exception:
    """
    Say why *lease* is not the job's present one.
    """
    answer = _explain(state, lease, Released())
    if isinstance(answer, JobStatus):
        return LeaseLost(lease.job_id, lease.fence, "its attempt has ended")
    return answer


def _end(state: State, job: Job, outcome: Outcome) -> Job:
    if isinstance(outcome, Completed):
        return state.change(
            job,
            status=JobStatus.COMPLETED,
            result=outcome.result,
            error_code=None,
            error_message=None,
            heartbeat_at=None,
            finished_at=state.now,
        )
    if isinstance(outcome, Failed):
        return _fail(state, job, outcome)
    if isinstance(outcome, Snoozed):
        available_at = state.now + outcome.delay
        word, delay = AttemptOutcome.SNOOZED, outcome.delay
    else:
        available_at = job.available_at
        word, delay = AttemptOutcome.RELEASED, timedelta(0)
    after = state.change(
        job,
        status=JobStatus.SCHEDULED if delay else JobStatus.QUEUED,
        available_at=available_at,
        attempts=max(job.attempts - 1, 0),
        heartbeat_at=None,
    )
    state.record(after, word, attempt=after.attempts + 1)
    return after


def _fail(state: State, job: Job, outcome: Failed) -> Job:
    retry_in = outcome.retry_in
    if retry_in is None:
        retry_in = state.settings.retry.delay(job.attempts)
    is_over = outcome.final or job.attempts >= job.max_attempts
    if is_over:
        status = JobStatus.FAILED
    else:
        status = JobStatus.SCHEDULED if retry_in else JobStatus.QUEUED
    after = state.change(
        job,
        status=status,
        finished_at=state.now if is_over else None,
        available_at=job.available_at if is_over else state.now + retry_in,
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        heartbeat_at=None,
    )
    state.record(
        after,
        AttemptOutcome.FAILED,
        error_code=outcome.error_code,
        error_message=outcome.error_message,
    )
    return after


def _explain(state: State, lease: Lease, outcome: Outcome) -> Answer:
    """
    Tell a replay of what was written before from a lease that is lost.
    """
    job = state.jobs.get(lease.job_id)
    if job is None:
        return JobNotFound(lease.job_id)
    if _is_replay(state, job, lease, outcome):
        # What the first call answered, as far as it can be told by now.
        is_latest = job.fence == lease.fence or isinstance(outcome, Completed)
        return job.status if is_latest else JobStatus.QUEUED
    if job.status is JobStatus.CANCELLED and job.fence == lease.fence:
        return JobCancelled(lease.job_id, lease.fence, "the job was cancelled")
    is_held = job.heartbeat_at is not None
    now = f"held under fence {job.fence}" if is_held else job.status
    return LeaseLost(lease.job_id, lease.fence, f"the job is {now}")


def _is_replay(state: State, job: Job, lease: Lease, outcome: Outcome) -> bool:
    if isinstance(outcome, Completed):
        return (job.status, job.fence, job.result) == (
            JobStatus.COMPLETED,
            lease.fence,
            outcome.result,
        )
    past = state.attempt_under(lease.job_id, lease.fence)
    if past is None:
        return False
    if isinstance(outcome, Failed):
        return (past.outcome, past.error_code, past.error_message) == (
            AttemptOutcome.FAILED,
            outcome.error_code,
            outcome.error_message,
        )
    word = (
        AttemptOutcome.SNOOZED
        if isinstance(outcome, Snoozed)
        else AttemptOutcome.RELEASED
    )
    return past.outcome is word
