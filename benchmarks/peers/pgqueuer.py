"""
PgQueuer with asyncpg: ``pip install pgqueuer asyncpg``.

Arguments: DSN, schema, what (enqueue, bulk or drain), how many jobs. Prints jobs per
second. Its tables are logged, which is its default and as durable as ours.
"""

import asyncio
import sys
import time
from datetime import timedelta

import asyncpg  # type: ignore[import-not-found]
from pgqueuer import QueueManager  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]

_BATCH = 1_000
_DEQUEUE = 100


async def _main(dsn: str, schema: str, what: str, jobs: int) -> float:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
    try:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await connection.execute(f'CREATE SCHEMA "{schema}"')
        driver = AsyncpgDriver(connection)
        queries = Queries(driver)
        await queries.install()
        # One to warm up: plans and caches.
        await queries.enqueue("bench", b"x" * 100)
        if what == "enqueue":
            started = time.perf_counter()
            for _ in range(jobs):
                await queries.enqueue("bench", b"x" * 100)
            return jobs / (time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(jobs // _BATCH):
            await queries.enqueue(
                ["bench"] * _BATCH, [b"x" * 100] * _BATCH, [0] * _BATCH
            )
        if what == "bulk":
            return jobs / (time.perf_counter() - started)
        await connection.execute("VACUUM ANALYZE")
        return await _drain(queries, jobs)
    finally:
        await connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
        await connection.close()


async def _drain(queries: Queries, jobs: int) -> float:
    manager = QueueManager(queries)

    @manager.entrypoint("bench")  # type: ignore[untyped-decorator]
    async def _no_op(_: object) -> None:
        pass

    started = time.perf_counter()
    await manager.run(
        mode=QueueExecutionMode.drain,
        batch_size=_DEQUEUE,
        dequeue_timeout=timedelta(seconds=1),
    )
    return jobs / (time.perf_counter() - started)


if __name__ == "__main__":
    rate = asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
    sys.stdout.write(f"{rate}\n")
