"""
The claim floor: where in each class there may still be something to claim.

A session somewhere that holds an old snapshot (a report, a dump, a forgotten
transaction) keeps the index entries of claimed jobs from being removed, and every
claim would walk all of them to reach the first live one. So a store remembers, for
each queue and class, the created_at of the oldest job its last claim saw, and asks
only from there on.

The floor is a hint and never a promise. It is dropped every second or so, and
whenever a claim comes back short; then one claim walks everything. A job that becomes
visible below it (committed late, queued again by another process) waits that long.
"""

import threading
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from jobstore.model import Job

__all__ = ["NO_FLOOR", "ClaimFloor", "Floors"]

Floors = tuple[datetime | str, datetime | str, datetime | str]

NO_FLOOR: Floors = ("-infinity", "-infinity", "-infinity")

# How long a floor may hide a job that appeared below it.
_REFRESH_SECONDS = 1.0
# Transactions that commit within this time of their statement are never hidden.
_MARGIN = timedelta(milliseconds=500)


class ClaimFloor:
    """
    What one store knows of the heads of its queues. Safe between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._floors: dict[str, Floors] = {}
        self._refresh_at: dict[str, float] = {}

    def of(self, queue: str) -> Floors:
        """
        Return the floors to claim with; `NO_FLOOR` when it is time to look again.
        """
        with self._lock:
            if time.monotonic() >= self._refresh_at.get(queue, 0.0):
                return NO_FLOOR
            return self._floors.get(queue, NO_FLOOR)

    def learn(self, queue: str, used: Floors, claimed: Iterable[Job]) -> None:
        """
        Take in what a claim over all classes, made with *used*, came to.
        """
        oldest: dict[int, datetime] = {}
        now: datetime | None = None
        for job in claimed:
            rank = job.job_class.rank
            oldest[rank] = min(job.created_at, oldest.get(rank, job.created_at))
            now = job.heartbeat_at
        if now is None:
            self.forget(queue)
            return
        worst = max(oldest)
        floors = tuple(
            # Classes better than the worst one reached, and empty, were seen empty;
            # classes behind it were not looked at.
            oldest.get(rank, now) - _MARGIN if rank <= worst else used[rank]
            for rank in range(3)
        )
        with self._lock:
            self._floors[queue] = floors  # type: ignore[assignment]  # three, always
            if used is NO_FLOOR:
                self._refresh_at[queue] = time.monotonic() + _REFRESH_SECONDS

    def forget(self, queue: str) -> None:
        """
        Look at all of *queue* again.
        """
        with self._lock:
            self._floors.pop(queue, None)
