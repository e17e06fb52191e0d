"""
From where on the doctor speaks up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from jobstore.errors import InvalidInput
from jobstore.lifecycle import JobClass
from jobstore.model import check_count, check_duration

__all__ = ["Thresholds"]

_NONE = timedelta(0)
_MOST = 2**63 - 1


def _waits() -> dict[JobClass, timedelta]:
    return {
        JobClass.INTERACTIVE: timedelta(seconds=30),
        JobClass.SYSTEM: timedelta(minutes=5),
        JobClass.BATCH: timedelta(hours=1),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """
    At each of these a warning is due; at `critical_factor` times as much, more.
    """

    wait: Mapping[JobClass, timedelta] = field(default_factory=_waits)
    """How long a ready job of each class may wait."""
    silence: timedelta = timedelta(minutes=3)
    """How long a lease may be silent: three visibility timeouts of a worker."""
    snapshot: timedelta = timedelta(minutes=5)
    """How long a transaction or a prepared one may be open."""
    lock_wait: timedelta = timedelta(seconds=5)
    """How long anybody may wait for a lock on a whole table."""
    clock_skew: timedelta = timedelta(seconds=5)
    """How far this machine's clock may be off the server's."""
    dead_rows: float = 2.0
    """How many times the rows at which autovacuum should come may be dead."""
    bloat_bytes: int = 256 * 1024 * 1024
    """Size from which the index of ready jobs is looked at for empty space."""
    slot_bytes: int = 1024**3
    """How much WAL an inactive replication slot may retain."""
    connections: float = 0.8
    """Share of the server's connections that may be in use."""
    transaction_age: int = 500_000_000
    """Transactions since the database's oldest unfrozen row; it stops at 2 billion."""
    critical_factor: float = 4.0

    def __post_init__(self) -> None:
        wait: object = self.wait
        if not isinstance(wait, Mapping) or set(wait) != set(JobClass):
            raise InvalidInput("wait", wait, "must name each class")
        for job_class, longest in wait.items():
            check_duration(f"wait[{job_class}]", longest, shortest=_NONE)
        for name in ("silence", "snapshot", "lock_wait", "clock_skew"):
            check_duration(name, getattr(self, name), shortest=_NONE)
        for name in ("bloat_bytes", "slot_bytes", "transaction_age"):
            check_count(name, getattr(self, name), 0, _MOST)
        _check_number("dead_rows", self.dead_rows, 0, _MOST)
        _check_number("connections", self.connections, 0, 1)
        _check_number("critical_factor", self.critical_factor, 1, _MOST)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidInput(name, value, "must be a number")
    if not least <= value <= most:
        raise InvalidInput(name, value, f"must be {least:,} to {most:,}")
