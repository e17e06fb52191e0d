"""
Fan-out: the children and the parking of their parent, in one transaction.
"""

from collections.abc import Sequence
from dataclasses import replace

from jobstore.errors import IdempotencyConflict, InvalidParent
from jobstore.lifecycle import JobStatus
from jobstore.model import ChildFailure, Created, Lease, NewJob
from jobstore.postgres.operations.create import find, insert
from jobstore.postgres.operations.finish import lost_lease
from jobstore.postgres.session import Session
from jobstore.postgres.statements import finish as sql

__all__ = ["fan_out"]


def fan_out(
    session: Session,
    lease: Lease,
    children: Sequence[NewJob],
    job_ids: Sequence[str],
    *,
    on_child_failure: ChildFailure,
) -> list[Created]:
    held = session.row(sql.LOCK_LEASE, job_id=lease.job_id, fence=lease.fence)
    if held is None:
        return _repeated(session, lease, children)
    own = [_of_parent(child, lease.job_id, held[0]) for child in children]
    created = insert(session, own, job_ids, strict=False) if own else []
    for one in created:
        if one.job.parent_id != lease.job_id:
            raise IdempotencyConflict(one.job.id, one.job.tenant)
    parked = session.row(
        sql.PARK,
        job_id=lease.job_id,
        children=sum(one.created for one in created),
        on_child_failure=str(on_child_failure),
    )
    if parked is not None and parked[0] == JobStatus.QUEUED:
        session.queued(parked[1])
    return created


def _of_parent(child: NewJob, parent_id: str, tenant: str) -> NewJob:
    if child.parent_id not in (None, parent_id):
        raise InvalidParent(str(child.parent_id), f"fan_out is of {parent_id}")
    if child.tenant != tenant:
        raise InvalidParent(parent_id, "it belongs to another tenant")
    return replace(child, parent_id=parent_id)


def _repeated(
    session: Session, lease: Lease, children: Sequence[NewJob]
) -> list[Created]:
    """
    Find what an earlier call with this lease created, or say that it is lost.
    """
    parked = session.row(sql.PARKED, job_id=lease.job_id, fence=lease.fence)
    if parked is None or not all(child.idem_key for child in children):
        raise lost_lease(session, lease)
    found = find(session, children) if children else []
    if any(one is None or one.job.parent_id != lease.job_id for one in found):
        raise lost_lease(session, lease)
    return [one for one in found if one is not None]
