"""
One parent with 100,000 children: does it stay as quick to add and to end one?
"""

import statistics
from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, quiet, timed
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed, NewJob
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_BATCH = 1_000
_TARGET = 0.8
_QUEUE = "family"
# Single batches differ by chance; so many at each end are looked at.
_EDGE = 5


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Create the children in batches of 1,000, complete them, and see the parent resume.
    """
    bench.empty()
    batches = bench.size(100, least=2 * _EDGE)
    store = bench.store(wake_ups=False)
    try:
        parent = store.create(NewJob(kind="parent", queue=_QUEUE)).job
        claim = store.claim_next(queue=_QUEUE)
        assert claim is not None
        created = []
        for number in range(batches):
            tell(f"children created: {number * _BATCH:,}")
            children = [parent.child(kind="bench") for _ in range(_BATCH)]
            created.append(timed(_BATCH, partial(store.create_many, children)))
        yield _edges("created under one parent", created)
        store.fan_out(claim.lease, [])

        completed = []
        for number in range(batches):
            tell(f"children completed: {number * _BATCH:,}")
            completed.append(timed(_BATCH, lambda: _complete(store)))
        yield _edges("completed under one parent", completed)
        assert store.get(parent.id).status is JobStatus.QUEUED
    finally:
        store.close()


def _complete(store: PostgresStore) -> None:
    for _ in range(_BATCH // 100):
        claims = store.claim(100, queue=_QUEUE)
        assert len(claims) == 100
        store.set_results([(claim.lease, Completed()) for claim in claims])


def _edges(what: str, rates: list[float]) -> Figure:
    first = statistics.median(rates[:_EDGE])
    last = statistics.median(rates[-_EDGE:])
    return Figure(
        name=f"{len(rates) * _BATCH:,} children {what}, last thousands",
        unit="jobs/s",
        value=last,
        twin="the first thousands",
        twin_value=first,
        ratio=last / first,
        target=_TARGET,
        details={"rates": rates},
    )
