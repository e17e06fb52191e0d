"""
All samples that exist, with their labels: by making each of them once.
"""

from datetime import timedelta

from prometheus_client import CollectorRegistry

from jobstore import JobClass, MemoryStore, NewJob
from jobstore.observe import JobsPromoted, LeasesReclaimed, StoreFailed, observed
from jobstore.observe import metrics as of
from jobstore.observe.queue import QueueLine

__all__ = ["samples"]


def samples() -> dict[str, frozenset[str]]:
    """
    Return the labels of each sample, by its name; ``_created`` ones are left out.
    """
    registry = CollectorRegistry()
    listener = of.Metrics(registry)
    store = observed(MemoryStore(), listener)
    store.create(NewJob(kind="k"))
    claim = store.claim_next()
    assert claim is not None
    store.snooze(claim.lease, timedelta(0))
    store.cancel(claim.lease.job_id)
    for event in (
        LeasesReclaimed(requeued=1, failed=1),
        JobsPromoted(jobs=1),
        StoreFailed(verb="claim", code="STORE_BUSY"),
    ):
        listener(event)
    line = QueueLine(
        queue="q",
        job_class=JobClass.BATCH,
        oldest_wait=1.0,
        expired_leases=1,
        jobs={"ready": 1},
        recent={"created": 1},
    )
    families = [
        *registry.collect(),
        *of._families([line]),
        of._up(is_up=True),
    ]
    found: dict[str, frozenset[str]] = {}
    for family in families:
        assert family.samples, f"{family.name} was not made here"
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found[sample.name] = frozenset(sample.labels)
    return found
