"""
What the page reads, as values.
"""

from dataclasses import dataclass, field
from datetime import datetime

from jobstore.lifecycle import JobClass
from jobstore.model import Attempt, Job

__all__ = [
    "Deed",
    "Failures",
    "Found",
    "Line",
    "Minute",
    "Overview",
    "Seen",
    "Sizes",
]


@dataclass(slots=True, kw_only=True)
class Line:
    """
    One queue and class on the overview.
    """

    queue: str
    job_class: JobClass
    ready: int = 0
    ready_since: datetime | None = None
    running: int = 0
    running_since: datetime | None = None
    expired: int = 0
    scheduled: int = 0
    next_due_at: datetime | None = None
    waiting: int = 0
    exhausted: int = 0
    ended: list[int] = field(default_factory=lambda: [0] * 61)
    """Jobs that ended, for each minute of the last hour."""


@dataclass(slots=True)
class Minute:
    """
    What one minute of the last hour saw; counts of a sampled minute are estimates.
    """

    at: datetime
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """
    All that the first page shows.
    """

    at: datetime
    lines: list[Line]
    minutes: list[Minute]
    is_sampled: bool
    bounded: frozenset[str]
    """States of which there are more than were counted, and "lines"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    One page of a listing.
    """

    jobs: list[Job]
    after: str | None
    """Where the next page begins; None: there is none."""
    looked_back_to: datetime | None
    """Set if the search gave up here, before the end, without filling the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """
    Failures with one error code.
    """

    error_code: str
    jobs: int
    first_at: datetime
    last_at: datetime
    newest_id: str
    kinds: tuple[list[str], int]
    """Some of them, and how many there are; so for queues and tenants."""
    queues: tuple[list[str], int]
    tenants: tuple[list[str], int]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """
    How large a job's payload and result are, and whether it has a key.
    """

    content_type: str | None
    payload_bytes: int | None
    result_bytes: int | None
    has_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """
    What an operator did to a job, by the functions of the schema.
    """

    at: datetime
    who: str
    application: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """
    One job with all that is around it.
    """

    job: Job
    sizes: Sizes | None
    """None: the role may not look at payloads and keys, not even from afar."""
    attempts: list[Attempt]
    """The newest ones, newest first."""
    ancestors: list[tuple[str, str, str]]
    """Id, kind and status, from the top down to the parent."""
    children: list[Job]
    next_child: str | None
    deeds: list[Deed]
    """Newest first; none if the role may not look into the audit."""
    explanation: str
