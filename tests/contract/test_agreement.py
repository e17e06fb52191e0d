"""
MemoryStore and PostgresStore live through the same stories, and differ in nothing.

The stories are the same at every run, and few. For new ones and many, say how many:
``JOBSTORE_TEST_STORIES=5000 pytest tests/contract/test_agreement.py --timeout 0``.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from psycopg import sql

from jobstore import (
    Created,
    Job,
    JobStatus,
    Lease,
    LeaseLost,
    MemoryStore,
    NewJob,
    Outcome,
    Reclaimed,
)
from jobstore.errors import JobNotFound
from jobstore.testing import MAX_PAYLOAD_BYTES, RETRY, Harness, MemoryHarness
from jobstore.testing.machine import AgreementMachine
from tests import servers
from tests.contract.postgres_harness import PostgresHarness

_WANTED = os.environ.get("JOBSTORE_TEST_STORIES")

STORIES = settings(
    max_examples=int(_WANTED or 100),
    stateful_step_count=40,
    deadline=None,
    derandomize=not _WANTED,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# A broken store must be found in few stories too; no need to make them short.
HUNT = settings(
    STORIES,
    max_examples=3000,
    derandomize=True,
    phases=[Phase.generate],
    print_blob=False,
)

TABLES = ("job", "payload", "idempotency_key", "attempt")


class Reused(PostgresHarness):
    """
    One for all stories: opening a store takes longer than most of them.
    """

    def close(self) -> None:
        pass


@pytest.fixture
def reused(dsn: str, schema: str) -> Iterator[Callable[[], Harness]]:
    harness = Reused(dsn, schema)
    with servers.connect(dsn) as hand:

        def begin_anew() -> Harness:
            empty(hand, schema)
            return harness

        yield begin_anew
    PostgresHarness.close(harness)


def empty(hand: "psycopg.Connection[tuple[object, ...]]", schema: str) -> None:
    # DELETE in one go: on tables this small, TRUNCATE takes fifty times as long.
    names = {table: sql.Identifier(schema, table) for table in TABLES}
    hand.execute(
        sql.SQL(
            "WITH a AS (DELETE FROM {attempt}), b AS (DELETE FROM {payload}), "
            "c AS (DELETE FROM {idempotency_key}) DELETE FROM {job}"
        ).format(**names)
    )


def test_memory_and_postgres_agree(reused: Callable[[], Harness]) -> None:
    class Machine(AgreementMachine):
        def other(self) -> Harness:
            return reused()

    run_state_machine_as_test(Machine, settings=STORIES)


class ChargesReleases(MemoryStore):
    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        answers = super().set_results(outcomes)
        for lease, _ in outcomes:
            if job := self._state.jobs.get(lease.job_id):
                with self._state.transaction() as state:
                    state.store_job(dataclasses.replace(job, attempts=job.fence))
        return answers


class ForgetsKeys(MemoryStore):
    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        unkeyed = dataclasses.replace(new, idem_key=None)
        return super().create(unkeyed, strict=strict, job_id=job_id)


class ReclaimsGrantedLeases(MemoryStore):
    def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        self._state.leases.clear()
        return super().reclaim_stale(visibility_timeout, limit=limit)


class ResetsFences(MemoryStore):
    def requeue(self, job_id: str) -> Job:
        job = super().requeue(job_id)
        with self._state.transaction() as state:
            state.store_job(dataclasses.replace(job, fence=0))
        return job


@pytest.mark.parametrize(
    "broken",
    [ChargesReleases, ForgetsKeys, ReclaimsGrantedLeases, ResetsFences],
)
def test_a_broken_store_is_caught(broken: type[MemoryStore]) -> None:
    class Machine(AgreementMachine):
        def other(self) -> Harness:
            return MemoryHarness(
                broken(retry=RETRY, max_payload_bytes=MAX_PAYLOAD_BYTES)
            )

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=HUNT)


def test_the_machine_agrees_with_itself() -> None:
    class Machine(AgreementMachine):
        def other(self) -> Harness:
            return MemoryHarness()

    run_state_machine_as_test(Machine, settings=STORIES)
