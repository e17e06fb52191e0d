"""
Claiming, heartbeats, and the sweeps: due jobs, expired leases, old families.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from jobstore.lifecycle import JobClass, JobStatus
from jobstore.memory.families import tell_parents
from jobstore.memory.state import State
from jobstore.model import AttemptOutcome, Claim, Heartbeat, Job, Lease, Reclaimed

__all__ = ["claim", "heartbeat", "promote_due", "prune", "reclaim_stale"]

_EXHAUSTED = "ATTEMPTS_EXHAUSTED"


def claim(
    state: State,
    limit: int,
    *,
    queue: str,
    job_class: JobClass | None,
    worker: str,
    lease: timedelta | None,
) -> list[Claim]:
    promote_due(state, None)
    claims: list[Claim] = []
    for one in JobClass if job_class is None else (job_class,):
        while len(claims) < limit and (job := state.next_ready(queue, one.rank)):
            taken = state.change(
                job,
                status=JobStatus.PROCESSING,
                attempts=job.attempts + 1,
                fence=job.fence + 1,
                worker=worker,
                started_at=state.now,
                heartbeat_at=state.now,
            )
            if lease is not None:
                state.put(state.leases, taken.id, lease)
            claims.append(Claim(taken))
    return claims


def heartbeat(state: State, leases: Sequence[Lease]) -> Heartbeat:
    held, cancelled = set(), set()
    for lease in leases:
        job = state.jobs.get(lease.job_id)
        if job is None or job.fence != lease.fence:
            continue
        if job.heartbeat_at is not None:
            state.change(job, heartbeat_at=state.now)
            held.add(lease)
        elif job.status is JobStatus.CANCELLED:
            cancelled.add(lease)
    return Heartbeat(
        held=frozenset(held),
        lost=frozenset(set(leases) - held - cancelled),
        cancelled=frozenset(cancelled),
    )


def promote_due(state: State, limit: int | None) -> int:
    promoted = 0
    while (limit is None or promoted < limit) and (job := state.next_due()):
        state.change(job, status=JobStatus.QUEUED)
        promoted += 1
    return promoted


def reclaim_stale(state: State, visibility_timeout: timedelta) -> Reclaimed:
    requeued = 0
    failed: list[Job] = []
    for job in state.in_status(JobStatus.PROCESSING):
        timeout = max(visibility_timeout, state.leases.get(job.id, timedelta(0)))
        if job.heartbeat_at is not None and job.heartbeat_at > state.now - timeout:
            continue
        if job.attempts >= job.max_attempts:
            message = (
                f"the worker went silent on the last of {job.max_attempts} attempts"
            )
            after = _exhaust(state, job, message)
            failed.append(after)
            state.record(
                after,
                AttemptOutcome.LEASE_EXPIRED,
                error_code=_EXHAUSTED,
                error_message=message,
            )
        else:
            after = state.change(job, status=JobStatus.QUEUED, heartbeat_at=None)
            requeued += 1
            state.record(after, AttemptOutcome.LEASE_EXPIRED)
    # Queued, but with no attempt left: only a lowered limit makes these.
    for job in state.in_status(JobStatus.QUEUED):
        if job.attempts >= job.max_attempts:
            message = f"queued with no attempt left of {job.max_attempts}"
            failed.append(_exhaust(state, job, message))
    tell_parents(
        state, [(job.parent_id, False) for job in failed if job.parent_id is not None]
    )
    return Reclaimed(requeued=requeued, failed=len(failed))


def prune(
    state: State,
    older_than: timedelta,
    statuses: Sequence[JobStatus],
    keep_keys_for: timedelta,
) -> int:
    """
    Delete whole families that ended long ago; return how many jobs.
    """
    before = state.now - older_than
    deleted = 0
    for status in statuses:
        for root in state.in_status(status):
            if root.parent_id is not None:
                continue
            family = [root]
            for member in family:  # grows as it goes
                family.extend(state.children_of(member.id))
            if all(
                member.status in statuses
                and member.finished_at is not None
                and member.finished_at < before
                for member in family
            ):
                for member in reversed(family):
                    _delete(state, member, keep_keys_for)
                deleted += len(family)
    for name, key in list(state.keys.items()):
        if key.expires_at is not None and key.expires_at <= state.now:
            state.drop_key(name)
    return deleted


def _exhaust(state: State, job: Job, message: str) -> Job:
    return state.change(
        job,
        status=JobStatus.FAILED,
        finished_at=state.now,
        error_code=_EXHAUSTED,
        error_message=message,
        heartbeat_at=None,
    )


def _delete(state: State, job: Job, keep_keys_for: timedelta) -> None:
    state.delete_job(job)
    if job.idem_key is None:
        return
    name = (job.tenant, job.idem_key)
    key = state.keys.get(name)
    if key is None or key.job_id != job.id:
        return
    expires_at = key.created_at + keep_keys_for
    if expires_at > state.now:
        state.put(state.keys, name, replace(key, expires_at=expires_at))
    else:
        state.drop_key(name)
