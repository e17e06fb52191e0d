"""
MemoryStore and PostgresStore live through the same stories, and differ in nothing.
"""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

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

STORIES = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# A broken store must be found in as many stories; no need to make them short.
HUNT = settings(STORIES, max_examples=500, phases=[Phase.generate], print_blob=False)


def test_memory_and_postgres_agree(
    dsn: str, schema: str, empty: Callable[[], None]
) -> None:
    class Machine(AgreementMachine):
        def other(self) -> Harness:
            empty()
            return PostgresHarness(dsn, schema)

    run_state_machine_as_test(Machine, settings=STORIES)


@pytest.fixture
def empty(dsn: str, schema: str) -> Callable[[], None]:
    def truncate() -> None:
        with servers.connect(dsn) as connection:
            connection.execute(
                psycopg.sql.SQL("TRUNCATE {}, {}, {}, {}").format(
                    *(
                        psycopg.sql.Identifier(schema, table)
                        for table in ("job", "payload", "idempotency_key", "attempt")
                    )
                )
            )

    return truncate


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
