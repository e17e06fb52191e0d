"""
The chain as a script for review, to be run with psql; no database is needed for it.
"""

import contextlib
import io
import re
from collections.abc import Iterator
from typing import TextIO

from alembic import command

from jobstore.errors import InvalidInput
from jobstore.migrate.chain import config_of, scripts
from jobstore.migrate.connection import LOCK_NAME, LOCK_TIMEOUT_MS
from jobstore.migrate.locks import lock_of
from jobstore.postgres.schema import Schema
from jobstore.postgres.window import VERSION_TABLE

__all__ = ["rendering", "sql"]

_STEP = re.compile(r"-- Running (?:upgrade|downgrade) (?P<before>\w*) ?-> ?\w*")
_TRANSACTION = frozenset({"BEGIN;", "COMMIT;"})


def sql(
    *, schema: str = "jobstore", from_revision: str = "base", to_revision: str = "head"
) -> str:
    """
    Return what a migration would send, as a script for psql.

    Each revision is one transaction, and refuses to run on a schema that is not at the
    one before it. A comment above each statement says which lock it takes on what, and
    what that blocks. Run with ``psql -v ON_ERROR_STOP=1``: no statement waits for a
    table lock for more than a second; repeat the rest of the script if one gave up.

    Args:
        schema: The schema that holds, or will hold, jobstore's tables.
        from_revision: What the schema is at, ``base`` for none.
        to_revision: What it is to be at; older than *from_revision* for the way down,
            which does not ask whether jobs would be lost.

    Raises:
        InvalidInput: There is no such revision.
    """
    Schema(schema)
    names = ["base", *(script.revision for script in scripts())]
    start = _place("from_revision", from_revision, names)
    end = _place("to_revision", to_revision, names)
    config = config_of(schema)
    config.output_buffer = buffer = io.StringIO()
    move = command.upgrade if end >= start else command.downgrade
    if start != end:
        move(config, f"{names[start]}:{names[end]}", sql=True)
    return buffer.getvalue()


def _place(field: str, revision: str, names: list[str]) -> int:
    if revision == "head":
        return len(names) - 1
    if revision not in names:
        raise InvalidInput(field, revision, f"must be one of {', '.join(names)}, head")
    return names.index(revision)


@contextlib.contextmanager
def rendering(output: TextIO, schema: str) -> Iterator["_Explaining"]:
    """
    Lend a stream that takes Alembic's statements one by one, and explains each.
    """
    named = Schema(schema)
    key = f"{LOCK_NAME} {schema}".replace("'", "''")
    output.write(
        f"""\
-- Run with: psql -v ON_ERROR_STOP=1
SET client_encoding = 'UTF8';
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
-- One migrator at a time. It does not wait for another: its snapshot would hold up an
-- index that the other one builds concurrently.
DO $do$ BEGIN
    IF NOT pg_try_advisory_lock(hashtextextended('{key}', 0)) THEN
        RAISE EXCEPTION 'another migration runs: nothing was done, try again later';
    END IF;
END $do$;
-- Gives up rather than make others queue behind it; then run the rest again.
SET lock_timeout = '{LOCK_TIMEOUT_MS}ms';

"""
    )
    yield _Explaining(output, named)
    output.write(f"SELECT pg_advisory_unlock(hashtextextended('{key}', 0));\n")


class _Explaining(io.TextIOBase):
    """
    A stream that Alembic writes to: one statement, or one comment, at a time.
    """

    def __init__(self, output: TextIO, schema: Schema) -> None:
        self._output = output
        self._schema = schema
        self._created: set[str] = set()
        self._is_first = True

    def write(self, text: str) -> int:
        statement = text.strip()
        if statement in _TRANSACTION:
            self._created.clear()
            self._output.write(text)
            if self._is_first:
                # Asked first: CREATE SCHEMA IF NOT EXISTS needs the right to create.
                self._output.write(_create_schema(self._schema))
                self._is_first = False
        elif step := _STEP.match(statement):
            self._output.write(text + _guard(self._schema, step["before"]))
        elif statement.startswith("--"):
            self._output.write(text)
        else:
            if VERSION_TABLE in statement:
                # It stays, empty, where the chain was walked down to its beginning.
                text = text.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
            lock = lock_of(statement, created=self._created)
            self._output.write(f"-- {lock}\n{text}")
        return len(text)


def _create_schema(schema: Schema) -> str:
    name = schema.name.replace("'", "''")
    return f"""\
-- Lock: none that others wait for.
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}') THEN
        CREATE SCHEMA {schema.quoted};
    END IF;
END $do$;

"""


def _guard(schema: Schema, before: str) -> str:
    table = f"{schema.quoted}.{VERSION_TABLE}"
    where = f"at revision {before}" if before else "empty"
    expected = f"'{before}'" if before else "NULL"
    return f"""\
-- Lock: ACCESS SHARE on {table}: blocks nothing.
DO $do$ BEGIN
    IF (SELECT version_num FROM {table}) IS DISTINCT FROM {expected} THEN
        RAISE EXCEPTION 'the schema is not {where}: nothing was done';
    END IF;
END $do$;

"""  # noqa: S608 - quoted
