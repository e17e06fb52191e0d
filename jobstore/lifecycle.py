"""
The life of a job: its states and which may follow which.

One table, read by both stores and drawn in docs/lifecycle.md; a test holds the
picture, this table and the CHECK constraint of the schema together. Nothing here
does I/O.
"""

from collections.abc import Mapping
from enum import StrEnum

from jobstore.errors import InvalidTransition

__all__ = [
    "OPEN",
    "REOPENABLE",
    "TERMINAL",
    "TRANSITIONS",
    "JobClass",
    "JobStatus",
    "check_reopen",
    "check_transition",
]


class JobStatus(StrEnum):
    """
    Where a job is. The words are those in the table, for Python and psql alike.
    """

    QUEUED = "queued"
    """Ready to be claimed."""
    SCHEDULED = "scheduled"
    """Due later: at `available_at` it becomes queued by itself."""
    PROCESSING = "processing"
    """Held by a worker under a lease."""
    WAITING = "waiting"
    """Parked until its last child has ended."""
    COMPLETED = "completed"
    """Ended well; the result is final."""
    FAILED = "failed"
    """Ended badly: attempts used up, or the failure was final. The dead letter."""
    CANCELLED = "cancelled"
    """Ended by somebody's decision."""


class JobClass(StrEnum):
    """
    Service class; a better class is always claimed first.
    """

    INTERACTIVE = "interactive"
    SYSTEM = "system"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        """
        Place in the claim order; 0 goes first.
        """
        return _RANK[self]


_RANK: Mapping[JobClass, int] = {
    JobClass.INTERACTIVE: 0,
    JobClass.SYSTEM: 1,
    JobClass.BATCH: 2,
}

_S = JobStatus

TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    _S.QUEUED: frozenset({_S.PROCESSING, _S.SCHEDULED, _S.FAILED, _S.CANCELLED}),
    _S.SCHEDULED: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.PROCESSING: frozenset(
        {_S.QUEUED, _S.SCHEDULED, _S.WAITING, _S.COMPLETED, _S.FAILED, _S.CANCELLED}
    ),
    _S.WAITING: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""What may follow what. Staying in a state is always allowed and not listed."""

TERMINAL = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})
"""States that end a job. Only `requeue`, the explicit reopening, leads out."""

OPEN = frozenset(JobStatus) - TERMINAL

REOPENABLE = frozenset({_S.FAILED, _S.CANCELLED, _S.SCHEDULED})
"""What `requeue` accepts: the dead letters, and what waits for its time."""


def check_transition(job_id: str, current: JobStatus, wanted: JobStatus) -> None:
    """
    Raise `InvalidTransition` unless *wanted* may follow *current*.
    """
    if wanted is not current and wanted not in TRANSITIONS[current]:
        raise InvalidTransition(job_id, current, wanted)


def check_reopen(job_id: str, current: JobStatus) -> None:
    """
    Raise `InvalidTransition` unless a job in *current* may be requeued.
    """
    if current not in REOPENABLE:
        raise InvalidTransition(job_id, current, JobStatus.QUEUED)
