"""
One worker process to be measured: ``python -m benchmarks.worker_process``.

It says on its output, line by line, how it fares; `benchmarks.workers` reads that. So
nothing but the worker itself puts load on the database.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from jobstore.postgres import AsyncPostgresStore
from jobstore.worker import AsyncContext, Handlers, Worker

REPORT_SECONDS = 0.02


def main() -> None:
    """
    Say that all is imported, wait for a line, work until the input ends.
    """
    settings: dict[str, Any] = json.loads(sys.argv[1])
    handlers = Handlers()
    lags: list[float] = []

    @handlers.on("bench")
    async def _no_op(_: AsyncContext) -> None:
        pass

    @handlers.on("latency")
    async def _timed(context: AsyncContext) -> None:
        # The clock is the machine's, so it means the same in both processes.
        created = int(context.job.idem_key or 0)
        lags.append((time.monotonic_ns() - created) / 1e6)

    store = AsyncPostgresStore(settings["dsn"], schema=settings["schema"])
    worker = Worker(store, handlers, concurrency=settings["concurrency"])
    _say({"ready": True})
    sys.stdin.readline()
    threading.Thread(target=_stop_at_end_of_input, args=[worker], daemon=True).start()
    threading.Thread(target=_report, args=[worker, lags], daemon=True).start()
    worker.run()


def _stop_at_end_of_input(worker: Worker) -> None:
    sys.stdin.read()
    worker.stop()


def _report(worker: Worker, lags: list[float]) -> None:
    last = -1
    while True:
        completed = worker.health().completed
        if completed != last:
            news, lags[:] = list(lags), []
            _say(
                {
                    "at": time.monotonic(),
                    "completed": completed,
                    "rss": _resident_bytes(),
                    "lags": news,
                }
            )
            last = completed
        time.sleep(REPORT_SECONDS)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
