"""
A million jobs that are due later.
"""

from collections.abc import Iterator

from benchmarks import load
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, quiet, timed
from benchmarks.scenarios import backlog
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_BATCH = 1_000


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Work beside them while they wait, then queue them when they come due all at once.
    """
    jobs = bench.size(1_000_000, least=10)
    batch = min(_BATCH, jobs // 10)
    bench.empty()
    load.scheduled(bench, jobs, due_in="1 day", tell=tell)
    bench.vacuum()
    yield from backlog.small_against(
        bench, f"{jobs:,} scheduled", tell, refill=backlog.top_up
    )
    tell("all of them come due")
    bench.empty()
    load.scheduled(bench, jobs, due_in="-1 second", tell=tell)
    bench.vacuum()
    store = bench.store()
    try:
        calls = jobs // 10 // batch
        first = timed(calls * batch, lambda: _promote(store, batch, calls))
        _promote(store, batch, calls * 8)
        last = timed(calls * batch, lambda: _promote(store, batch, calls))
    finally:
        store.close()
    yield Figure(
        name=f"{jobs:,} scheduled: queued when due, last tenth",
        unit="jobs/s",
        value=last,
        twin="the first tenth",
        twin_value=first,
        ratio=last / first,
    )


def _promote(store: PostgresStore, batch: int, calls: int) -> None:
    for _ in range(calls):
        promoted = store.promote_due(limit=batch)
        assert promoted == batch
