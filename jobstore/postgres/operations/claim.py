"""
Claiming, heartbeats, and queueing what is due.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

from jobstore.lifecycle import JobClass
from jobstore.model import Claim, Heartbeat, Job, Lease
from jobstore.postgres.floor import NO_FLOOR, Floors
from jobstore.postgres.rows import to_job
from jobstore.postgres.session import Session
from jobstore.postgres.statements import claim as sql

__all__ = ["Promotion", "claim", "heartbeat", "promote_due"]

# Due jobs join the line at least this often while claims come back full; a claim
# that comes back short looks for them at once.
_PROMOTE_SECONDS = 0.25
_PROMOTE_LIMIT = 1000


class Promotion:
    """
    When a store's claims last looked for jobs that have come due.
    """

    def __init__(self) -> None:
        self._next_at = 0.0

    def is_time(self) -> bool:
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + _PROMOTE_SECONDS
        return True


def claim(
    session: Session,
    promotion: Promotion,
    limit: int,
    *,
    queue: str,
    job_class: JobClass | None,
    worker: str,
    lease: timedelta | None,
) -> list[Claim]:
    promoted = promotion.is_time()
    if promoted:
        promote_due(session, _PROMOTE_LIMIT)
    heads = session.floor
    floors = heads.of(queue, job_class)

    def take(wanted: int, floors: Floors) -> list[Job]:
        started = time.monotonic()
        rows = session.rows(
            sql.CLAIM if job_class is None else sql.CLAIM_CLASS,
            queue=queue,
            limit=wanted,
            worker=worker,
            lease=lease,
            floor_0=floors[0],
            floor_1=floors[1],
            floor_2=floors[2],
            class_rank=None if job_class is None else job_class.rank,
            floor=NO_FLOOR[0] if job_class is None else floors[job_class.rank],
        )
        jobs = [to_job(row) for row in rows]
        took = time.monotonic() - started
        heads.learn(queue, floors, jobs, job_class=job_class, seconds=took)
        return jobs

    jobs = take(limit, floors)
    if len(jobs) < limit:
        # Short: look below the floor, and at what has come due since.
        due = 0 if promoted else promote_due(session, _PROMOTE_LIMIT)
        if (due or floors is not NO_FLOOR) and heads.may_walk(queue, job_class):
            more = take(limit - len(jobs), NO_FLOOR)
            jobs = sorted(jobs + more, key=_place_in_line)
    return [Claim(job) for job in jobs]


def promote_due(session: Session, limit: int) -> int:
    queues = [row[0] for row in session.rows(sql.PROMOTE_DUE, limit=limit)]
    for queue in set(queues):
        session.queued(queue)
    return len(queues)


def heartbeat(session: Session, leases: Sequence[Lease]) -> Heartbeat:
    rows = session.rows(
        sql.HEARTBEAT,
        job_ids=[lease.job_id for lease in leases],
        fences=[lease.fence for lease in leases],
    )
    held, cancelled = set(), set()
    for place, is_held, is_cancelled in rows:
        if is_held:
            held.add(leases[place - 1])
        elif is_cancelled:
            cancelled.add(leases[place - 1])
    return Heartbeat(
        held=frozenset(held),
        lost=frozenset(set(leases) - held - cancelled),
        cancelled=frozenset(cancelled),
    )


def _place_in_line(job: Job) -> tuple[object, ...]:
    return job.job_class.rank, job.created_at, job.id
