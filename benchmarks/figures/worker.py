"""
Whole worker processes with a handler that does nothing.
"""

import random
import time
from collections.abc import Iterator

from benchmarks import load, pgbench, workers
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, compare, percentile, quiet
from jobstore.model import NewJob

__all__ = ["latency", "memory", "processes", "throughput"]

_BATCH = 100
# Left in the queue, so that no claim of either side comes back short.
_MORE = 2_000
_BEST = 100
"""Concurrency at which a worker of no-op jobs is fastest, by these figures."""


def throughput(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Drain a queue with one process, at several numbers of jobs in hand.
    """
    clients = _best_clients(bench)
    sizes = {1: 2_000, 10: 10_000, _BEST: 30_000, 500: 30_000}
    for concurrency, jobs in sizes.items():
        tell(f"one worker process, concurrency {concurrency}")
        yield _drain(
            bench,
            f"worker, 1 process, concurrency {concurrency}",
            bench.size(jobs),
            clients,
            concurrency=concurrency,
            target=0.4 if concurrency == _BEST else None,
        )


def processes(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Drain a queue with several processes.
    """
    clients = _best_clients(bench)
    for number in (1, 2, 4, 8):
        tell(f"{number} worker processes")
        yield _drain(
            bench,
            f"worker, {number} processes, concurrency {_BEST} each",
            bench.size(30_000),
            clients,
            concurrency=_BEST,
            processes=number,
        )


def latency(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Create single jobs for an idle worker, and time how long until the handler starts.

    The clock runs from before the create, so it holds the create itself too.
    """
    bench.empty()
    tell("pickup latency")
    lags: list[float] = []
    pause = random.Random(1)
    store = bench.store()
    samples = bench.size(200)
    try:
        with workers.started(bench, concurrency=10) as running:
            running.go()
            time.sleep(1.0)
            reports = running.reports()
            # The first few find cold caches on both sides.
            for sample in range(samples + 5):
                store.create(NewJob(kind="latency", idem_key=str(time.monotonic_ns())))
                while running.completed <= sample:
                    lags.extend(next(reports).lags)
                time.sleep(pause.uniform(0.02, 0.08))
    finally:
        store.close()
    lags = lags[5:]
    targets = {"p50": 5.0, "p95": None, "p99": 30.0}
    for name, target in targets.items():
        yield Figure(
            name=f"pickup latency, idle, {name}",
            unit="ms",
            value=percentile(lags, int(name[1:]) / 100),
            target=target,
            at_most=True,
            details={"samples": len(lags)},
        )


def memory(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Watch a worker's resident memory over many jobs.
    """
    jobs = bench.size(100_000)
    bench.empty()
    load.queued(bench, jobs)
    bench.vacuum()
    sizes: list[tuple[int, int]] = []
    with workers.started(bench, concurrency=_BEST) as running:
        running.go()
        for report in running.reports(until=jobs):
            sizes.append((report.completed, report.rss))
            tell(f"memory of a worker: {report.completed:,} of {jobs:,} jobs")
    # Its pools, threads and caches fill up in the first tenth.
    early = max(rss for completed, rss in sizes if completed <= max(jobs // 10, 1_000))
    late = max(rss for completed, rss in sizes if completed >= jobs * 9 // 10)
    yield Figure(
        name=f"worker memory, growth over {jobs:,} jobs",
        unit="MB",
        value=(late - early) / 1e6,
        target=20,
        at_most=True,
        note=f"{late / 1e6:.0f} MB resident in the end",
    )


def _drain(
    bench: Bench,
    name: str,
    jobs: int,
    clients: int | None,
    *,
    concurrency: int,
    processes: int = 1,
    target: float | None = None,
) -> Figure:
    def refill() -> None:
        bench.empty()
        load.queued(bench, jobs + _MORE)
        bench.vacuum()

    def turn(_: int) -> float:
        with workers.started(
            bench, processes=processes, concurrency=concurrency
        ) as running:
            return running.finish(jobs)

    if clients is None:
        refill()
        return Figure(name=name, unit="jobs/s", value=turn(0), note="pgbench not found")
    return compare(
        name,
        turn,
        lambda _: _pgbench(bench, clients, jobs),
        against=f"pgbench, claim + complete of {_BATCH}, {clients} clients",
        rounds=max(1, bench.rounds // 2 + 1),
        before=refill,
        target=target,
    )


def _pgbench(bench: Bench, clients: int, jobs: int) -> float:
    return pgbench.claim_and_complete(
        bench, limit=_BATCH, transactions=max(clients, jobs // _BATCH), clients=clients
    )


def _best_clients(bench: Bench) -> int | None:
    """
    Find with how many clients pgbench is fastest here.
    """
    if bench.pgbench is None:
        return None
    jobs = bench.size(20_000)
    rates = {}
    for clients in (1, 2, 4):
        bench.empty()
        load.queued(bench, jobs + _MORE)
        bench.vacuum()
        rates[clients] = _pgbench(bench, clients, jobs)
    return max(rates, key=lambda clients: rates[clients])
