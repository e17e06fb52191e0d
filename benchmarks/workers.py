"""
Worker processes under measurement, seen from outside.
"""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.bench import Bench

__all__ = ["Report", "Workers", "started"]

# A worker that says nothing for this long hangs.
_SILENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """
    What one process said at one moment.
    """

    worker: int
    at: float
    """By the machine's monotonic clock."""
    completed: int
    """Jobs that it has completed and committed so far."""
    rss: int
    lags: list[float] = field(default_factory=list)
    """Milliseconds from create to handler, for jobs of the kind ``latency``."""


class Workers:
    """
    A group of worker processes, ready to go.
    """

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes
        self._news: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._completed = [0] * len(processes)
        self.readers: list[threading.Thread] = []

    def wait_ready(self) -> None:
        """
        Wait until all have imported what they need.
        """
        for number, process in enumerate(self._processes):
            output = _pipe(process.stdout)
            if not output.readline():
                message = f"worker {number} ended before it began"
                raise RuntimeError(message)
            reader = threading.Thread(
                target=self._read, args=[number, output], daemon=True
            )
            reader.start()
            self.readers.append(reader)

    def go(self) -> float:
        """
        Have all begin; return when that was.
        """
        started = time.monotonic()
        for process in self._processes:
            given = _pipe(process.stdin)
            given.write("go\n")
            given.flush()
        return started

    def reports(self, until: int | None = None) -> Iterator[Report]:
        """
        Give reports as they come, until all together completed *until* jobs.
        """
        while until is None or self.completed < until:
            try:
                report = self._news.get(timeout=_SILENCE_SECONDS)
            except queue.Empty:
                message = f"the workers hang after {self.completed:,} jobs"
                raise RuntimeError(message) from None
            self._completed[report.worker] = report.completed
            yield report

    def finish(self, jobs: int) -> float:
        """
        Go, and return how many of *jobs* were completed per second.
        """
        started = self.go()
        ended = started
        for report in self.reports(until=jobs):
            ended = max(ended, report.at)
        return jobs / (ended - started)

    @property
    def completed(self) -> int:
        """
        Jobs that all together have completed.
        """
        return sum(self._completed)

    def _read(self, number: int, output: IO[str]) -> None:
        for line in output:
            self._news.put(Report(number, **json.loads(line)))


@contextlib.contextmanager
def started(bench: Bench, *, processes: int = 1, concurrency: int) -> Iterator[Workers]:
    """
    Start worker processes that wait for `Workers.go`; end them afterwards.
    """
    settings = {
        "dsn": bench.dsn,
        "schema": bench.schema,
        "concurrency": concurrency,
    }
    running = [
        subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "benchmarks.worker_process", json.dumps(settings)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    workers = Workers(running)
    try:
        workers.wait_ready()
        yield workers
    finally:
        for process in running:
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).close()
        for process in running:
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in workers.readers:
            reader.join()
        for process in running:
            _pipe(process.stdout).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "it was asked for"
    return pipe
