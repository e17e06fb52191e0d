"""
Submitting: create, create_many, fan_out.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from jobstore.errors import (
    IdempotencyConflict,
    InvalidParent,
    JobPruned,
)
from jobstore.ids import new_id
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.memory.finish import lost_lease
from jobstore.memory.state import Key, State
from jobstore.model import (
    AttemptOutcome,
    ChildFailure,
    Created,
    Job,
    Lease,
    NewJob,
    Payload,
)

__all__ = ["create", "create_many", "fan_out"]


def create(state: State, new: NewJob, job_id: str | None, *, strict: bool) -> Created:
    if job_id is not None and (job := state.jobs.get(job_id)):
        return _repeated(state, new, job)
    return create_many(state, [new], strict=strict, job_id=job_id)[0]


def create_many(
    state: State, new: Sequence[NewJob], *, strict: bool, job_id: str | None = None
) -> list[Created]:
    for child in new:
        if child.parent_id is not None:
            _check_parent(state, child, child.parent_id)
    created = [_create_one(state, one, job_id, strict=strict) for one in new]
    for one in created:
        if one.created and one.job.parent_id is not None:
            parent = state.job(one.job.parent_id)
            state.change(
                parent,
                children_total=parent.children_total + 1,
                children_open=parent.children_open + 1,
            )
    return created


def fan_out(
    state: State,
    lease: Lease,
    children: Sequence[NewJob],
    *,
    on_child_failure: ChildFailure,
) -> list[Created]:
    parent = state.held(lease.token)
    if parent is None:
        return _fanned_out_before(state, lease, children)
    own = [_of_parent(child, parent) for child in children]
    created = [_create_one(state, child, None, strict=False) for child in own]
    for one in created:
        if one.job.parent_id != parent.id:
            raise IdempotencyConflict(one.job.id, one.job.tenant)
    added = sum(one.created for one in created)
    still_open = parent.children_open + added
    after = state.change(
        parent,
        status=JobStatus.WAITING if still_open else JobStatus.QUEUED,
        children_total=parent.children_total + added,
        children_open=still_open,
        on_child_failure=on_child_failure,
        attempts=max(parent.attempts - 1, 0),
        heartbeat_at=None,
    )
    state.record(after, AttemptOutcome.WAITING, attempt=after.attempts + 1)
    return created


def _repeated(state: State, new: NewJob, job: Job) -> Created:
    """
    Answer a create that names the id of a job that is there.
    """
    stored = state.payloads.get(job.id)
    same = (job.tenant, job.idem_key, job.kind) == (new.tenant, new.idem_key, new.kind)
    if not same or stored != Payload(new.payload, new.content_type):
        raise IdempotencyConflict(job.id, job.tenant)
    return Created(job, created=False)


def _check_parent(state: State, new: NewJob, parent_id: str) -> None:
    parent = state.jobs.get(parent_id)
    if parent is None:
        raise InvalidParent(parent_id, "there is no such job")
    if parent.tenant != new.tenant:
        raise InvalidParent(parent_id, "it belongs to another tenant")
    # What was created while it went on is found all the same.
    if parent.status in TERMINAL and not _is_known(state, new):
        raise InvalidParent(parent_id, f"it is {parent.status} already")


def _is_known(state: State, new: NewJob) -> bool:
    return (new.tenant, new.idem_key or "") in state.keys


def _create_one(
    state: State, new: NewJob, job_id: str | None, *, strict: bool
) -> Created:
    if new.idem_key is not None:
        found = _find(state, new, strict=strict)
        if found is not None:
            return found
    job = _job_of(new, job_id or new_id(), state)
    state.store_job(job)
    state.put(state.payloads, job.id, Payload(new.payload, new.content_type))
    if new.idem_key is not None:
        key = Key(job.id, new.fingerprint, state.now)
        state.put(state.keys, (new.tenant, new.idem_key), key)
    return Created(job, created=True)


def _find(state: State, new: NewJob, *, strict: bool) -> Created | None:
    """
    Find the job that holds the key of *new*.
    """
    key = state.keys.get((new.tenant, new.idem_key or ""))
    if key is None:
        return None
    job = state.jobs.get(key.job_id)
    if job is None:
        raise JobPruned(key.job_id)
    matches = key.fingerprint == new.fingerprint
    if strict and not (matches and job.parent_id == new.parent_id):
        raise IdempotencyConflict(job.id, job.tenant)
    return Created(job, created=False, payload_matches=matches)


def _job_of(new: NewJob, job_id: str, state: State) -> Job:
    available_at = new.available_at or state.now + (new.delay or timedelta(0))
    return Job(
        id=job_id,
        tenant=new.tenant,
        idem_key=new.idem_key,
        queue=new.queue,
        kind=new.kind,
        job_class=new.job_class,
        status=JobStatus.SCHEDULED if available_at > state.now else JobStatus.QUEUED,
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
        created_at=state.now,
        updated_at=state.now,
        available_at=available_at,
        started_at=None,
        heartbeat_at=None,
        finished_at=None,
        worker=None,
        traceparent=new.traceparent,
    )


def _of_parent(child: NewJob, parent: Job) -> NewJob:
    if child.parent_id not in (None, parent.id):
        raise InvalidParent(str(child.parent_id), f"fan_out is of {parent.id}")
    if child.tenant != parent.tenant:
        raise InvalidParent(parent.id, "it belongs to another tenant")
    return replace(child, parent_id=parent.id)


def _fanned_out_before(
    state: State, lease: Lease, children: Sequence[NewJob]
) -> list[Created]:
    """
    Find what an earlier call with this lease created, or say that it is lost.
    """
    past = state.attempt_under(lease.job_id, lease.fence)
    parked = past is not None and past.outcome is AttemptOutcome.WAITING
    if not parked or not all(child.idem_key for child in children):
        raise lost_lease(state, lease)
    found = [_find(state, child, strict=False) for child in children]
    if any(one is None or one.job.parent_id != lease.job_id for one in found):
        raise lost_lease(state, lease)
    return [one for one in found if one is not None]
