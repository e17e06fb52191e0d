"""
The operator looks and acts by the functions alone; the reader looks; nobody else does.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import NewJob, PostgresStore, migrate
from jobstore.doctor import Severity, examine, explain
from jobstore.grants.statements import VIEWS
from tests import servers
from tests.grants.conftest import Granted

ROOT = Path(__file__).parents[2]

SECRET = "hidden-0123456789"  # noqa: S105 - looked for, never used


@pytest.fixture
def store(clean: Granted) -> Iterator[PostgresStore]:
    made = PostgresStore(clean.runtime, wake_ups=False)
    yield made
    made.close()


def incident(store: PostgresStore) -> tuple[str, str, str]:
    """
    Bring about a failed job, one that a worker holds, and one that is ready.
    """
    made = [
        store.create(NewJob(kind="k", payload=SECRET.encode(), idem_key=f"{SECRET}{n}"))
        for n in range(3)
    ]
    failing = store.claim_next(worker="w1")
    held = store.claim_next(worker="w1")
    assert failing is not None
    assert held is not None
    store.fail(failing.lease, error_code="E", final=True)
    return failing.job.id, held.job.id, made[2].job.id


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("role", ["operator", "reader"])
def test_both_read_every_view(
    clean: Granted, store: PostgresStore, role: str, view: str
) -> None:
    incident(store)
    rows = str(clean.ask(role, f"SELECT * FROM jobstore.{view}"))
    assert SECRET not in rows
    if view in {"ready", "running", "recent_failures", "queue_health", "workers"}:
        assert rows != "[]"


def test_the_operator_acts_by_the_functions_and_is_named(
    clean: Granted, store: PostgresStore
) -> None:
    failed, held, ready = incident(store)
    clean.ask(
        "admin",
        "UPDATE jobstore.job SET heartbeat_at = now() - interval '1 h' "
        "WHERE status = 'processing'",
    )
    with clean.login("operator") as operator:
        for call in (
            f"SELECT * FROM jobstore.requeue_job('{failed}', 'why', dry_run => {{}})",
            f"SELECT * FROM jobstore.cancel_job('{ready}', 'why', dry_run => {{}})",
            "SELECT * FROM jobstore.release_worker('w1', 'why', dry_run => {})",
        ):
            announced = operator.execute(call.format("true").encode()).fetchall()
            assert operator.execute(call.format("false").encode()).fetchall() == (
                announced
            )
            assert announced
        again = store.claim_next(worker="w2")
        assert again is not None
        store.fail(again.lease, error_code="E", final=True)
        assert operator.execute(
            "SELECT becomes FROM jobstore.retry_failed('why', dry_run => false)"
        ).fetchall() == [("queued",)]
        assert operator.execute(
            "SELECT who, action FROM jobstore.audit ORDER BY id"
        ).fetchall() == [
            (clean.roles.operator, action)
            for action in (
                "requeue_job",
                "cancel_job",
                "release_worker",
                "retry_failed",
            )
        ]
    assert store.get(ready).status == "cancelled"
    assert [one.outcome for one in store.attempts(held)] == ["released"]


def test_a_login_in_the_operators_group_is_named_itself(
    clean: Granted, store: PostgresStore
) -> None:
    """
    The audit says who logged in, not which role the rights came from.
    """
    _, _, ready = incident(store)
    with servers.created_role(clean.admin) as person:
        name = make_url(person).username
        clean.ask("admin", f'GRANT "{clean.roles.operator}" TO "{name}"')
        with servers.connect(person) as connection:
            connection.execute(f'SET ROLE "{clean.roles.operator}"'.encode())
            connection.execute(
                f"SELECT * FROM jobstore.cancel_job('{ready}', 'why', false)".encode()
            )
    assert clean.ask("admin", "SELECT who FROM jobstore.audit") == [(name,)]


def test_the_operator_explains_and_examines(
    clean: Granted, store: PostgresStore
) -> None:
    failed, held, _ = incident(store)
    assert "failed for good" in explain(clean.operator, failed)
    assert "being worked on" in explain(clean.operator, held)
    assert migrate.current(clean.operator) == migrate.head()
    report = examine(clean.operator)
    assert not [one for one in report.findings if "could not" in one.message]
    assert report.checks["rows"] is Severity.OK


@pytest.mark.parametrize("role", ["operator", "reader"])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT data FROM jobstore.payload",
        "SELECT * FROM jobstore.payload",
        "SELECT count(*) FROM jobstore.idempotency_key",
        "SELECT result FROM jobstore.job",
        "SELECT idem_key FROM jobstore.job",
        "SELECT * FROM jobstore.job",
        "SELECT id FROM jobstore.job FOR UPDATE",
        "INSERT INTO jobstore.job (kind) VALUES ('k')",
        "UPDATE jobstore.job SET status = 'queued'",
        "UPDATE jobstore.job SET result = NULL",
        "DELETE FROM jobstore.job",
        "TRUNCATE jobstore.job CASCADE",
        "UPDATE jobstore.ready SET kind = 'other'",
        "DELETE FROM jobstore.scheduled",
        "DELETE FROM jobstore.attempt",
        "INSERT INTO jobstore.audit (action, reason, job_ids) VALUES ('a', 'b', '{}')",
        "UPDATE jobstore.audit SET who = 'somebody else'",
        "DELETE FROM jobstore.audit",
        "TRUNCATE jobstore.audit",
        "SELECT setval('jobstore.audit_id_seq', 1)",
        "UPDATE jobstore.jobstore_version SET version_num = '0001'",
        "SELECT * FROM jobstore._reopen('{}')",
        "SELECT * FROM jobstore._tell_parents('{}', '{}', '{}')",
        "SELECT jobstore._wake('{}')",
        "SELECT jobstore.new_ulid()",
        "CREATE VIEW jobstore.mine AS SELECT 1",
        "CREATE OR REPLACE VIEW jobstore.ready AS SELECT 1",
        "CREATE FUNCTION jobstore.mine() RETURNS text LANGUAGE sql RETURN ''",
        "ALTER FUNCTION jobstore.cancel_job(text, text, boolean) RESET ALL",
        "ALTER TABLE jobstore.audit ADD COLUMN mine int",
        "DROP VIEW jobstore.ready",
    ],
)
def test_neither_may(granted: Granted, role: str, statement: str) -> None:
    granted.refused(role, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM jobstore.job",
        "SELECT * FROM jobstore.attempt",
        "SELECT * FROM jobstore.audit",
        "SELECT jobstore.explain_job('x')",
        "SELECT * FROM jobstore.requeue_job('x', 'why')",
        "SELECT * FROM jobstore.cancel_job('x', 'why')",
        "SELECT * FROM jobstore.release_worker('w', 'why')",
        "SELECT * FROM jobstore.retry_failed('why')",
    ],
)
def test_the_reader_may_not(granted: Granted, statement: str) -> None:
    granted.refused("reader", statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM jobstore.ready",
        "SELECT * FROM jobstore.job",
        "SELECT jobstore.new_ulid()",
        "SELECT * FROM jobstore.cancel_job('x', 'why')",
    ],
)
def test_whoever_was_given_nothing_may_nothing(
    granted: Granted, statement: str
) -> None:
    granted.refused("nobody", statement)


def test_no_function_is_left_to_everybody(granted: Granted) -> None:
    """
    Even to a role that may use the schema.
    """
    granted.ask("admin", f'GRANT USAGE ON SCHEMA jobstore TO "{login(granted)}"')
    allowed = granted.ask(
        "nobody",
        "SELECT proname FROM pg_proc WHERE pronamespace = 'jobstore'::regnamespace "
        "AND has_function_privilege(oid, 'EXECUTE')",
    )
    granted.ask("admin", f'REVOKE ALL ON SCHEMA jobstore FROM "{login(granted)}"')
    assert allowed == []


def login(granted: Granted) -> str:
    return str(granted.ask("nobody", "SELECT session_user::text")[0][0])


def test_the_operator_may_use_the_cookbook(clean: Granted) -> None:
    """
    Every recipe in SQL but one: idempotency keys are not shown to him.
    """
    text = (ROOT / "docs" / "operations.md").read_text()
    refused, ran = [], 0
    for title, body in re.findall(
        r"^### (.+?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL
    ):
        for recipe in re.findall(r"```sql\n(.*?)```", body, re.DOTALL):
            ran += 1
            with clean.login("operator") as operator:
                try:
                    operator.execute(recipe.replace("<deployed at>", "now").encode())
                except psycopg.errors.NoDataFound:
                    pass  # there is no job by the name in the recipe
                except psycopg.errors.InsufficientPrivilege:
                    refused.append(title)
    assert ran > 20
    assert refused == ["Is this idempotency key in use?"]
