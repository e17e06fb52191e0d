"""
The script for review: it makes what `up` makes, and what it says of locks is true.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import InvalidInput, migrate
from jobstore.migrate.locks import BLOCKS, lock_of
from tests.migrations.test_migrating import REVISIONS, catalog
from tests.servers import connect

MODES = [None, *BLOCKS]
_TOKEN = re.compile(
    r"(?P<body>\$\w*\$).*?(?P=body)|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|;|.",
    re.DOTALL,
)


def statements(script: str) -> Iterator[str]:
    """
    Cut *script* as psql does: at each semicolon that is not quoted.
    """
    text = ""
    for token in _TOKEN.finditer(script):
        text += token[0]
        if token[0] == ";":
            yield text.strip()
            text = ""
    assert re.fullmatch(r"(?:\s|--[^\n]*)*", text)


def run(dsn: str, script: str) -> None:
    with connect(dsn) as connection:
        for statement in statements(script):
            connection.execute(statement.encode(), prepare=False)


@pytest.mark.parametrize("name", ["plain", 'Odd "name" %(x)s', "it's"])
def test_it_needs_no_database_and_makes_what_up_makes(database: str, name: str) -> None:
    run(database, migrate.sql(schema=name))
    assert migrate.check(database, schema=name).is_ok
    assert migrate.current(database, schema=name) == migrate.head()


PSQL = shutil.which("psql") or next(
    map(str, Path("/usr/lib/postgresql").glob("*/bin/psql")), None
)


@pytest.mark.skipif(PSQL is None, reason="needs psql")
def test_psql_runs_it(dsn: str, empty_schema: str) -> None:
    assert PSQL is not None
    for start in ("base", "0003"):
        script = migrate.sql(schema=empty_schema, from_revision=start)
        if start != "base":
            migrate.downgrade(dsn, start, schema=empty_schema)
        subprocess.run(
            [PSQL, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", _for_psql(dsn)],
            input=script.encode(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert migrate.check(dsn, schema=empty_schema).is_ok


def _for_psql(dsn: str) -> str:
    url = make_url(dsn).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("start", ["base", *REVISIONS[:-1]])
def test_from_half_way(dsn: str, fresh_schema: str, start: str) -> None:
    whole = catalog(dsn, fresh_schema)
    down = migrate.sql(schema=fresh_schema, from_revision="head", to_revision=start)
    run(dsn, down)
    assert migrate.current(dsn, schema=fresh_schema) == (
        None if start == "base" else start
    )
    run(dsn, migrate.sql(schema=fresh_schema, from_revision=start))
    assert catalog(dsn, fresh_schema) == whole
    assert migrate.check(dsn, schema=fresh_schema).is_ok


@pytest.mark.parametrize("start", ["base", "0001", "0003"])
def test_on_another_revision_it_does_nothing(
    dsn: str, empty_schema: str, start: str
) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0002")
    before = catalog(dsn, empty_schema)
    with pytest.raises(psycopg.Error, match="the schema is not"):
        run(dsn, migrate.sql(schema=empty_schema, from_revision=start))
    assert catalog(dsn, empty_schema) == before
    assert migrate.current(dsn, schema=empty_schema) == "0002"


def test_while_another_one_migrates_it_does_nothing(
    dsn: str, empty_schema: str
) -> None:
    with (
        migrate.migrating(dsn, schema=empty_schema),
        pytest.raises(psycopg.errors.RaiseException, match="another migration runs"),
    ):
        run(dsn, migrate.sql(schema=empty_schema))
    assert migrate.current(dsn, schema=empty_schema) is None
    run(dsn, migrate.sql(schema=empty_schema))
    # And it lets go of the lock in the end.
    with migrate.migrating(dsn, schema=empty_schema):
        pass


def test_what_there_is_nothing_to_do_for() -> None:
    assert migrate.sql(from_revision="head") == ""
    for wrong in ("nonsense", "", "0001; DROP TABLE job"):
        with pytest.raises(InvalidInput):
            migrate.sql(to_revision=wrong)


@pytest.mark.parametrize("goes_up", [True, False])
def test_what_it_says_of_locks_is_true(
    dsn: str, empty_schema: str, goes_up: bool
) -> None:
    """
    Ask the server after each statement which locks are held on what was there before.
    """
    migrate.upgrade(dsn, schema=empty_schema, revision="0001" if goes_up else "head")
    ends = ("0001", "head") if goes_up else ("head", "base")
    script = migrate.sql(
        schema=empty_schema, from_revision=ends[0], to_revision=ends[1]
    )
    asked = 0
    with connect(dsn) as connection:
        there: list[int] = []
        said = 0
        for statement in statements(script):
            if statement.endswith("BEGIN;"):
                there = _relations(connection, empty_schema)
                said = 0
            connection.execute(statement.encode(), prepare=False)
            comment = re.search(r"^-- Lock: (.*)$", statement, re.MULTILINE)
            if comment is None:
                continue
            asked += 1
            said = max(said, _said(comment[1]))
            # To read a table's definition, as the maker of a view does, is no matter.
            assert max(1, said) == max(1, _held(connection, there)), statement
    assert asked > 5


def _said(comment: str) -> int:
    if comment.startswith("none that others wait for"):
        return 0
    return MODES.index(comment.split(" on ", maxsplit=1)[0])


def _relations(
    connection: psycopg.Connection[tuple[object, ...]], schema: str
) -> list[int]:
    rows = connection.execute(
        "SELECT oid::int8 FROM pg_class WHERE relnamespace = %s::regnamespace"
        " AND relkind IN ('r', 'v')",
        [schema],
    )
    return [int(str(oid)) for (oid,) in rows]


def _held(connection: psycopg.Connection[tuple[object, ...]], there: list[int]) -> int:
    rows = connection.execute(
        "SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND granted"
        " AND relation = ANY(%s::oid[])",
        [there],
    ).fetchall()
    names = {mode.replace(" ", "").title(): mode for mode in BLOCKS}
    held = [str(mode).removesuffix("Lock").title() for (mode,) in rows]
    return max((MODES.index(names[mode]) for mode in held if mode in names), default=0)


@pytest.mark.parametrize(
    ("statement", "mode", "relation"),
    [
        ("CREATE INDEX i ON s.job (a)", "SHARE", "s.job"),
        ("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON \"s\".job (a)",
         "SHARE UPDATE EXCLUSIVE", "s.job"),
        ("DROP INDEX s.i", "ACCESS EXCLUSIVE", "s.i"),
        ("DROP INDEX CONCURRENTLY IF EXISTS s.i", "SHARE UPDATE EXCLUSIVE", "s.i"),
        ("ALTER TABLE s.job ADD COLUMN a int", "ACCESS EXCLUSIVE", "s.job"),
        ("ALTER TABLE s.job VALIDATE CONSTRAINT c", "SHARE UPDATE EXCLUSIVE", "s.job"),
        ("ALTER TABLE s.job SET (fillfactor = 70)", "SHARE UPDATE EXCLUSIVE", "s.job"),
        ("CREATE TABLE s.t (a int REFERENCES s.job (id))",
         "SHARE ROW EXCLUSIVE", "s.job"),
        ("CREATE TABLE s.t (a int REFERENCES s.t)", None, ""),
        ("DROP TABLE \"S\".job", "ACCESS EXCLUSIVE", '"S".job'),
        ("COMMENT ON COLUMN s.job.id IS 'drop table x'",
         "SHARE UPDATE EXCLUSIVE", "s.job"),
        ("UPDATE s.job SET a = 1", "ROW EXCLUSIVE", "s.job"),
    ],
)  # fmt: skip
def test_which_lock(statement: str, mode: str | None, relation: str) -> None:
    lock = lock_of(statement, created=set())
    assert (lock.mode, lock.relation) == (mode, relation)
    assert lock.is_known


def test_what_is_not_known_is_not_called_harmless() -> None:
    lock = lock_of("CLUSTER s.job USING i", created=set())
    assert "unknown" in str(lock)
    script = migrate.sql() + migrate.sql(from_revision="head", to_revision="base")
    assert "unknown" not in script
