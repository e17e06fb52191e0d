"""
The same work on small tables and on large ones: is it as fast?
"""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import bench as benches
from benchmarks import load
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, compare, quiet, timed
from jobstore.model import Completed, NewJob
from jobstore.postgres import PostgresStore

__all__ = ["finished", "queued", "small_against", "tenants", "top_up"]

_SMALL = 20_000
_BATCH = 100
# Single jobs for each batch of the same turn: they take longer.
_SINGLE = 3
_TARGET = 0.85

Fill = Callable[[Bench], object]


def queued(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Grow the queue to 1 million, then 10 million.
    """
    bench.empty()
    there = 0
    for jobs in (bench.size(1_000_000), bench.size(10_000_000)):
        tell(f"loading {jobs:,} queued jobs")
        load.queued(bench, jobs - there, tell=tell)
        bench.vacuum()
        there = jobs
        yield from small_against(bench, f"{jobs:,} queued", tell, refill=lambda _: None)


def finished(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Keep 10 million completed jobs beside a small queue.
    """
    jobs = bench.size(10_000_000)
    bench.empty()
    load.finished(bench, jobs, tell=tell)
    bench.vacuum()
    yield from small_against(bench, f"{jobs:,} finished", tell, refill=top_up)


def tenants(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Spread 1 million queued jobs over 10,000 tenants.
    """
    jobs = bench.size(1_000_000)
    bench.empty()
    load.queued(bench, jobs, tenants=10_000, tell=tell)
    bench.vacuum()
    yield from small_against(
        bench,
        f"{jobs:,} queued of 10,000 tenants",
        tell,
        refill=lambda _: None,
        tenants=10_000,
    )


def small_against(
    bench: Bench,
    name: str,
    tell: Tell,
    *,
    refill: Fill,
    tenants: int = 1,
    target: float | None = _TARGET,
) -> Iterator[Figure]:
    """
    Compare *bench*, full of whatever *name* says, with a schema of 20,000 queued jobs.

    Args:
        refill: Called on *bench* before each turn on it, outside the time.
        tenants: How many the new jobs are spread over.
    """
    with benches.made(
        bench.dsn, pgbench=None, rounds=bench.rounds, scale=bench.scale
    ) as small:
        large_store, small_store = bench.store(), small.store()

        def before() -> None:
            _restore(small)
            refill(bench)
            # Dirty pages of the loading would be written during whoever's turn.
            bench.execute("CHECKPOINT")

        calls = max(1, min(_SMALL // 2, bench.size(_SMALL // 2)) // _BATCH)
        against = f"the same with {_SMALL:,} queued"
        try:
            for what, work in (
                ("claim + complete in batches", _claims),
                ("claim + complete, one at a time", _single_claims),
                ("create, one at a time", _creates),
            ):
                tell(f"{name}: {what}")
                yield compare(
                    f"{name}: {what}",
                    partial(work, large_store, calls, tenants),
                    partial(work, small_store, calls, tenants),
                    against=against,
                    rounds=bench.rounds,
                    before=before,
                    target=target,
                )
        finally:
            large_store.close()
            small_store.close()


def _restore(small: Bench) -> None:
    # Not vacuumed, as the large one is not after its refill: pages whose rows nobody
    # has looked at yet are logged once more when somebody does.
    small.empty()
    load.queued(small, _SMALL)


def top_up(bench: Bench) -> None:
    """
    Bring the queue back to 20,000.
    """
    ((left,),) = bench.execute(
        "SELECT count(*) FROM {s}.job "
        "WHERE status = 'queued' AND attempts < max_attempts"
    )
    load.queued(bench, _SMALL - int(left))


def _claims(store: PostgresStore, calls: int, _tenants: int, _: int) -> float:
    def work() -> None:
        for _ in range(calls):
            claims = store.claim(_BATCH)
            assert len(claims) == _BATCH
            store.set_results([(claim.lease, Completed()) for claim in claims])

    return timed(calls * _BATCH, work)


def _single_claims(store: PostgresStore, calls: int, _tenants: int, _: int) -> float:
    def work() -> None:
        for _ in range(calls * _SINGLE):
            claim = store.claim_next()
            assert claim is not None
            store.complete(claim.lease)

    return timed(calls * _SINGLE, work)


def _creates(store: PostgresStore, calls: int, tenants: int, turn: int) -> float:
    jobs = [
        NewJob(
            kind="bench",
            payload=b"x" * 100,
            tenant=f"tenant-{place % tenants}",
            idem_key=f"{turn}-{place}",
        )
        for place in range(calls * _SINGLE)
    ]

    def work() -> None:
        for job in jobs:
            store.create(job)

    return timed(len(jobs), work)
