"""
Check: it finds what somebody changed, names it, and is silent otherwise.
"""

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.errors import StoreFault
from jobstore.migrate import Problem, State
from tests.migrations.write_expected import FILE, built
from tests.servers import connect


def test_the_expected_parts_are_what_the_chain_makes(dsn: str, schema: str) -> None:
    assert built(dsn, schema) == FILE.read_text("utf-8"), "make expected-schema"


@pytest.mark.parametrize("name", ["job", 'Odd "name" %(x)s', "it's", "ünïcode"])
def test_no_name_of_a_schema_makes_a_difference(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    assert migrate.check(database, schema=name) == migrate.Check(
        name, State.OK, migrate.head(), migrate.head(), ()
    )


def test_no_setting_of_a_session_makes_a_difference(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Kathmandu")
    monkeypatch.setenv("PGDATESTYLE", "German")
    migrate.upgrade(database)
    assert migrate.check(database).state is State.OK


CHANGES = {
    "ALTER TABLE job DROP CONSTRAINT job_result_check": (
        ("missing", "constraint", "job.job_result_check"),
    ),
    "ALTER TABLE attempt DROP CONSTRAINT attempt_job_fkey;"
    "ALTER TABLE attempt ADD CONSTRAINT attempt_job_fkey"
    " FOREIGN KEY (job_id) REFERENCES job (id) ON DELETE CASCADE NOT VALID": (
        ("changed", "constraint", "attempt.attempt_job_fkey"),
    ),
    "ALTER TABLE job DROP COLUMN traceparent CASCADE": (
        ("missing", "column", "job.traceparent"),
        ("missing", "constraint", "job.job_text_check"),
    ),
    "ALTER TABLE job ALTER max_attempts SET DEFAULT 3": (
        ("changed", "column", "job.max_attempts"),
    ),
    "ALTER TABLE job ALTER lease SET STORAGE PLAIN, ALTER worker SET NOT NULL": (
        ("changed", "column", "job.worker"),
    ),
    "ALTER TABLE job RESET (fillfactor)": (("changed", "storage parameters", "job"),),
    "ALTER TABLE job SET UNLOGGED": (),  # refused: attempt refers to it
    "DROP INDEX job_ready_idx": (("missing", "index", "job_ready_idx"),),
    "DROP INDEX job_failed_idx; CREATE INDEX job_failed_idx ON job (id)": (
        ("changed", "index", "job_failed_idx"),
    ),
    "CREATE INDEX mine ON job (tenant)": (("unexpected", "index", "mine"),),
    "DROP VIEW stale": (("missing", "view", "stale"),),
    "ALTER VIEW stale SET (security_barrier)": (("changed", "view", "stale"),),
    "CREATE OR REPLACE FUNCTION new_ulid() RETURNS text LANGUAGE sql RETURN 'x'": (
        ("changed", "function", "new_ulid()"),
    ),
    "ALTER FUNCTION explain_job(text) SECURITY DEFINER": (
        ("changed", "function", "explain_job(text)"),
    ),
    "DROP FUNCTION explain_job(text)": (("missing", "function", "explain_job(text)"),),
    "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END';"
    "CREATE TRIGGER t BEFORE UPDATE ON job EXECUTE FUNCTION nothing()": (
        ("unexpected", "trigger", "job.t"),
    ),
    "ALTER TABLE job ENABLE ROW LEVEL SECURITY": (("changed", "table", "job"),),
    "COMMENT ON COLUMN job.fence IS 'nothing'": (("changed", "comment", "job.fence"),),
    # Which says what code works on the schema.
    "COMMENT ON TABLE jobstore_version IS NULL": (
        ("missing", "comment", "jobstore_version"),
    ),
    "DROP TABLE audit CASCADE": (("missing", "table", "audit"),),
    # None of our business.
    "CREATE TABLE guest (id int REFERENCES mine (id))": (),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_named(dsn: str, fresh_schema: str, change: str) -> None:
    wanted = CHANGES[change]
    with connect(dsn) as connection:
        connection.execute(f"SET search_path = {fresh_schema}".encode())
        if change.startswith("CREATE TABLE guest"):
            connection.execute("CREATE TABLE mine (id int PRIMARY KEY)")
        if "UNLOGGED" in change:
            with pytest.raises(psycopg.Error):
                connection.execute(change.encode())
        else:
            connection.execute(change.encode())
    found = migrate.check(dsn, schema=fresh_schema)
    assert found.state is (State.DRIFT if wanted else State.OK)
    told = [(one.problem.value, one.kind, one.name) for one in found.differences]
    assert sorted(told) == sorted(wanted)


def test_a_function_whose_body_was_edited(dsn: str, fresh_schema: str) -> None:
    with connect(dsn) as connection:
        row = connection.execute(
            "SELECT pg_get_functiondef(%s::regprocedure)",
            [f"{fresh_schema}.requeue_job(text, text, boolean)"],
        ).fetchone()
        assert row is not None
        body = str(row[0])
        edited = body.replace("dry_run", "NOT dry_run", 2).replace(
            "NOT dry_run", "dry_run", 1
        )
        assert edited != body
        connection.execute(edited.encode())
    (difference,) = migrate.check(dsn, schema=fresh_schema).differences
    assert difference.name == "requeue_job(text, text, boolean)"
    assert difference.problem is Problem.CHANGED


def test_an_invalid_index_is_told_before_all_else(dsn: str, empty_schema: str) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    assert migrate.check(dsn, schema=empty_schema).state is State.OUTDATED
    with connect(dsn) as connection:
        connection.execute(f"SET search_path = {empty_schema}".encode())
        connection.execute("INSERT INTO job (kind) VALUES ('k'), ('k')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY broken ON job (kind)")
    found = migrate.check(dsn, schema=empty_schema)
    assert found.state is State.INVALID_INDEX
    assert [str(one) for one in found.differences] == ["index broken is invalid"]
    migrate.upgrade(dsn, schema=empty_schema)
    assert migrate.check(dsn, schema=empty_schema).state is State.INVALID_INDEX


def test_missing_and_too_new(dsn: str, empty_schema: str) -> None:
    assert migrate.check(dsn, schema=empty_schema).state is State.MISSING
    migrate.upgrade(dsn, schema=empty_schema)
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {empty_schema}.jobstore_version SET version_num = '9999'".encode()
        )
    found = migrate.check(dsn, schema=empty_schema)
    assert (found.state, found.revision) == (State.TOO_NEW, "9999")


def test_who_may_not_look_is_told(database: str) -> None:
    migrate.upgrade(database)
    with connect(database) as connection:
        connection.execute("CREATE ROLE blind LOGIN PASSWORD 'b'")
        try:
            url = make_url(database).set(username="blind", password="b")  # noqa: S106
            blind = url.render_as_string(hide_password=False)
            with pytest.raises(StoreFault):
                migrate.check(blind)
        finally:
            connection.execute("DROP ROLE blind")
