"""
The raw twins: psycopg alone, sending the store's own SQL with the same parameters.

What they leave out is what a library adds: a pool, checks, values made of rows, time
limits, repeats, translation of errors. Their parameters are built before the clock
starts wherever the work allows it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from benchmarks.bench import Bench
from jobstore.ids import new_id, new_ids
from jobstore.model import NewJob
from jobstore.postgres.floor import NO_FLOOR
from jobstore.postgres.operations.create import arrays_of, row_of
from jobstore.postgres.statements import claim as claim_sql
from jobstore.postgres.statements import create as create_sql
from jobstore.postgres.statements import finish as finish_sql

__all__ = ["INSERT_ROWS", "RawClaims", "claim_parameters", "create_parameters", "rows"]

Parameters = dict[str, Any]

_WORKER = "raw"


def create_parameters(new: NewJob) -> Parameters:
    """
    Return what CREATE_JOB takes, with an id of its own.
    """
    return row_of(new, new_id())


def claim_parameters(limit: int, floor: datetime | str = NO_FLOOR[2]) -> Parameters:
    """
    Return what CLAIM takes; *floor* is that of the class batch, where all jobs are.
    """
    return {
        "queue": "default",
        "limit": limit,
        "worker": _WORKER,
        "lease": None,
        "floor_0": floor,
        "floor_1": floor,
        "floor_2": floor,
    }


class RawClaims:
    """
    Claims and completes on one connection, keeping a claim floor as the store does.
    """

    def __init__(self, bench: Bench, connection: psycopg.Connection[Any]) -> None:
        self._claim = bench.render(claim_sql.CLAIM)
        self._complete = bench.render(finish_sql.COMPLETE)
        self._complete_many = bench.render(finish_sql.COMPLETE_ORPHANS)
        self._connection = connection
        self._floor: datetime | str = NO_FLOOR[2]

    def claim(self, limit: int) -> list[tuple[Any, ...]]:
        """
        Claim with the floor that the last claim left behind.
        """
        parameters = claim_parameters(limit, self._floor)
        found = self._connection.execute(self._claim, parameters).fetchall()
        if found:
            self._floor = found[0][_CREATED_AT]
        return found

    def complete(self, row: Sequence[Any]) -> None:
        """
        Complete one claimed row.
        """
        lease = {"job_id": row[0], "fence": row[_FENCE], "result": None}
        self._connection.execute(self._complete, lease)

    def complete_many(self, claimed: Sequence[Sequence[Any]]) -> None:
        """
        Complete claimed rows with one statement.
        """
        leases = {
            "job_ids": [row[0] for row in claimed],
            "fences": [row[_FENCE] for row in claimed],
            "results": [None] * len(claimed),
        }
        self._connection.execute(self._complete_many, leases).fetchall()


# Where the claim's columns are; jobstore.postgres.rows has the list.
_FENCE = 9
_CREATED_AT = 19

# The least SQL that stores the same rows: three tables, no answer for each, no branches
# for keys that are taken. What create_many is measured against.
_ASKED = create_sql.CREATE_JOBS.partition("), keyed AS")[0]
_VALUES = {
    "status": "'queued'",
    "pages": "pages::int[]",
}
_NAMES = [name.strip() for name in create_sql.NEW_COLUMNS.split(",")]
INSERT_ROWS = f"""
{_ASKED}), keyed AS (
    INSERT INTO {{s}}.idempotency_key (tenant, idem_key, job_id, fingerprint)
    SELECT tenant, idem_key, id, fingerprint FROM asked WHERE idem_key IS NOT NULL
), created AS (
    INSERT INTO {{s}}.job ({create_sql.NEW_COLUMNS})
    SELECT {", ".join(_VALUES.get(name, name) for name in _NAMES)} FROM asked
)
INSERT INTO {{s}}.payload (job_id, content_type, data)
SELECT id, content_type, data FROM asked
"""


def rows(jobs: Sequence[NewJob]) -> Parameters:
    """
    Return what INSERT_ROWS takes: an array for each column.
    """
    return arrays_of(jobs, new_ids(len(jobs)))
