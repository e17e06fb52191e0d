"""
Parents and children: fan-out, the parents' bookkeeping, cancelling a family.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from jobstore.errors import InvalidTransition
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.model import Job
from jobstore.postgres.operations.read import get
from jobstore.postgres.session import Session
from jobstore.postgres.statements import families as sql

__all__ = ["cancel", "repair_families", "tell_parents"]


def tell_parents(session: Session, ended: Iterable[tuple[str, bool]]) -> None:
    """
    Tell parents that children have ended; *ended* is (parent id, completed) of each.

    A parent that thereby fails has a parent of its own to tell, and so on up.
    """
    news = list(ended)
    while news:
        count = Counter(parent_id for parent_id, _ in news)
        failed = Counter(parent_id for parent_id, completed in news if not completed)
        rows = session.rows(
            sql.TELL_PARENTS,
            parent_ids=list(count),
            ended=list(count.values()),
            failed=[failed[parent_id] for parent_id in count],
        )
        news = _told_in_turn(session, rows)


def cancel(session: Session, job_id: str, *, reason: str) -> Job:
    job = get(session, job_id)
    if job.status is JobStatus.CANCELLED:
        return job
    if job.status in TERMINAL:
        raise InvalidTransition(job_id, job.status, JobStatus.CANCELLED)
    told: list[tuple[str, bool]] = []
    # Once more after the head itself is cancelled: a holder may have fanned it out
    # in between. Nobody can add to a cancelled parent, so this ends.
    while levels := _open_levels(session, job_id):
        for members in levels:
            for member, parent_id, was in session.rows(
                sql.CANCEL, job_ids=members, reason=reason or None
            ):
                if member != job_id:
                    continue
                if was not in TERMINAL and parent_id is not None:
                    told.append((parent_id, False))
    job = get(session, job_id)
    if job.status is not JobStatus.CANCELLED:
        # It ended in the meantime. What was cancelled below it is rolled back.
        raise InvalidTransition(job_id, job.status, JobStatus.CANCELLED)
    tell_parents(session, told)
    return job


def repair_families(session: Session, limit: int) -> int:
    waiting = [row[0] for row in session.rows(sql.LOCK_WAITING, limit=limit)]
    if not waiting:
        return 0
    rows = session.rows(sql.RECOUNT, parent_ids=waiting)
    tell_parents(session, _told_in_turn(session, rows))
    return len(rows)


def _open_levels(session: Session, job_id: str) -> list[list[str]]:
    """
    Return what is left to cancel, deepest level first: children before parents.
    """
    levels: dict[int, list[str]] = {}
    for member, depth, is_open in session.rows(sql.FAMILY_BELOW, job_id=job_id):
        if is_open:
            levels.setdefault(depth, []).append(member)
    return [levels[depth] for depth in sorted(levels, reverse=True)]


def _told_in_turn(
    session: Session, rows: Sequence[tuple[str | None, bool, str | None]]
) -> list[tuple[str, bool]]:
    """
    Note the parents that are queued again; return whom the failed ones must tell.
    """
    for _, _, queue in rows:
        if queue is not None:
            session.queued(queue)
    return [
        (grandparent_id, False)
        for grandparent_id, failed_now, _ in rows
        if failed_now and grandparent_id is not None
    ]
