"""
Other Python queues beside this one, on the same server and as durable.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks import load, workers
from benchmarks import peers as programs
from benchmarks.bench import Bench, libpq_dsn
from benchmarks.measure import Figure, Tell, Turn, compare, quiet, timed
from jobstore.model import NewJob
from jobstore.postgres import AsyncPostgresStore, PostgresStore

__all__ = ["PEERS", "PYTHON_VARIABLE", "measure"]

PEERS = ("pgqueuer", "procrastinate")
PYTHON_VARIABLE = "JOBSTORE_BENCH_PEERS"
"""Names the Python, in an environment of its own, that has the peers installed."""

_BATCH = 1_000


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Measure enqueue, bulk enqueue and draining, against each peer that is installed.

    Without keys, which they are not asked for either.
    """
    if PYTHON_VARIABLE not in os.environ:
        tell(f"{PYTHON_VARIABLE} names no Python with peers")
        return
    store, blocking = bench.async_store(), bench.store()
    single, many = bench.size(1_000), bench.size(20) * _BATCH
    with asyncio.Runner() as runner:
        turns: dict[str, tuple[int, Callable[[], float]]] = {
            "enqueue": (single, lambda: _enqueue(blocking, single)),
            "enqueue, async": (single, lambda: _enqueue_async(runner, store, single)),
            "bulk": (many, lambda: _bulk(runner, store, many)),
            "drain": (many, lambda: _drain(bench, many)),
        }
        try:
            for peer in PEERS:
                yield from _against(bench, tell, peer, turns)
        finally:
            runner.run(store.close())
            blocking.close()


def _against(
    bench: Bench,
    tell: Tell,
    peer: str,
    turns: Mapping[str, tuple[int, Callable[[], float]]],
) -> Iterator[Figure]:
    for what, (jobs, turn) in turns.items():
        tell(f"{peer}: {what}")
        yield compare(
            f"{what}, against {peer}",
            _each(turn),
            _each(partial(_peer, bench, peer, what.partition(",")[0], jobs)),
            against=peer,
            rounds=max(1, bench.rounds // 2 + 1),
            before=bench.empty,
            target=1.0,
        )


def _each(work: Callable[[], float]) -> Turn:
    return lambda _: work()


def _new() -> NewJob:
    return NewJob(kind="bench", payload=b"x" * 100)


def _enqueue(store: PostgresStore, jobs: int) -> float:
    def work() -> None:
        for _ in range(jobs):
            store.create(_new())

    return timed(jobs, work)


def _enqueue_async(
    runner: asyncio.Runner, store: AsyncPostgresStore, jobs: int
) -> float:
    async def work() -> None:
        for _ in range(jobs):
            await store.create(_new())

    return timed(jobs, lambda: runner.run(work()))


def _bulk(runner: asyncio.Runner, store: AsyncPostgresStore, jobs: int) -> float:
    async def work() -> None:
        for _ in range(jobs // _BATCH):
            await store.create_many([_new()] * _BATCH)

    return timed(jobs, lambda: runner.run(work()))


def _drain(bench: Bench, jobs: int) -> float:
    load.queued(bench, jobs)
    bench.vacuum()
    with workers.started(bench, concurrency=100) as running:
        return running.finish(jobs)


def _peer(bench: Bench, peer: str, what: str, jobs: int) -> float:
    program = Path(programs.__file__).parent / f"{peer}.py"
    answer = subprocess.run(  # noqa: S603 - a program of ours
        # Its folder is not searched: there it would find itself as the library.
        [
            os.environ[PYTHON_VARIABLE],
            "-P",
            program,
            libpq_dsn(bench.dsn),
            f"{bench.schema}_peer",
            what,
            str(jobs),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        message = f"{peer} failed:\n{answer.stderr}"
        raise RuntimeError(message)
    return float(answer.stdout.splitlines()[-1])
