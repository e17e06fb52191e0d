"""
One job at a time: where the library's own cost weighs most.
"""

import asyncio
from collections.abc import Iterator

from benchmarks import load, raw
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, compare, quiet, timed
from jobstore.model import NewJob
from jobstore.postgres import AsyncPostgresStore, PostgresStore
from jobstore.postgres.statements import create as create_sql

__all__ = ["measure"]

_JOBS = 1_000
_AGAINST = "psycopg, same SQL"


def measure(bench: Bench, _: Tell = quiet) -> Iterator[Figure]:
    """
    Measure create, and claim + complete, in both colours.
    """
    jobs = bench.size(_JOBS)
    store = bench.store()
    with asyncio.Runner() as runner:
        async_store = bench.async_store()
        try:
            yield _create(bench, store, jobs)
            yield _claim(bench, store, jobs)
            yield _create_async(bench, async_store, runner, jobs)
            yield _claim_async(bench, async_store, runner, jobs)
        finally:
            runner.run(async_store.close())
            store.close()


def _new(number: int, place: int) -> NewJob:
    return NewJob(kind="bench", payload=b"x" * 100, idem_key=f"key-{number}-{place}")


def _raw_create(bench: Bench, jobs: int, number: int) -> float:
    statement = bench.render(create_sql.CREATE_JOB)
    given = [raw.create_parameters(_new(number, place)) for place in range(jobs)]
    with bench.connect() as connection:
        connection.execute("SELECT 1")

        def work() -> None:
            for parameters in given:
                connection.execute(statement, parameters).fetchone()

        return timed(jobs, work)


def _create(bench: Bench, store: PostgresStore, jobs: int) -> Figure:
    def turn(number: int) -> float:
        new = [_new(number, place) for place in range(jobs)]

        def work() -> None:
            for one in new:
                store.create(one)

        return timed(jobs, work)

    return compare(
        "create, one at a time",
        turn,
        lambda number: _raw_create(bench, jobs, number),
        against=_AGAINST,
        rounds=bench.rounds,
        before=bench.empty,
        target=0.75,
    )


def _create_async(
    bench: Bench, store: AsyncPostgresStore, runner: asyncio.Runner, jobs: int
) -> Figure:
    def turn(number: int) -> float:
        new = [_new(number, place) for place in range(jobs)]

        async def work() -> None:
            for one in new:
                await store.create(one)

        return timed(jobs, lambda: runner.run(work()))

    return compare(
        "create, one at a time, async",
        turn,
        lambda number: _raw_create(bench, jobs, number),
        against=_AGAINST,
        rounds=bench.rounds,
        before=bench.empty,
        target=0.55,
    )


def _refill(bench: Bench, jobs: int) -> None:
    bench.empty()
    load.queued(bench, 2 * jobs)
    bench.vacuum()


def _raw_claims(bench: Bench, jobs: int) -> float:
    with bench.connect() as connection:
        twin = raw.RawClaims(bench, connection)

        def work() -> None:
            for _ in range(jobs):
                (row,) = twin.claim(1)
                twin.complete(row)

        return timed(jobs, work)


def _claim(bench: Bench, store: PostgresStore, jobs: int) -> Figure:
    def work() -> None:
        for _ in range(jobs):
            claim = store.claim_next()
            assert claim is not None
            store.complete(claim.lease)

    return compare(
        "claim + complete, one at a time",
        lambda _: timed(jobs, work),
        lambda _: _raw_claims(bench, jobs),
        against=_AGAINST,
        rounds=bench.rounds,
        before=lambda: _refill(bench, jobs),
        target=0.75,
    )


def _claim_async(
    bench: Bench, store: AsyncPostgresStore, runner: asyncio.Runner, jobs: int
) -> Figure:
    async def work() -> None:
        for _ in range(jobs):
            claim = await store.claim_next()
            assert claim is not None
            await store.complete(claim.lease)

    return compare(
        "claim + complete, one at a time, async",
        lambda _: timed(jobs, lambda: runner.run(work())),
        lambda _: _raw_claims(bench, jobs),
        against=_AGAINST,
        rounds=bench.rounds,
        before=lambda: _refill(bench, jobs),
        target=0.55,
    )
