"""
What happens to jobs, as frozen values for listeners.

An event says which job, where and how it went. It never carries what is private: no
payload, no result, no idempotency key, no error message. So a listener may log it
whole. `tenant`, `kind`, `queue`, `worker` and `error_code` are yours: keep secrets
out of them.

Where an event has `queue` and `kind`, None means that the lease was not claimed through
this observed store, or so long ago that it was forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from jobstore.lifecycle import JobClass, JobStatus

__all__ = [
    "AttemptEnd",
    "Event",
    "FamiliesRepaired",
    "JobChanged",
    "JobClaimed",
    "JobCreated",
    "JobFinished",
    "JobLost",
    "JobsPromoted",
    "JobsPruned",
    "LeasesReclaimed",
    "Listener",
    "StoreFailed",
]


class AttemptEnd(StrEnum):
    """
    How an attempt ended, as its holder said and the store took it.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    """For good."""
    RETRIED = "retried"
    """It failed, and the job is tried again."""
    RELEASED = "released"
    SNOOZED = "snoozed"
    WAITING = "waiting"
    """It fanned out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCreated:
    """
    A create was done.
    """

    job_id: str
    tenant: str
    queue: str
    kind: str
    job_class: JobClass
    parent_id: str | None
    is_new: bool
    """False: its idempotency key was known, and nothing was inserted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaimed:
    """
    A worker took the job.
    """

    job_id: str
    fence: int
    tenant: str
    queue: str
    kind: str
    job_class: JobClass
    worker: str | None
    attempt: int
    waited: timedelta
    """From when it was due until now, by the database's clock. A job that was given
    back or reclaimed keeps its place, so this counts from the beginning again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished:
    """
    An attempt ended, and the store took its outcome.

    A call that repeats one that was done succeeds, and so tells again.
    """

    job_id: str
    fence: int
    queue: str | None
    kind: str | None
    end: AttemptEnd
    status: JobStatus | None
    """What the job became. None after a fan-out: waiting, or queued where no child is
    open."""
    error_code: str | None
    ran: timedelta | None
    """From the claim until now, by this process's clock; None: the claim is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLost:
    """
    A lease turned out to be gone; what its holder did is not taken.
    """

    job_id: str
    fence: int
    queue: str | None
    kind: str | None
    is_cancelled: bool
    """Lost because somebody cancelled the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesReclaimed:
    """
    A sweep ended leases without a heartbeat. A sweep that found none tells nothing.
    """

    requeued: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanged:
    """
    Somebody changed a job by hand.
    """

    job_id: str
    tenant: str
    queue: str
    kind: str
    verb: str
    """cancel, requeue or update_status."""
    status: JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPromoted:
    """
    Scheduled jobs were queued, their time having come.
    """

    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPruned:
    """
    Ended jobs were deleted.
    """

    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FamiliesRepaired:
    """
    Waiting parents were put right.
    """

    parents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """
    A verb could not do its work: the database is away, busy, or refuses.

    What a caller got wrong (a bad value, an unknown job) is none of these.
    """

    verb: str
    code: str
    """The error's: STORE_UNAVAILABLE, STORE_BUSY, OUTCOME_UNKNOWN, STORE_FAULT, or a
    SCHEMA_ one."""


Event = (
    JobCreated
    | JobClaimed
    | JobFinished
    | JobLost
    | LeasesReclaimed
    | JobChanged
    | JobsPromoted
    | JobsPruned
    | FamiliesRepaired
    | StoreFailed
)
"""All there are. More may come: a listener passes over those it does not know."""

Listener = Callable[[Event], object]
"""Called in the caller's thread (or on its event loop), so it must be quick."""
