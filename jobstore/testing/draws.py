"""
What the stories of `AgreementMachine` are made of: few values, so that they meet.
"""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import Completed, Failed, Outcome, Released, Snoozed

__all__ = ["CHANGES", "CLASSES", "DELAYS", "FILTERS", "HOUR", "OUTCOMES", "QUEUES"]

HOUR = timedelta(hours=1)

QUEUES = st.sampled_from(["one", "one", "one", "two"])

CLASSES = st.sampled_from(JobClass)

DELAYS = st.sampled_from([timedelta(0), HOUR])

OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Completed, st.sampled_from([None, b"", b"r"])),
    st.builds(
        Failed,
        st.sampled_from(["E", "F"]),
        final=st.booleans(),
        retry_in=st.sampled_from([None, timedelta(0), HOUR]),
    ),
    st.just(Released()),
    st.builds(Snoozed, DELAYS),
)

FILTERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "queue": QUEUES,
        "job_class": CLASSES,
        "status": st.sets(st.sampled_from(JobStatus), min_size=1),
        "kind": st.sampled_from(["work", "page"]),
        "idem_key": st.sampled_from(["k", "l", "m"]),
        "error_code": st.sampled_from(["E", "HAND", "ATTEMPTS_EXHAUSTED"]),
        "worker": st.just("w"),
    },
)
"""Arguments of `Store.list`."""

CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "queue": QUEUES,
        "job_class": CLASSES,
        "max_attempts": st.integers(1, 2),
        "error_code": st.sampled_from([None, "HAND"]),
        "result": st.sampled_from([None, b"r"]),
    },
)
"""Fields that `Store.update_status` may change, besides the status."""
