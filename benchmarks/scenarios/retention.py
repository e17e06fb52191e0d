"""
Getting rid of history: by deleting rows, or by dropping partitions.

The store deletes. A `job` that is partitioned by ranges of its id, which carries the
time, is tried here for what it would cost: the same statements run on it unchanged.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

from ulid import ULID

from benchmarks import bench as benches
from benchmarks import load
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, quiet
from benchmarks.scenarios import backlog

__all__ = ["measure"]

_HISTORY = 1_000_000
_PARTITIONS = (12, 60)
_DAY_MS = 24 * 3_600_000


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Prune a history; then compare claims and creates on a partitioned table.
    """
    jobs = bench.size(_HISTORY)
    yield from _prune(bench, jobs, tell)
    for number in _PARTITIONS:
        with benches.made(
            bench.dsn, pgbench=None, rounds=bench.rounds, scale=bench.scale
        ) as apart:
            names = _partition(apart, number)
            load.finished(apart, jobs, tell=tell)
            apart.vacuum()
            yield from backlog.small_against(
                apart,
                f"{jobs:,} finished in {number} partitions",
                tell,
                refill=backlog.top_up,
                target=None,
            )
            yield _drop(apart, names[0])


def _prune(bench: Bench, jobs: int, tell: Tell) -> Iterator[Figure]:
    bench.empty()
    load.finished(bench, jobs, tell=tell)
    bench.vacuum()
    tell(f"pruning {jobs:,} jobs")
    before = _wal(bench)
    with closing(bench.store(wake_ups=False)) as store:
        started = time.perf_counter()
        deleted = store.prune(timedelta(seconds=1))
        seconds = time.perf_counter() - started
    assert deleted == jobs
    yield Figure(
        name=f"prune {jobs:,} finished jobs",
        unit="jobs/s",
        value=jobs / seconds,
        note=f"{(_wal(bench) - before) / jobs:,.0f} bytes of WAL for each",
    )


def _partition(bench: Bench, number: int) -> list[str]:
    """
    Put a partitioned table in the place of `job`; return its partitions, oldest first.

    The loaders' history is of the last day, which is divided evenly.
    """
    bench.execute("ALTER TABLE {s}.job RENAME TO plain")
    bench.execute(
        "CREATE TABLE {s}.job (LIKE {s}.plain INCLUDING ALL) PARTITION BY RANGE (id)"
    )
    ((options,),) = bench.execute(
        "SELECT array_to_string(reloptions, ', ') FROM pg_class "
        "WHERE oid = '{s}.plain'::regclass"
    )
    bench.execute("DROP TABLE {s}.plain CASCADE")
    begin = time.time_ns() // 1_000_000 - _DAY_MS
    bounds = [
        f"'{ULID.from_int((begin + _DAY_MS * place // number) << 80)}'"
        for place in range(1, number)
    ]
    edges = ["MINVALUE", *bounds, "MAXVALUE"]
    names = [f"job_{place}" for place in range(number)]
    for name, low, high in zip(names, edges[:-1], edges[1:], strict=True):
        bench.execute(
            f"CREATE TABLE {{s}}.{name} PARTITION OF {{s}}.job "
            f"FOR VALUES FROM ({low}) TO ({high}) WITH ({options})"
        )
    bench.execute(
        "ALTER TABLE {s}.payload ADD CONSTRAINT payload_job_fkey "
        "FOREIGN KEY (job_id) REFERENCES {s}.job (id) ON DELETE CASCADE"
    )
    return names


def _drop(bench: Bench, name: str) -> Figure:
    """
    Drop the oldest partition, with the payloads of its jobs, which have none of theirs.
    """
    ((jobs,),) = bench.execute(f"SELECT count(*) FROM {{s}}.{name}")
    bench.execute("ALTER TABLE {s}.payload DROP CONSTRAINT payload_job_fkey")
    started = time.perf_counter()
    bench.execute(f"ALTER TABLE {{s}}.job DETACH PARTITION {{s}}.{name}")
    bench.execute(f"DROP TABLE {{s}}.{name}")
    milliseconds = (time.perf_counter() - started) * 1e3
    return Figure(
        name=f"detach and drop a partition of {int(jobs):,} jobs",
        unit="ms",
        value=milliseconds,
        note="without the foreign key of payload, which would look at each",
    )


def _wal(bench: Bench) -> int:
    ((position,),) = bench.execute(
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    )
    return int(position)
