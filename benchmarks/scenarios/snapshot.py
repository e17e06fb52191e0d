"""
Full load while somebody holds an old snapshot: a report, a dump, a forgotten session.
"""

import statistics
import threading
import time
from collections.abc import Iterator

from benchmarks import load, plot, workers
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, quiet
from jobstore.model import NewJob
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_HELD_SECONDS = 120
_WARM_SECONDS = 5
_EDGE_SECONDS = 10
_BACKLOG = 20_000
_BATCH = 500


class _Producer:
    """
    Keeps the queue at its length, from a thread.
    """

    def __init__(self, store: PostgresStore, running: workers.Workers) -> None:
        self._store = store
        self._running = running
        self._created = _BACKLOG
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._created - self._running.completed >= _BACKLOG:
                self._ended.wait(0.005)
                continue
            self._store.create_many([NewJob(kind="bench")] * _BATCH)
            self._created += _BATCH


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Run one worker and one producer; compare the end of the hold with the start.
    """
    held = bench.size(_HELD_SECONDS, least=2)
    edge = min(_EDGE_SECONDS, held)
    bench.empty()
    load.queued(bench, _BACKLOG)
    bench.vacuum()
    store = bench.store(wake_ups=False)
    rates: list[tuple[float, float]] = []
    try:
        with workers.started(bench, concurrency=100) as running:
            started = running.go()
            producer = _Producer(store, running)
            warm = min(_WARM_SECONDS, held)
            free = warm + edge
            _watch(running, started, free, rates, tell)
            with bench.connect_plain() as other:
                other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                other.execute(bench.in_schema("SELECT FROM {s}.job LIMIT 1"))
                _watch(running, started, free + held, rates, tell)
            _watch(running, started, free + held + edge, rates, tell)
            producer.end()
    finally:
        store.close()
    before = _mean(rates, warm, free)
    after = _mean(rates, free + held - edge, free + held)
    path = plot.over_time(
        bench.folder / "snapshot.svg",
        rates,
        title="One worker and one producer, an old snapshot held",
        marked=(free, free + held),
    )
    yield Figure(
        name=f"after {held} s with a held snapshot",
        unit="jobs/s",
        value=after,
        twin=f"{edge} s before it",
        twin_value=before,
        ratio=after / before,
        target=0.7,
        note=f"plot: {path}" if path else "no plot: matplotlib is not installed",
        details={"rates": rates},
    )


def _watch(
    running: workers.Workers,
    started: float,
    until: float,
    rates: list[tuple[float, float]],
    tell: Tell,
) -> None:
    """
    Note how many jobs each second completed, up to *until* seconds after *started*.
    """
    reports = running.reports()
    last_at, last_completed = time.monotonic(), running.completed
    while time.monotonic() < started + until:
        report = next(reports)
        if report.at - last_at < 1.0:
            continue
        rate = (running.completed - last_completed) / (report.at - last_at)
        rates.append((report.at - started, rate))
        last_at, last_completed = report.at, running.completed
        tell(f"{report.at - started:.0f} s: {rate:,.0f} jobs/s")


def _mean(rates: list[tuple[float, float]], begin: float, end: float) -> float:
    within = [rate for at, rate in rates if begin < at <= end + 1]
    return statistics.fmean(within)
