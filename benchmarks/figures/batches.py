"""
Many jobs with one statement.
"""

from collections.abc import Iterator

from benchmarks import load, pgbench, raw
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, compare, quiet, timed
from jobstore.model import Completed, NewJob
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_BATCH = 1_000
_CLAIM = 100


def measure(bench: Bench, _: Tell = quiet) -> Iterator[Figure]:
    """
    Measure create_many(1,000), and claim(100) + set_results of 100 completions.
    """
    store = bench.store()
    try:
        yield _create_many(bench, store)
        yield _claim_many(bench, store)
        if bench.pgbench is not None:
            yield _claim_many_pgbench(bench, store)
    finally:
        store.close()


def _create_many(bench: Bench, store: PostgresStore) -> Figure:
    calls = bench.size(10)
    batch = bench.size(_BATCH)
    statement = bench.render(raw.INSERT_ROWS)

    def new(number: int, call: int) -> list[NewJob]:
        return [
            NewJob(kind="bench", payload=b"x" * 100, idem_key=f"{number}-{call}-{at}")
            for at in range(batch)
        ]

    def turn(number: int) -> float:
        given = [new(number, call) for call in range(calls)]

        def work() -> None:
            for jobs in given:
                store.create_many(jobs)

        return timed(calls * batch, work)

    def twin(number: int) -> float:
        given = [raw.rows(new(number, call)) for call in range(calls)]
        with bench.connect() as connection:
            connection.execute("SELECT 1")

            def work() -> None:
                for arrays in given:
                    connection.execute(statement, arrays)

            return timed(calls * batch, work)

    return compare(
        f"create_many({batch:,})",
        turn,
        twin,
        against="psycopg, INSERT … SELECT unnest",
        rounds=bench.rounds,
        before=bench.empty,
        target=0.6,
    )


def _refill(bench: Bench, calls: int) -> None:
    bench.empty()
    load.queued(bench, 2 * calls * _CLAIM)
    bench.vacuum()


def _claim_many_turn(store: PostgresStore, calls: int) -> float:
    def work() -> None:
        for _ in range(calls):
            claims = store.claim(_CLAIM)
            assert len(claims) == _CLAIM
            store.set_results([(claim.lease, Completed()) for claim in claims])

    return timed(calls * _CLAIM, work)


def _claim_many(bench: Bench, store: PostgresStore) -> Figure:
    calls = bench.size(100)

    def twin(_: int) -> float:
        with bench.connect() as connection:
            claims = raw.RawClaims(bench, connection)

            def work() -> None:
                for _ in range(calls):
                    claims.complete_many(claims.claim(_CLAIM))

            return timed(calls * _CLAIM, work)

    return compare(
        f"claim({_CLAIM}) + set_results({_CLAIM} completed)",
        lambda _: _claim_many_turn(store, calls),
        twin,
        against="psycopg, same SQL",
        rounds=bench.rounds,
        before=lambda: _refill(bench, calls),
    )


def _claim_many_pgbench(bench: Bench, store: PostgresStore) -> Figure:
    calls = bench.size(100)
    return compare(
        f"claim({_CLAIM}) + set_results({_CLAIM} completed)",
        lambda _: _claim_many_turn(store, calls),
        lambda _: pgbench.claim_and_complete(bench, limit=_CLAIM, transactions=calls),
        against="pgbench, same SQL, 1 client",
        rounds=bench.rounds,
        before=lambda: _refill(bench, calls),
        target=0.6,
    )
