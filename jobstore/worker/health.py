"""
Health: how long ago each loop last did well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

__all__ = ["WorkerHealth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealth:
    """
    A worker as it is now. Times are by this process's monotonic clock.
    """

    is_running: bool = False
    ages: Mapping[str, timedelta] = field(default_factory=dict)
    """For each loop (claim, finish, heartbeat, upkeep), since it last did well."""
    dead: frozenset[str] = frozenset()
    """Loops whose thread is gone though the worker runs. Never by design."""
    held: int = 0
    """Jobs claimed and not committed yet."""
    waiting_for_commit: int = 0
    completed: int = 0
    failed: int = 0

    def is_healthy(self, *, tolerance: timedelta = timedelta(minutes=2)) -> bool:
        """
        Whether every loop is alive and has done well within *tolerance*.

        A database that is away makes a worker unhealthy, and healthy again by itself
        when it is back. Loops that rest do so for a minute at most.
        """
        return (
            self.is_running
            and not self.dead
            and all(age <= tolerance for age in self.ages.values())
        )
