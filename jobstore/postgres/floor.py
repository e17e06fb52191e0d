"""
The claim floor: where in each class there may still be something to claim.

A session somewhere that holds an old snapshot (a report, a dump, a forgotten
transaction) keeps the index entries of claimed jobs from being removed, and every
claim would walk all of them to reach the first live one. So a store remembers, for
each queue and class, the created_at of the oldest job its last claim saw, and asks
only from there on.

The floor is a hint and never a promise. Every second or so, and whenever a claim comes
back short, one claim walks everything. A job that becomes
visible below it (committed late, queued again by another process) waits that long.
Where such a walk has itself become slow, walks are spaced out: they may take a tenth of
the time, and no more.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobstore.lifecycle import JobClass
from jobstore.model import Job

__all__ = ["NO_FLOOR", "ClaimFloor", "Floors"]

Floors = tuple[datetime | str, datetime | str, datetime | str]

NO_FLOOR: Floors = ("-infinity", "-infinity", "-infinity")

# How long a floor may hide a job that appeared below it, while walks are cheap.
_REFRESH_SECONDS = 1.0
# Transactions that commit within this time of their statement are never hidden.
_MARGIN = timedelta(milliseconds=500)
# What a claim may take on a busy server without any dead entries in its way.
_CHEAP_SECONDS = 0.02
# After a walk that is not cheap, this many times its length without one.
_SPACING = 10
_LONGEST_SPACING_SECONDS = 30.0


@dataclass(slots=True)
class _Head:
    """
    The head of one queue, as claims over one class, or all of them, find it.
    """

    floors: Floors = NO_FLOOR
    walk_at: float = 0.0
    """When to look at everything again, by the monotonic clock."""
    may_walk_at: float = 0.0
    """Not to be done before, for what it costs."""
    last_walk: float = 0.0
    """Seconds."""

    def walked(self, now: float, seconds: float) -> None:
        # One slow walk may be the machine's fault; two are the index's.
        cost = min(seconds, self.last_walk)
        self.last_walk = seconds
        pause = 0.0 if cost < _CHEAP_SECONDS else cost * _SPACING
        self.may_walk_at = now + min(pause, _LONGEST_SPACING_SECONDS)
        self.walk_at = max(self.may_walk_at, now + _REFRESH_SECONDS)


class ClaimFloor:
    """
    What one store knows of the heads of its queues. Safe between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: dict[tuple[str, JobClass | None], _Head] = {}

    def of(self, queue: str, job_class: JobClass | None = None) -> Floors:
        """
        Return the floors to claim with; `NO_FLOOR` when it is time to look again.
        """
        with self._lock:
            head = self._heads.get((queue, job_class))
            if head is None or time.monotonic() >= head.walk_at:
                return NO_FLOOR
            return head.floors

    def may_walk(self, queue: str, job_class: JobClass | None = None) -> bool:
        """
        Whether a claim that came back short may look below the floor at once.
        """
        with self._lock:
            head = self._heads.get((queue, job_class))
            return head is None or time.monotonic() >= head.may_walk_at

    def learn(
        self,
        queue: str,
        used: Floors,
        claimed: Iterable[Job],
        *,
        job_class: JobClass | None = None,
        seconds: float = 0.0,
    ) -> None:
        """
        Take in what a claim came to.

        Args:
            queue: That it was made on.
            used: The floors that it was made with.
            claimed: What it returned.
            job_class: That it was made over; None for all.
            seconds: What it took.
        """
        now = time.monotonic()
        with self._lock:
            head = self._heads.setdefault((queue, job_class), _Head())
            if used is NO_FLOOR:
                head.walked(now, seconds)
            # A claim that found nothing does not say how far it looked; what was known
            # before holds all the same.
            head.floors = _above(used, claimed, job_class) or head.floors

    def forget(self, queue: str) -> None:
        """
        Look at all of *queue* again, as soon as that is affordable.
        """
        now = time.monotonic()
        with self._lock:
            for job_class in (None, *JobClass):
                head = self._heads.get((queue, job_class))
                if head is not None:
                    head.walk_at = min(head.walk_at, max(now, head.may_walk_at))


def _above(
    used: Floors, claimed: Iterable[Job], job_class: JobClass | None
) -> Floors | None:
    """
    Return the floors that follow from a claim; None if it came back empty.
    """
    oldest: dict[int, datetime] = {}
    now: datetime | None = None
    for job in claimed:
        rank = job.job_class.rank
        oldest[rank] = min(job.created_at, oldest.get(rank, job.created_at))
        now = job.heartbeat_at
    if now is None:
        return None
    # Classes better than the worst one reached, and empty, were seen empty; classes
    # behind it, or not asked for, were not looked at.
    seen = range(max(oldest) + 1) if job_class is None else (job_class.rank,)
    first, second, third = (
        oldest.get(rank, now) - _MARGIN if rank in seen else used[rank]
        for rank in range(3)
    )
    return first, second, third
