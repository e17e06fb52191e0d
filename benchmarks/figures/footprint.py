"""
What one job leaves behind on the server: WAL, dead row versions, space.
"""

import secrets
import time
from collections.abc import Callable, Iterator

from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, quiet
from jobstore.model import Completed, NewJob
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_JOBS = 5_000
_SETTLING_SECONDS = 0.5
_BATCH = 100


def measure(bench: Bench, _: Tell = quiet) -> Iterator[Figure]:
    """
    Follow jobs with a key and 100 bytes from create to completed.

    Other work on the same server would be counted along: use one that is idle.
    """
    jobs = bench.size(_JOBS, least=_BATCH) // _BATCH * _BATCH
    yield from _one_way(bench, jobs, "one at a time", _singly)
    yield from _one_way(bench, jobs, f"in batches of {_BATCH}", _in_batches)


def _one_way(
    bench: Bench,
    jobs: int,
    way: str,
    work: Callable[[PostgresStore, int], None],
) -> Iterator[Figure]:
    bench.empty()
    # Each page's first change after a checkpoint is logged whole, which belongs to the
    # settings, not to the job: begin with one, and touch the pages before counting.
    bench.execute("CHECKPOINT")
    _with_store(bench, work, _BATCH)
    updates, hot = _updates(bench)
    before = _wal(bench)
    _with_store(bench, work, jobs)
    wal = _wal(bench) - before
    more_updates, more_hot = _updates(bench)
    yield Figure(name=f"WAL for each job, {way}", unit="bytes", value=wal / jobs)
    yield Figure(
        name=f"dead row versions for each job, {way}",
        unit="rows",
        value=(more_updates - updates) / jobs,
        note=f"of the table job; {(more_hot - hot) / jobs:.2f} of them HOT",
    )


def _with_store(
    bench: Bench, work: Callable[[PostgresStore, int], None], jobs: int
) -> None:
    # Its server processes report their statistics at the latest when they end.
    store = bench.store(wake_ups=False)
    try:
        work(store, jobs)
    finally:
        store.close()


def _singly(store: PostgresStore, jobs: int) -> None:
    for _ in range(jobs):
        store.create(_new())
    for _ in range(jobs):
        claim = store.claim_next()
        assert claim is not None
        store.complete(claim.lease)


def _in_batches(store: PostgresStore, jobs: int) -> None:
    for _ in range(0, jobs, _BATCH):
        store.create_many([_new() for _ in range(_BATCH)])
    for _ in range(0, jobs, _BATCH):
        claims = store.claim(_BATCH)
        store.set_results([(claim.lease, Completed()) for claim in claims])


def _new() -> NewJob:
    return NewJob(kind="bench", payload=b"x" * 100, idem_key=secrets.token_hex(8))


def _wal(bench: Bench) -> int:
    ((position,),) = bench.execute(
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    )
    return int(position)


def _updates(bench: Bench) -> tuple[int, int]:
    """
    Count updates of jobs so far, and the HOT ones: each left a dead row version.

    What is dead at the moment says less: vacuum and pruning come in between.
    """
    time.sleep(_SETTLING_SECONDS)
    ((updates, hot),) = bench.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
        "WHERE relid = '{s}.job'::regclass"
    )
    return int(updates), int(hot)
