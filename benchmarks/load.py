"""
Filling the tables in bulk, by the server itself.

Rows come as the store would have written them, indexes and checks included; only the
ids are made in SQL: a ULID's time from created_at, and a running number after it.
"""

import random

import psycopg

from benchmarks.bench import Bench
from benchmarks.measure import Tell, quiet

__all__ = ["finished", "queued", "scheduled"]

# 26 characters of Crockford's alphabet: 10 of time (milliseconds), 16 of number. Digits
# of base 32 are taken by shifts; generate_series would be a subquery for each row.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _base32(number: str, digits: int) -> str:
    return " || ".join(
        f"substr('{_ALPHABET}', (({number} >> {5 * place}) & 31)::int + 1, 1)"
        for place in reversed(range(digits))
    )


# Four digits of each load's own: two loads may meet in a millisecond and a number.
_MARK = "'----'"

_ID = (
    f"{_base32('(extract(epoch FROM at) * 1000)::bigint', 10)}"
    f" || {_MARK} || {_base32('n', 12)}"
)

_ROWS = f"""
    SELECT {_ID} AS id, at, n
    FROM (
        SELECT n::bigint AS n,
            statement_timestamp() - %s::interval
                + n * ((%s::interval - interval '10 minutes') / %s) AS at
        FROM generate_series(%s::bigint, %s::bigint) AS n
    ) AS numbered
"""

# One statement for all: each row of `job` takes its payload along, as a create does.
_QUEUED = f"""
WITH rows AS MATERIALIZED ({_ROWS}),
jobs AS (
    INSERT INTO {{s}}.job (
        id, tenant, kind, queue, status, created_at, updated_at, available_at
    )
    SELECT id, 'tenant-' || n %% %s, 'bench', %s, %s, at, at,
        coalesce(statement_timestamp() + %s::interval, at)
    FROM rows
)
INSERT INTO {{s}}.payload (job_id, data) SELECT id, '\\x00' FROM rows
"""

_FINISHED = f"""
WITH rows AS MATERIALIZED ({_ROWS}),
jobs AS (
    INSERT INTO {{s}}.job (
        id, kind, queue, status, created_at, updated_at, available_at, started_at,
        finished_at, attempts, fence, worker
    )
    SELECT id, 'bench', 'default', 'completed', at, at, at, at, at, 1, 1, 'loader'
    FROM rows
)
INSERT INTO {{s}}.payload (job_id, data) SELECT id, '\\x00' FROM rows
"""

_CHUNK = 250_000


def queued(
    bench: Bench,
    jobs: int,
    *,
    tenants: int = 1,
    queue: str = "default",
    tell: Tell = quiet,
) -> None:
    """
    Add *jobs* queued ones, created over the last hour, in the order of their ids.
    """
    _load(
        bench, _QUEUED, jobs, "1 hour", more=(tenants, queue, "queued", None), tell=tell
    )


def scheduled(bench: Bench, jobs: int, *, due_in: str, tell: Tell = quiet) -> None:
    """
    Add *jobs* that become due after *due_in* (an interval), all at once.

    Created over the last day, so that most are older than what `queued` adds.
    """
    _load(
        bench,
        _QUEUED,
        jobs,
        "1 day",
        more=(1, "default", "scheduled", due_in),
        tell=tell,
    )


def finished(bench: Bench, jobs: int, *, tell: Tell = quiet) -> None:
    """
    Add *jobs* completed ones, finished over the last day.
    """
    _load(bench, _FINISHED, jobs, "1 day", more=(), tell=tell)


def _load(
    bench: Bench,
    statement: str,
    jobs: int,
    since: str,
    *,
    more: tuple[object, ...],
    tell: Tell,
) -> None:
    mark = "".join(random.choices(_ALPHABET, k=4))
    text = bench.in_schema(statement.replace(_MARK, f"'{mark}'"))
    with bench.connect_plain() as connection:
        connection.execute("SET synchronous_commit = off")
        try:
            # What is loaded is right by construction: spare the look for each parent.
            connection.execute("SET session_replication_role = replica")
        except psycopg.errors.InsufficientPrivilege:
            tell("loading more slowly, for want of a superuser")
        for first in range(0, jobs, _CHUNK):
            last = min(first + _CHUNK, jobs) - 1
            tell(f"loading: {first:,} of {jobs:,} rows")
            connection.execute(text, (since, since, jobs, first, last, *more))
