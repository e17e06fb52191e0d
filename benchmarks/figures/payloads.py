"""
Payloads from small to large: submitted, and fetched again.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import psycopg

from benchmarks import raw
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, compare, quiet, timed
from jobstore.model import NewJob
from jobstore.postgres import PostgresStore
from jobstore.postgres.statements import create as create_sql
from jobstore.postgres.statements import read as read_sql

__all__ = ["measure"]

Connection: TypeAlias = psycopg.Connection[Any]

_SIZES = {"1 KB": (1_000, 500), "100 KB": (100_000, 100), "10 MB": (10_000_000, 3)}


def measure(bench: Bench, _: Tell = quiet) -> Iterator[Figure]:
    """
    Measure create, and payload, for each size.
    """
    store = bench.store()
    try:
        for name, (size, jobs) in _SIZES.items():
            # Random: as compressed as the PDF or image it stands for.
            yield from _one_size(bench, store, name, os.urandom(size), bench.size(jobs))
    finally:
        store.close()


def _one_size(
    bench: Bench, store: PostgresStore, name: str, data: bytes, jobs: int
) -> Iterator[Figure]:
    def new(number: int) -> list[NewJob]:
        return [
            NewJob(kind="bench", payload=data, idem_key=f"{number}-{place}")
            for place in range(jobs)
        ]

    with bench.connect() as connection:
        yield compare(
            f"create with {name}",
            lambda number: _create(store, new(number)),
            lambda number: _raw_create(bench, connection, new(number)),
            against="psycopg, same SQL",
            rounds=bench.rounds,
            before=bench.empty,
        )
        bench.empty()
        ids = [store.create(one).job.id for one in new(0)]
        yield compare(
            f"payload of {name}",
            lambda _: _fetch(store, ids),
            lambda _: _raw_fetch(bench, connection, ids),
            against="psycopg, same SQL, binary",
            rounds=bench.rounds,
        )


def _create(store: PostgresStore, jobs: Sequence[NewJob]) -> float:
    def work() -> None:
        for job in jobs:
            store.create(job)

    return timed(len(jobs), work)


def _raw_create(bench: Bench, raw_one: Connection, jobs: Sequence[NewJob]) -> float:
    statement = bench.render(create_sql.CREATE_JOB)
    given = [raw.create_parameters(job) for job in jobs]

    def work() -> None:
        for parameters in given:
            raw_one.execute(statement, parameters).fetchone()

    return timed(len(jobs), work)


def _fetch(store: PostgresStore, ids: Sequence[str]) -> float:
    def work() -> None:
        for job_id in ids:
            store.payload(job_id)

    return timed(len(ids), work)


def _raw_fetch(bench: Bench, raw_one: Connection, ids: Sequence[str]) -> float:
    statement = bench.render(read_sql.PAYLOAD)

    def work() -> None:
        for job_id in ids:
            raw_one.execute(statement, {"job_id": job_id}, binary=True).fetchone()

    return timed(len(ids), work)
