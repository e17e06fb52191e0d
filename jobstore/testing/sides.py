"""
One of two stores that live through the same story, and what to compare of it.
"""

from dataclasses import fields
from datetime import UTC, datetime, timedelta

from jobstore.errors import JobstoreError
from jobstore.model import (
    Attempt,
    Claim,
    Created,
    Heartbeat,
    Job,
    Lease,
    QueueStats,
)
from jobstore.store import Store
from jobstore.testing.harness import Harness

__all__ = ["Side"]

HOUR = timedelta(hours=1)


class Side:
    """
    One of the two stores, and its ids by the order of creation.
    """

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.store: Store = harness.store
        self.ids: list[str] = []

    def id_of(self, number: int) -> str:
        """
        Return the id of job *number*; of none, if there aren't that many.
        """
        return self.ids[number] if number < len(self.ids) else "0" * 26

    def note(self, created: list[Created]) -> None:
        self.ids += [one.job.id for one in created if one.created]

    def plain(self, value: object) -> object:  # noqa: PLR0911 - a line for each type
        """
        Render *value* so that both stores must give the same.
        """
        if isinstance(value, (Job, Attempt, QueueStats)):
            return {
                one.name: self.plain(getattr(value, one.name)) for one in fields(value)
            }
        if isinstance(value, Created):
            return self.plain(value.job), value.created, value.payload_matches
        if isinstance(value, Claim):
            return self.plain(value.job)
        if isinstance(value, Lease):
            return self.plain(value.job_id), value.fence
        if isinstance(value, Heartbeat):
            sets = (value.held, value.lost, value.cancelled)
            return [sorted(str(self.plain(one)) for one in leases) for leases in sets]
        if isinstance(value, JobstoreError):
            return type(value).__name__
        if isinstance(value, datetime):
            return f"{round((value - datetime.now(UTC)) / HOUR)} hours from now"
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        if isinstance(value, str) and value in self.ids:
            return f"job {self.ids.index(value)}"
        return value
