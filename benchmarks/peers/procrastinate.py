"""
Procrastinate with psycopg: ``pip install procrastinate``.

Arguments: DSN, schema, what (enqueue, bulk or drain), how many jobs. Prints jobs per
second.
"""

import asyncio
import sys
import time

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

_BATCH = 1_000
_CONCURRENCY = 100


async def _main(dsn: str, schema: str, what: str, jobs: int) -> float:
    connector = PsycopgConnector(
        conninfo=dsn, kwargs={"options": f"-c search_path={schema}"}
    )
    app = App(connector=connector)

    @app.task(queue="bench")  # type: ignore[untyped-decorator]
    async def no_op(text: str) -> None:
        pass

    async with app.open_async():
        execute = connector.execute_query_async
        await execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await execute(f'CREATE SCHEMA "{schema}"')
        try:
            await app.schema_manager.apply_schema_async()
            await no_op.defer_async(text="x" * 100)
            if what == "enqueue":
                started = time.perf_counter()
                for _ in range(jobs):
                    await no_op.defer_async(text="x" * 100)
                return jobs / (time.perf_counter() - started)
            started = time.perf_counter()
            for _ in range(jobs // _BATCH):
                await no_op.batch_defer_async(*[{"text": "x" * 100}] * _BATCH)
            if what == "bulk":
                return jobs / (time.perf_counter() - started)
            started = time.perf_counter()
            await app.run_worker_async(
                wait=False,
                concurrency=_CONCURRENCY,
                install_signal_handlers=False,
                delete_jobs="successful",
            )
            return jobs / (time.perf_counter() - started)
        finally:
            await execute(f'DROP SCHEMA "{schema}" CASCADE')


if __name__ == "__main__":
    rate = asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
    sys.stdout.write(f"{rate}\n")
