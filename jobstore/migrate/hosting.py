"""
Our revisions inside a revision of a host's: one ``alembic upgrade`` brings both.

The steps run on the host's own connection, in its transaction. Where our schema stands
is kept where it always is, in its own version table: so the host's chain knows nothing
of our numbers, theirs and ours can't be mixed up, and ``jobstore migrate`` goes on
working beside it.
"""

import contextlib
from collections.abc import Iterator, Sequence

from alembic import context, op
from alembic.script import Script
from sqlalchemy import text

from jobstore.errors import InvalidInput, SchemaTooNew
from jobstore.migrate.chain import scripts
from jobstore.migrate.connection import LOCK_NAME, LOCK_TIMEOUT_MS
from jobstore.postgres.schema import Schema
from jobstore.postgres.window import VERSION_TABLE, statement

__all__ = ["host_downgrade", "host_upgrade"]


def host_upgrade(
    revision: str, *, since: str = "base", schema: str = "jobstore"
) -> None:
    """
    Bring *schema* up to *revision*, from within ``upgrade()`` of a host's revision.

    Creates the schema if need be. What is there already is left out: the schema may
    have been migrated by other means.

    Args:
        revision: One of ours, such as ``0005``; never ``head``, since a revision means
            the same for ever.
        since: Where the chain is before; only asked offline (``--sql``), where nobody
            can look.
        schema: The schema that holds, or will hold, jobstore's tables.

    Raises:
        InvalidInput: There is no such revision, or the schema's name is none.
        SchemaTooNew: The schema is at a revision that this code does not know.

    Guarantees:
        Atomic: With all else that the host's transaction does.
        Isolation: Waits for another migrator. A table lock that can't be had in a
            second fails the host's migration: run it again.
    """
    names, steps = _chain()
    to = _place(names, "revision", revision)
    with _within(schema, since) as (place, found):
        start = _found(names, found, place)
        for at in range(start + 1, to + 1):
            steps[at].module.upgrade()
            _stand_at(place, steps[at], was_empty=at == 0)


def host_downgrade(revision: str, *, since: str, schema: str = "jobstore") -> None:
    """
    Take *schema* back to *revision*, from within ``downgrade()`` of a host's revision.

    What would lose jobs refuses, unless ``-x allow-data-loss=yes`` is given to the
    host's ``alembic downgrade``.

    Args:
        revision: Where the chain was before, ``base`` for nowhere.
        since: The revision that the host's own one had brought; only asked offline.
        schema: The schema that holds jobstore's tables.

    Raises:
        RuntimeError: The way down would lose jobs.
        InvalidInput, SchemaTooNew: As in `host_upgrade`.
    """
    names, steps = _chain()
    to = -1 if revision == "base" else _place(names, "revision", revision)
    with _within(schema, since) as (place, found):
        start = _found(names, found, place)
        for at in range(start, to, -1):
            steps[at].module.downgrade()
            _stand_at(place, steps[at - 1] if at else None, was_empty=False)


def _chain() -> tuple[list[str], Sequence[Script]]:
    steps = scripts()
    return [step.revision for step in steps], steps


def _place(names: list[str], field: str, revision: str) -> int:
    if revision not in names:
        reason = f"is no revision; they are {names[0]} to {names[-1]}"
        raise InvalidInput(field, revision, reason)
    return names.index(revision)


def _found(names: list[str], found: str | None, schema: Schema) -> int:
    if found is None:
        return -1
    if found not in names:
        message = f"schema {schema.name} is at {found}, which this code does not know"
        raise SchemaTooNew(message)
    return names.index(found)


@contextlib.contextmanager
def _within(name: str, since: str) -> Iterator[tuple[Schema, str | None]]:
    """
    Make the host's environment that of our revisions; tell where the schema stands.
    """
    schema = Schema(name)
    attributes = context.config.attributes
    kept = {key: attributes[key] for key in ("schema",) if key in attributes}
    attributes["schema"] = name
    try:
        if op.get_context().as_sql:
            _execute(f"CREATE SCHEMA IF NOT EXISTS {schema.quoted}")
            yield schema, None if since == "base" else since
        else:
            with _settings(schema):
                yield schema, _look(schema)
    finally:
        del attributes["schema"]
        attributes.update(kept)


@contextlib.contextmanager
def _settings(schema: Schema) -> Iterator[None]:
    """
    For our steps alone: the lock of migrations, no long waits, no names but full ones.
    """
    bind = op.get_bind()
    bind.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"),
        {"name": f"{LOCK_NAME} {schema.name}"},
    )
    ours = {"lock_timeout": str(LOCK_TIMEOUT_MS), "search_path": "pg_catalog"}
    hosts = {
        name: bind.scalar(text("SELECT current_setting(:name)"), {"name": name})
        for name in ours
    }
    _set(ours)
    yield
    # Not after a failure: then the transaction, and with it the settings, are undone.
    _set(hosts)


def _set(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        op.get_bind().execute(
            text("SELECT set_config(:name, :value, true)"),
            {"name": name, "value": value},
        )


def _look(schema: Schema) -> str | None:
    bind = op.get_bind()
    there = bind.scalar(
        text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": schema.name}
    )
    if not there:
        _execute(f"CREATE SCHEMA {schema.quoted}")
        return None
    there = bind.scalar(
        text(
            "SELECT 1 FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = :name AND relname = :table"
        ),
        {"name": schema.name, "table": VERSION_TABLE},
    )
    if not there:
        return None
    table = f"{schema.quoted}.{VERSION_TABLE}".replace(":", r"\:")
    found: str | None = bind.scalar(text(f"SELECT version_num FROM {table}"))  # noqa: S608 - quoted
    return found


def _stand_at(schema: Schema, step: Script | None, *, was_empty: bool) -> None:
    """
    Write down where the schema stands now, as Alembic and `stating` do in our own runs.
    """
    table = f"{schema.quoted}.{VERSION_TABLE}"
    if was_empty:
        _execute(
            f"CREATE TABLE IF NOT EXISTS {table} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    if step is None:
        _execute(f"DELETE FROM {table}")  # noqa: S608 - quoted
        _execute(statement(schema, None, ""))
        return
    change = (
        f"INSERT INTO {table} (version_num) VALUES ('{step.revision}')"  # noqa: S608
        if was_empty
        else f"UPDATE {table} SET version_num = '{step.revision}'"  # noqa: S608
    )
    _execute(change)
    _execute(statement(schema, step.revision, step.module.compatible_from))


def _execute(sql: str) -> None:
    # Alembic reads :name as a parameter.
    op.execute(sql.replace(":", r"\:"))
