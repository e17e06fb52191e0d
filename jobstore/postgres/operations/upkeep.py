"""
Sweeps, each call one short transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from jobstore.lifecycle import JobStatus
from jobstore.model import Reclaimed
from jobstore.postgres.operations.families import tell_parents
from jobstore.postgres.session import Session
from jobstore.postgres.statements import upkeep as sql

__all__ = ["OLDEST", "Cursor", "prune", "reclaim_stale"]

Cursor = tuple[datetime | str, str]
OLDEST: Cursor = ("-infinity", "")


def reclaim_stale(
    session: Session, visibility_timeout: timedelta, limit: int
) -> Reclaimed:
    rows = [
        *session.rows(sql.RECLAIM, visibility_timeout=visibility_timeout, limit=limit),
        *session.rows(sql.FAIL_EXHAUSTED, limit=limit),
    ]
    failed = [parent_id for status, parent_id, _ in rows if status == JobStatus.FAILED]
    for queue in {queue for status, _, queue in rows if status == JobStatus.QUEUED}:
        session.queued(queue)
    tell_parents(session, [(parent, False) for parent in failed if parent is not None])
    return Reclaimed(requeued=len(rows) - len(failed), failed=len(failed))


def prune(
    session: Session,
    older_than: timedelta,
    *,
    statuses: Sequence[JobStatus],
    keep_keys_for: timedelta,
    limit: int,
    after: Cursor,
) -> tuple[int, Cursor | None]:
    """
    Delete one batch of families; return how many jobs, and where to go on (None: done).
    """
    words = [str(status) for status in statuses]
    roots = session.rows(
        sql.OLD_ROOTS,
        older_than=older_than,
        statuses=words,
        limit=limit,
        after_at=after[0],
        after_id=after[1],
    )
    if not roots:
        session.run(sql.DROP_KEYS, limit=limit)
        return 0, None
    deleted = session.row(
        sql.PRUNE,
        roots=[root[0] for root in roots],
        older_than=older_than,
        statuses=words,
        keep_keys_for=keep_keys_for,
    )
    assert deleted is not None
    last_id, last_at = roots[-1]
    return deleted[0], (last_at, last_id)
