"""
Indexes that are built while the queue is in use.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from jobstore import NewJob, OutcomeUnknown, PostgresStore, migrate
from jobstore.migrate import State
from tests.migrations.releases import NextRelease
from tests.migrations.test_sql import run
from tests.servers import connect

HEAD = migrate.head()
SCHEMA = "schema=context.config.attributes['schema']"
BUILD = (
    "op.build_index_concurrently('throw_away_idx', 'job',"
    f" \"(tenant) WHERE kind <> ':x'\", {SCHEMA})"
)
DROP = f"op.drop_index_concurrently('throw_away_idx', {SCHEMA})"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[NextRelease]:
    release = NextRelease(tmp_path / "next")
    release.add(BUILD, DROP, compatible_from=HEAD)
    with release.installed():
        yield release


def test_a_killed_build_is_found_and_repeated(
    dsn: str, fresh_schema: str, release: NextRelease
) -> None:
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    store.create(NewJob(kind="k"))
    with ThreadPoolExecutor(1) as pool, connect(dsn) as admin:
        with _writing(dsn, fresh_schema):
            building = pool.submit(migrate.upgrade, dsn, schema=fresh_schema)
            builder = _builder(admin, fresh_schema)
            # What is being built is not broken, and holds up no claim.
            assert migrate.check(dsn, schema=fresh_schema).state is State.OUTDATED
            assert len(store.claim(1)) == 1
            admin.execute("SELECT pg_terminate_backend(%s)", [builder])
            with pytest.raises(OutcomeUnknown):
                building.result(60)
            found = migrate.check(dsn, schema=fresh_schema)
            assert found.state is State.INVALID_INDEX
            assert [one.name for one in found.differences] == ["throw_away_idx"]
            assert found.revision == HEAD
            again = pool.submit(migrate.upgrade, dsn, schema=fresh_schema)
            _builder(admin, fresh_schema)
            assert not again.done()
        assert again.result(60) == migrate.head()
    assert _index(dsn, fresh_schema) == ("valid", "(tenant) WHERE (kind <> ':x'::text)")
    # The golden file knows nothing of the throw-away, nor of its revision.
    found = migrate.check(dsn, schema=fresh_schema)
    assert [str(one) for one in found.differences if one.kind == "index"] == [
        "index throw_away_idx is unexpected"
    ]
    assert found.state is State.DRIFT
    store.close()


def test_what_was_built_before_a_kill_is_kept(
    dsn: str, fresh_schema: str, release: NextRelease
) -> None:
    migrate.upgrade(dsn, schema=fresh_schema)
    with connect(dsn) as connection:
        oid = "SELECT %s::regclass::oid"
        name = [f"{fresh_schema}.throw_away_idx"]
        before = connection.execute(oid, name).fetchone()
        back = f"UPDATE {fresh_schema}.jobstore_version SET version_num = '{HEAD}'"
        connection.execute(back.encode())
        assert migrate.upgrade(dsn, schema=fresh_schema) == migrate.head()
        assert connection.execute(oid, name).fetchone() == before


def test_a_build_waits_for_open_transactions_as_long_as_they_last(
    dsn: str,
    fresh_schema: str,
    release: NextRelease,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With the limit of all other statements it would give up at once.
    monkeypatch.setattr("jobstore.migrate.connection.LOCK_TIMEOUT_MS", 1)
    monkeypatch.setattr("jobstore.migrate.move._TRIES", 1)
    with ThreadPoolExecutor(1) as pool, connect(dsn) as admin:
        with _writing(dsn, fresh_schema):
            building = pool.submit(migrate.upgrade, dsn, schema=fresh_schema)
            _builder(admin, fresh_schema)
        assert building.result(60) == migrate.head()


def test_down_and_up_again(dsn: str, fresh_schema: str, release: NextRelease) -> None:
    migrate.upgrade(dsn, schema=fresh_schema)
    migrate.downgrade(dsn, HEAD, schema=fresh_schema)
    assert _index(dsn, fresh_schema) is None
    migrate.upgrade(dsn, schema=fresh_schema)
    assert _index(dsn, fresh_schema) is not None


def test_as_a_script(dsn: str, fresh_schema: str, release: NextRelease) -> None:
    script = migrate.sql(schema=fresh_schema, from_revision=HEAD)
    assert "SHARE UPDATE EXCLUSIVE on" in script
    assert "unknown" not in script
    with connect(dsn) as connection:
        connection.execute(f"SET search_path = {fresh_schema}".encode())
        connection.execute("INSERT INTO job (kind) VALUES ('k'), ('k')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(
                "CREATE UNIQUE INDEX CONCURRENTLY throw_away_idx ON job (kind)"
            )
    run(dsn, script)
    assert migrate.current(dsn, schema=fresh_schema) == migrate.head()
    found = _index(dsn, fresh_schema)
    assert found is not None
    assert found[0] == "valid"


@contextmanager
def _writing(dsn: str, schema: str) -> Iterator[None]:
    """
    Keep a transaction open that wrote into the table.
    """
    with connect(dsn) as writer:
        writer.autocommit = False
        writer.execute(f"INSERT INTO {schema}.job (kind) VALUES ('late')".encode())
        yield
        writer.rollback()


def _builder(admin: psycopg.Connection[tuple[object, ...]], schema: str) -> object:
    """
    Wait for a build that waits for the writer; return its backend.
    """
    for _ in range(3000):
        row = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE '%% INDEX CONCURRENTLY %%' AND query LIKE %s",
            [f"%{schema}%"],
        ).fetchone()
        if row is not None:
            return row[0]
        admin.execute("SELECT pg_sleep(0.01)")
    pytest.fail("the build did not get that far")


def _index(dsn: str, schema: str) -> tuple[str, str] | None:
    with connect(dsn) as connection:
        row = connection.execute(
            "SELECT CASE WHEN indisvalid THEN 'valid' ELSE 'invalid' END,"
            " substring(pg_get_indexdef(indexrelid) FROM 'USING btree (.*)')"
            " FROM pg_index WHERE indexrelid = to_regclass(%s)",
            [f"{schema}.throw_away_idx"],
        ).fetchone()
    return None if row is None else (str(row[0]), str(row[1]))
