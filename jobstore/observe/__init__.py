"""
What a store does, told to whoever listens: for logs, metrics and traces.

`observed` wraps any store, of either colour. Nothing is told without it, and nothing
here needs an optional extra; `jobstore.observe.metrics` and `.traces` do.
"""

from jobstore.observe.events import (
    AttemptEnd,
    Event,
    FamiliesRepaired,
    JobChanged,
    JobClaimed,
    JobCreated,
    JobFinished,
    JobLost,
    JobsPromoted,
    JobsPruned,
    LeasesReclaimed,
    Listener,
    StoreFailed,
)
from jobstore.observe.observed import observed

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
    "observed",
]
