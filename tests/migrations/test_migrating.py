"""
Migrating: one chain, up and down, by many at once, on a queue that is in use.
"""

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from jobstore import NewJob, PostgresStore, SchemaError, StoreUnavailable, migrate
from tests.servers import connect

REVISIONS = [
    script.revision
    for script in reversed(
        list(ScriptDirectory.from_config(Config("alembic.ini")).walk_revisions())
    )
]

CATALOG = """
SELECT kind, name, definition FROM (
    SELECT 'column' AS kind, c.relname || '.' || a.attname AS name,
        format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
        || coalesce(' ' || pg_get_expr(d.adbin, d.adrelid), '')
        || coalesce(' -- ' || col_description(c.oid, a.attnum), '') AS definition
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'v')
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text || '.' || conname,
        pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
        AND contype <> 'n'
    UNION ALL
    SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid)
    FROM pg_index WHERE indrelid IN (
        SELECT oid FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
    )
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE pronamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT 'options', relname, reloptions::text
    FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
) AS catalog
ORDER BY kind, name, definition
"""


def catalog(dsn: str, schema: str) -> list[tuple[object, ...]]:
    with connect(dsn) as connection:
        return connection.execute(CATALOG, {"schema": f'"{schema}"'}).fetchall()


def test_there_is_one_head_and_numbers_are_consecutive() -> None:
    assert [int(revision) for revision in REVISIONS] == list(
        range(1, len(REVISIONS) + 1)
    )
    assert migrate.head() == REVISIONS[-1]


def test_the_history_of_a_schema(dsn: str, empty_schema: str) -> None:
    none = migrate.history(dsn, schema=empty_schema)
    assert [step.revision for step in none] == REVISIONS
    assert all(step.title and "\n" not in step.title for step in none)
    assert not any(step.is_applied or step.is_current for step in none)
    migrate.upgrade(dsn, schema=empty_schema)
    every = migrate.history(dsn, schema=empty_schema)
    assert all(step.is_applied for step in every)
    assert [step.revision for step in every if step.is_current] == [migrate.head()]
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {empty_schema}.jobstore_version SET version_num = '9999'"
        )
    newer = migrate.history(dsn, schema=empty_schema)
    assert newer[-1] == migrate.Revision("9999", None, is_applied=True, is_current=True)
    assert [step.is_applied for step in newer[:-1]] == [True] * len(REVISIONS)
    assert not any(step.is_current for step in newer[:-1])


def test_up_down_and_up_again_leaves_the_same(dsn: str, empty_schema: str) -> None:
    migrate.upgrade(dsn, schema=empty_schema)
    whole = catalog(dsn, empty_schema)
    for number in range(len(REVISIONS), 0, -1):
        below = REVISIONS[number - 2] if number > 1 else "base"
        migrate.downgrade(dsn, below, schema=empty_schema, allow_data_loss=True)
        left = catalog(dsn, empty_schema)
        migrate.upgrade(dsn, schema=empty_schema)
        assert catalog(dsn, empty_schema) == whole
        migrate.downgrade(dsn, below, schema=empty_schema, allow_data_loss=True)
        assert catalog(dsn, empty_schema) == left
    migrate.upgrade(dsn, schema=empty_schema)
    assert catalog(dsn, empty_schema) == whole


@pytest.mark.parametrize("name", ["plain", 'Odd "name" %(x)s'])
def test_the_metadata_is_what_the_migrations_make(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    engine = create_engine(database)
    with engine.connect() as connection:
        options = migrate.comparison(name)
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, options["target_metadata"]) == []
    engine.dispose()


def test_going_down_refuses_to_lose_jobs(dsn: str, fresh_schema: str) -> None:
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    job = store.create(NewJob(kind="k")).job
    with pytest.raises(SchemaError, match="jobs"):
        migrate.downgrade(dsn, "base", schema=fresh_schema)
    migrate.upgrade(dsn, schema=fresh_schema)
    assert store.get(job.id) == job
    store.close()


def test_any_number_may_migrate_at_once(dsn: str, empty_schema: str) -> None:
    code = (
        "import sys; from jobstore import migrate;"
        "migrate.upgrade(sys.argv[1], schema=sys.argv[2])"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, dsn, empty_schema])
        for _ in range(6)
    ]
    assert [process.wait(120) for process in processes] == [0] * 6
    assert migrate.current(dsn, schema=empty_schema) == migrate.head()


def test_threads_may_migrate_different_schemas(database: str) -> None:
    names = [f"thread {number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: migrate.upgrade(database, schema=name), names))
    for name in names:
        assert migrate.current(database, schema=name) == migrate.head()


def test_at_head_no_lock_is_taken(dsn: str, fresh_schema: str) -> None:
    with migrate.migrating(dsn, schema=fresh_schema):
        done = ThreadPoolExecutor(1).submit(migrate.upgrade, dsn, schema=fresh_schema)
        assert done.result(30) == migrate.head()


def test_an_idle_reader_does_not_make_the_claims_wait(
    dsn: str, empty_schema: str
) -> None:
    """
    A migration that needs a table for itself waits behind a forgotten transaction.
    Claims that come after it must not wait behind it for long.
    """
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    store = PostgresStore(dsn, schema=empty_schema, wake_ups=False)
    with connect(dsn) as reader:
        reader.autocommit = False
        reader.execute(f'SELECT 1 FROM "{empty_schema}".job'.encode())
        down = ThreadPoolExecutor(1).submit(
            migrate.downgrade, dsn, "base", schema=empty_schema
        )
        _wait_for_a_waiting_lock(dsn)
        for _ in range(10):
            # The store's lock timeout is 5 s; a claim that waits longer raises.
            assert store.claim_next() is None
        assert not down.done()
        reader.rollback()
        down.result(60)
    store.close()
    assert migrate.current(dsn, schema=empty_schema) is None


def test_a_hosts_logging_is_left_alone(
    dsn: str, empty_schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = logging.getLogger("host")
    root = logging.getLogger()
    before = (list(root.handlers), root.level, mine.disabled)
    migrate.upgrade(dsn, schema=empty_schema)
    assert (list(root.handlers), root.level, mine.disabled) == before
    assert capfd.readouterr().out == ""


def test_a_database_that_is_away_is_said_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as away:
        migrate.upgrade("postgresql://user:s3cr3t@127.0.0.1:1/db")
    assert "s3cr3t" not in str(away.value)


def test_plain_alembic_walks_the_same_chain(
    dsn: str, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBSTORE_DSN", dsn)
    monkeypatch.setenv("JOBSTORE_SCHEMA", empty_schema)
    for arguments in (["upgrade", "head"], ["check"], ["current"]):
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
    assert migrate.head() in done.stdout
    assert migrate.current(dsn, schema=empty_schema) == migrate.head()


def test_a_host_with_alembic_of_its_own_is_left_alone(database: str) -> None:
    with connect(database) as host:
        host.execute("CREATE TABLE alembic_version (version_num varchar(32))")
        host.execute("INSERT INTO alembic_version VALUES ('of the host')")
        host.execute("CREATE TABLE customers (id int)")
    migrate.upgrade(database)
    with connect(database) as host:
        rows = host.execute("SELECT version_num FROM public.alembic_version").fetchall()
    assert rows == [("of the host",)]
    assert migrate.current(database) == migrate.head()


def test_upgrading_under_load(dsn: str, empty_schema: str) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    store = PostgresStore(dsn, schema=empty_schema, wake_ups=False)
    store.create_many([NewJob(kind="k") for _ in range(3000)])
    stop = threading.Event()
    errors: list[Exception] = []

    def churn() -> None:
        try:
            while not stop.is_set():
                for claim in store.claim(5):
                    store.complete(claim.lease)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            migrate.upgrade(dsn, schema=empty_schema)
            migrate.downgrade(dsn, "0001", schema=empty_schema)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert errors == []
    store.close()


def _wait_for_a_waiting_lock(dsn: str) -> None:
    with connect(dsn) as connection:
        for _ in range(3000):
            row = connection.execute(
                "SELECT count(*) FROM pg_locks"
                " WHERE NOT granted AND locktype = 'relation'"
            ).fetchone()
            if row and row[0]:
                return
            connection.execute("SELECT pg_sleep(0.01)")
    pytest.fail("the migration did not get that far")
