"""
The runtime's role does all that stores and workers do, and nothing else.
"""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobstore import AsyncPostgresStore, Context, JobStatus, NewJob, PostgresStore
from jobstore.testing import Harness, StoreContract
from jobstore.worker import Worker
from tests.contract.postgres_harness import PostgresHarness
from tests.grants.conftest import Granted
from tests.postgres.test_schemas import live_a_life
from tests.worker.conftest import wait_for

PATIENCE_SECONDS = 30.0


@pytest.fixture
def store(clean: Granted) -> Iterator[PostgresStore]:
    made = PostgresStore(clean.runtime)
    yield made
    made.close()


class TestTheRuntimeKeepsTheWholeContract(StoreContract):
    @pytest.fixture
    def harness(self, clean: Granted) -> Iterator[Harness]:
        harness = PostgresHarness(clean.admin, "jobstore", as_role=clean.runtime)
        yield harness
        harness.close()


def test_every_verb_in_both_colours(clean: Granted, store: PostgresStore) -> None:
    live_a_life(store)

    async def once() -> None:
        twin = AsyncPostgresStore(clean.runtime)
        made = await twin.create(NewJob(kind="k", queue="async"))
        claim = await twin.claim_next(queue="async")
        assert claim is not None
        assert claim.job.id == made.job.id
        await twin.complete(claim.lease, b"r")
        await twin.close()

    asyncio.run(once())


def test_it_prunes_payloads_history_and_keys_with_their_jobs(
    clean: Granted, store: PostgresStore
) -> None:
    store.create(NewJob(kind="k", payload=b"p", idem_key="k"))
    claim = store.claim_next()
    assert claim is not None
    store.fail(claim.lease, error_code="E", final=True)
    clean.ask("admin", "UPDATE jobstore.job SET finished_at = now() - interval '9 d'")
    assert store.prune(timedelta(days=1)) == 1
    for table in ("job", "payload", "attempt", "idempotency_key"):
        assert clean.ask("admin", f"SELECT count(*) FROM jobstore.{table}") == [(0,)]


def test_a_worker_runs_fans_out_and_is_woken(store: PostgresStore) -> None:
    def parent(context: Context) -> bytes | None:
        if context.job.children_total:
            return b"whole"
        context.fan_out([context.job.child(kind="part") for _ in range(3)])
        return None

    def part(_context: Context) -> bytes:
        return b"a part"

    listens, woken = threading.Event(), threading.Event()
    listening = store.listen(
        lambda queue: listens.set() if queue is None else woken.set()
    )
    worker = Worker(
        store,
        {"parent": parent, "part": part},
        upkeep_every=timedelta(milliseconds=100),
        poll_every=timedelta(milliseconds=50),
        prune_after=timedelta(days=1),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert listens.wait(PATIENCE_SECONDS)
        job = store.create(NewJob(kind="parent")).job
        assert woken.wait(PATIENCE_SECONDS)
        done = wait_for(store, job.id, JobStatus.COMPLETED, JobStatus.FAILED)
        assert done.result == b"whole"
    finally:
        worker.stop()
        thread.join(PATIENCE_SECONDS)
        listening.close()
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE jobstore.job CASCADE",
        "TRUNCATE jobstore.attempt",
        "UPDATE jobstore.payload SET data = ''",
        "DELETE FROM jobstore.payload",
        "UPDATE jobstore.attempt SET worker = 'somebody else'",
        "DELETE FROM jobstore.attempt",
        # The audit is the operator's: no runtime forges it, reads it or clears it.
        "INSERT INTO jobstore.audit (action, reason, job_ids) VALUES ('a', 'b', '{}')",
        "SELECT * FROM jobstore.audit",
        "UPDATE jobstore.audit SET who = 'somebody else'",
        "DELETE FROM jobstore.audit",
        "SELECT setval('jobstore.audit_id_seq', 1)",
        "SELECT nextval('jobstore.audit_id_seq')",
        # Nor does it act as an operator.
        "SELECT * FROM jobstore.requeue_job('x', 'why', false)",
        "SELECT * FROM jobstore.cancel_job('x', 'why', false)",
        "SELECT * FROM jobstore.release_worker('w', 'why', false)",
        "SELECT * FROM jobstore.retry_failed('why', false)",
        "SELECT * FROM jobstore._reopen('{}')",
        "SELECT jobstore.explain_job('x')",
        "SELECT * FROM jobstore.queue_health",
        # Nor does it change the schema, or say that it did.
        "UPDATE jobstore.jobstore_version SET version_num = '0001'",
        "DELETE FROM jobstore.jobstore_version",
        "CREATE TABLE jobstore.mine (id int)",
        "CREATE FUNCTION jobstore.mine() RETURNS int LANGUAGE sql RETURN 1",
        "ALTER TABLE jobstore.job ADD COLUMN mine int",
        "ALTER TABLE jobstore.job DISABLE TRIGGER ALL",
        "CREATE TRIGGER mine AFTER INSERT ON jobstore.job EXECUTE FUNCTION f()",
        "CREATE INDEX ON jobstore.job (kind)",
        "COMMENT ON TABLE jobstore.jobstore_version IS 'at another'",
        "ALTER FUNCTION jobstore.new_ulid() RESET ALL",
        "DROP TABLE jobstore.job",
        "DROP SCHEMA jobstore CASCADE",
        "ALTER TABLE jobstore.job OWNER TO CURRENT_USER",
    ],
)
def test_it_may_not(granted: Granted, statement: str) -> None:
    granted.refused("runtime", statement)
