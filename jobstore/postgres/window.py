"""
Which schemas this code works on, and how a schema says which code works on it.

Code works on revisions from `NEEDED` to `HEAD`, and on newer ones that say so: each
revision states the oldest code that still works on it, as the revision that this code
knew best. The word stands in the comment of the version table, where any role can read
it, and any code, however old.
"""

import re
from typing import Any

from jobstore.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from jobstore.postgres.schema import Schema
from jobstore.postgres.session import Executor, Session

__all__ = [
    "HEAD",
    "NEEDED",
    "STATED",
    "VERSION_TABLE",
    "check",
    "judge",
    "refuse_too_new",
    "require",
    "stated",
    "statement",
]

VERSION_TABLE = "jobstore_version"

HEAD = "0005"
"""The newest revision that this code knows; a test compares it with the chain."""

NEEDED = "0001"
"""The oldest revision that the stores work on; a test runs them there."""

# By the catalog's names alone: no right on the schema is needed, none can be lacking.
STATED = """
SELECT obj_description(pg_class.oid, 'pg_class')
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = 'jobstore_version'
"""

_COMMENT = re.compile(r"revision (\w+), for code from (\w+) on")


def statement(schema: Schema, revision: str | None, compatible_from: str) -> str:
    """
    Return the SQL that makes *schema* say what it is.
    """
    text = "Which revision of jobstore the schema is at. "
    text += (
        "None: the tables are gone."
        if revision is None
        else f"It is at revision {revision}, for code from {compatible_from} on."
    )
    return f"COMMENT ON TABLE {schema.quoted}.{VERSION_TABLE} IS '{text}'"


def stated(comment: str | None) -> tuple[str, str] | None:
    """
    Read the revision, and the oldest code for it, out of *comment*.
    """
    found = _COMMENT.search(comment or "")
    return None if found is None else (found[1], found[2])


def judge(revision: str | None, compatible_from: str | None, schema: str) -> None:
    """
    Return if this code works on a schema at *revision*, else raise.

    Raises:
        SchemaMissing: There is none.
        SchemaOutdated: It is older than `NEEDED`.
        SchemaTooNew: It is newer than `HEAD`, and does not say that this code may.
    """
    if revision is None:
        message = f"schema {schema} has no jobstore tables: run jobstore migrate up"
        raise SchemaMissing(message)
    if revision.isdigit() and int(revision) < int(NEEDED):
        raise SchemaOutdated(
            f"schema {schema} is at {revision}, this code needs {NEEDED} or later: "
            "run jobstore migrate up"
        )
    refuse_too_new(revision, compatible_from, schema)


def refuse_too_new(revision: str, compatible_from: str | None, schema: str) -> None:
    """
    Raise `SchemaTooNew` unless code of `HEAD` works on *revision*.
    """
    if revision.isdigit() and int(revision) <= int(HEAD):
        return
    if compatible_from is None:
        needs = "newer code"
    elif compatible_from.isdigit() and int(compatible_from) <= int(HEAD):
        return
    else:
        needs = f"code of {compatible_from} or later"
    raise SchemaTooNew(
        f"schema {schema} is at {revision}, which is newer than this code knows "
        f"({HEAD}), and needs {needs}: upgrade this process"
    )


def check(executor: Executor, schema: Schema) -> None:
    """
    Raise if the schema says that this code does not work on it.

    One look into the catalog, which no missing right or table lets fail: that is said
    by the statement that needs it.
    """
    said = _said(executor.rows(STATED, {"schema": schema.name}))
    if said is not None:
        judge(*said, schema.name)


def require(session: Session) -> str:
    """
    Return the revision of the schema if this code works on it, else raise.
    """
    schema = session.rules.schema
    comments = session.rows(STATED, schema=schema.name)
    revision, compatible_from = _said(comments) or (None, None)
    if comments and revision is None:
        # Its comment was lost, as in a dump without any.
        row = session.row(f"SELECT version_num FROM {{s}}.{VERSION_TABLE}")  # noqa: S608
        revision = None if row is None else str(row[0])
    judge(revision, compatible_from, schema.name)
    assert revision is not None, "judge raises for none"
    return revision


def _said(rows: Any) -> tuple[str, str] | None:
    return stated(rows[0][0]) if rows else None
