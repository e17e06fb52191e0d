"""
Health: how long ago each loop last did well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

__all__ = ["LoopHealth", "WorkerHealth", "WorkerState"]


class WorkerState(StrEnum):
    """
    Where a worker is in its life.
    """

    NEW = "new"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopHealth:
    """
    One loop of a worker.
    """

    age: timedelta
    """Since its last successful iteration, or since the start if there was none."""
    allowance: timedelta
    """How old that may get."""
    is_alive: bool
    failure: str | None
    """The code of the error it is failing with at present."""

    @property
    def is_healthy(self) -> bool:
        return self.is_alive and self.failure is None and self.age <= self.allowance


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealth:
    """
    A worker as it is now. Times are by this process's monotonic clock.
    """

    state: WorkerState
    loops: Mapping[str, LoopHealth] = field(default_factory=dict)
    """claim, finish, heartbeat, upkeep; and handlers, the event loop, if it has one."""
    held: int = 0
    """Jobs claimed and not committed yet."""
    busy: int = 0
    """Jobs whose handler is at work or about to be."""
    waiting_for_commit: int = 0
    """Outcomes that are not committed yet."""
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    """Attempts that failed, whether the job is tried again or not."""
    released: int = 0
    snoozed: int = 0
    dropped: int = 0
    """Outcomes that were refused because the lease was lost or the job cancelled."""
    reclaimed: int = 0
    """Stale leases of any worker that this one ended."""
    pruned: int = 0

    @property
    def is_running(self) -> bool:
        return self.state is WorkerState.RUNNING

    @property
    def ages(self) -> Mapping[str, timedelta]:
        """
        For each loop, since it last did well.
        """
        return {name: loop.age for name, loop in self.loops.items()}

    @property
    def dead(self) -> frozenset[str]:
        """
        Loops whose thread is gone though the worker runs. Never by design.
        """
        return frozenset(name for name, loop in self.loops.items() if not loop.is_alive)

    def is_healthy(self, *, tolerance: timedelta | None = None) -> bool:
        """
        Whether the worker runs, and every loop of it does well.

        A database that is away makes a worker unhealthy; it becomes healthy again by
        itself.

        Args:
            tolerance: How long ago a loop may have done well last, in place of its own
                allowance; it may be failing meanwhile.
        """
        return self.is_running and all(
            loop.is_healthy
            if tolerance is None
            else loop.is_alive and loop.age <= tolerance
            for loop in self.loops.values()
        )
