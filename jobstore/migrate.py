"""
Migrations from Python: Alembic's chain in the folder ``migrations``, run with care.

One migrator at a time works on a schema, under an advisory lock on a connection of
its own; others wait for it, and find nothing left to do. No statement waits long
for a table lock: it gives up and tries again, so that claims never queue behind a
migration that itself queues behind an idle reader.
"""

import contextlib
import importlib.util
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from jobstore.errors import (
    InvalidInput,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StoreBusy,
    StoreUnavailable,
)
from jobstore.postgres.engine import engine_url, shown_url
from jobstore.postgres.schema import Schema
from jobstore.postgres.tables import metadata
from jobstore.postgres.translate import fault_of, translate

__all__ = [
    "comparison",
    "current",
    "downgrade",
    "head",
    "migrating",
    "require_current",
    "upgrade",
]

_WAIT_FOR_OTHERS = timedelta(minutes=10)
_LOCK_TIMEOUT_MS = 1000
_TRIES = 60
_RETRIED = frozenset({"55P03", "40P01", "57014"})

# Alembic keeps the running migration in module globals: one at a time in a process.
_in_process = threading.RLock()


def upgrade(
    target: str | Engine, *, schema: str = "jobstore", revision: str = "head"
) -> str | None:
    """
    Bring *schema* up to *revision*, creating it if need be.

    Args:
        target: A DSN or an engine; the role must own the schema or may create it.
        schema: The schema that holds, or will hold, jobstore's tables.
        revision: A revision id, ``head``, or ``+1``.

    Returns:
        The revision that the schema is at afterwards.

    Raises:
        StoreBusy: Another migrator kept the lock for ten minutes, or a table lock
            could not be had within a minute of tries. What was committed stays;
            call again.
        StoreUnavailable: The database could not be reached.
        StoreFault: The database refused it; the role lacks a right, for example.
        SchemaTooNew: The schema is at a revision of a newer release; it is left alone.
        InvalidInput: There is no such revision on the way.

    Guarantees:
        Atomic: Each revision is one transaction, unless it says otherwise itself.
        Repeat: At *revision* already, it returns without taking any lock.
    """
    Schema(schema)  # refuses a name that is none, before anything is sent
    if revision == "head" and current(target, schema=schema) == head():
        return head()
    _with_retries(
        target, schema, revision, lambda config: command.upgrade(config, revision)
    )
    return current(target, schema=schema)


def downgrade(
    target: str | Engine,
    revision: str,
    *,
    schema: str = "jobstore",
    allow_data_loss: bool = False,
) -> str | None:
    """
    Take *schema* back to *revision* (``base`` for none).

    Raises:
        SchemaError: The way down would lose jobs and *allow_data_loss* is False.
        StoreBusy, StoreUnavailable, StoreFault, SchemaTooNew, InvalidInput: As in
            `upgrade`.
    """
    x_arguments = ["allow-data-loss=yes"] if allow_data_loss else []
    try:
        _with_retries(
            target,
            schema,
            revision,
            lambda config: command.downgrade(config, revision),
            x_arguments,
        )
    except RuntimeError as error:
        raise SchemaError(str(error)) from None
    return current(target, schema=schema)


def current(target: str | Engine, *, schema: str = "jobstore") -> str | None:
    """
    Return the revision that *schema* is at; None if it has no jobstore tables.
    """
    with _connected(target) as connection:
        quoted = Schema(schema).quoted
        try:
            rows = connection.exec_driver_sql(
                f"SELECT version_num FROM {quoted}.jobstore_version".replace("%", "%%")  # noqa: S608 - quoted
            )
        except ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) in {"42P01", "3F000"}:
                return None
            raise translate(error, fault_of(error), writes=False) from None
        revision: str | None = rows.scalar()
        return revision


def require_current(target: str | Engine, *, schema: str = "jobstore") -> str:
    """
    Return the revision of *schema* if it is the one that this code knows best.

    Raises:
        SchemaMissing, SchemaOutdated: Run `upgrade`.
        SchemaTooNew: Upgrade this process.
        StoreUnavailable: The database could not be reached.
    """
    found = current(target, schema=schema)
    if found is None:
        raise SchemaMissing(f"schema {schema} has no jobstore tables")
    _refuse_unknown(found, schema)
    if found != head():
        raise SchemaOutdated(f"schema {schema} is at {found}, this code at {head()}")
    return found


def head() -> str:
    """
    Return the newest revision that this code knows.
    """
    revision = ScriptDirectory.from_config(_config("jobstore")).get_current_head()
    assert revision is not None, "the chain has one head; a test says so"
    return revision


def comparison(schema: str) -> dict[str, Any]:
    """
    Options for Alembic's environment under which it sees this schema alone.

    The database may hold a host application's tables; none of them is looked at.
    """

    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        return kind != "schema" or name == schema

    return {
        "target_metadata": metadata(schema),
        "version_table": "jobstore_version",
        "version_table_schema": schema,
        "include_schemas": True,
        "include_name": is_ours,
        "compare_type": True,
        # Defaults are pinned by the golden schema instead: Alembic compares two
        # calls of new_ulid(), which never give the same.
        "compare_server_default": False,
    }


@contextlib.contextmanager
def migrating(target: str | Engine, *, schema: str) -> Iterator[Connection]:
    """
    Hold the migration lock of *schema*, and lend a connection to migrate on.

    The schema exists when the connection is lent.
    """
    with _connected(target) as holder:
        _take_lock(holder, schema)
        try:
            with _connected(target) as connection:
                _create_schema(holder, Schema(schema))
                # For this connection alone, which is not pooled; as a plain
                # statement, since revisions may commit several transactions.
                connection.exec_driver_sql(f"SET lock_timeout = {_LOCK_TIMEOUT_MS}")
                connection.exec_driver_sql("SET statement_timeout = 0")
                connection.exec_driver_sql(
                    "SET idle_in_transaction_session_timeout = 0"
                )
                connection.commit()
                yield connection.execution_options(isolation_level="READ COMMITTED")
        finally:
            with contextlib.suppress(DBAPIError):
                holder.exec_driver_sql("SELECT pg_advisory_unlock_all()")


def _with_retries(
    target: str | Engine,
    schema: str,
    revision: str,
    run: Callable[[Config], None],
    x_arguments: list[str] | None = None,
) -> None:
    for attempt in range(1, _TRIES + 1):
        try:
            with _in_process, migrating(target, schema=schema) as connection:
                config = _config(schema, x_arguments)
                config.attributes["connection"] = connection
                run(config)
        except DBAPIError as error:
            sqlstate = getattr(error.orig, "sqlstate", None)
            if sqlstate not in _RETRIED:
                raise translate(error, fault_of(error), writes=True) from None
            if attempt == _TRIES:
                message = (
                    f"a table lock in schema {schema} could not be had in {_TRIES} "
                    "tries; look for idle transactions in pg_stat_activity"
                )
                raise StoreBusy(message) from None
            # A pause as long as the wait was: claims that queued behind it get
            # through before the next try.
            time.sleep(_LOCK_TIMEOUT_MS / 1000)
        except CommandError as error:
            found = current(target, schema=schema)
            if found is not None:
                _refuse_unknown(found, schema)
            raise InvalidInput("revision", revision, str(error)) from None
        else:
            return


def _refuse_unknown(found: str, schema: str) -> None:
    scripts = ScriptDirectory.from_config(_config(schema))
    if found not in {script.revision for script in scripts.walk_revisions()}:
        message = f"schema {schema} is at {found}, which is newer than this code knows"
        raise SchemaTooNew(message)


def _take_lock(holder: Connection, schema: str) -> None:
    """
    Take the migration lock, or raise `StoreBusy` naming who has it.
    """
    deadline = time.monotonic() + _WAIT_FOR_OTHERS.total_seconds()
    key = {"name": f"jobstore migrate {schema}"}
    while not holder.exec_driver_sql(
        "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))", key
    ).scalar():
        if time.monotonic() > deadline:
            pid = holder.exec_driver_sql(
                """
                SELECT string_agg(pid::text, ', ') FROM pg_locks
                WHERE locktype = 'advisory' AND granted AND objsubid = 1
                  AND (classid::bigint << 32 | objid::bigint)
                      = hashtextextended(%(name)s, 0)
                """,
                key,
            ).scalar()
            message = f"another migration of schema {schema} runs in backend {pid}"
            raise StoreBusy(message)
        time.sleep(0.2)


def _create_schema(connection: Connection, schema: Schema) -> None:
    # Asked first: CREATE SCHEMA IF NOT EXISTS needs the right to create even when
    # there is nothing to create.
    exists = connection.exec_driver_sql(
        "SELECT 1 FROM pg_namespace WHERE nspname = %(name)s", {"name": schema.name}
    ).scalar()
    if not exists:
        connection.exec_driver_sql(schema.render("CREATE SCHEMA {s}"))


@contextlib.contextmanager
def _connected(target: str | Engine) -> Iterator[Connection]:
    """
    Lend an autocommitting connection that belongs to no pool.
    """
    url = target.url if isinstance(target, Engine) else engine_url(target)
    engine = create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True
    )
    try:
        connection = engine.connect()
    except OperationalError as error:
        message = f"cannot connect to {shown_url(url)}"
        reason = str(error.orig).strip().splitlines()[0]
        raise StoreUnavailable(f"{message}: {reason}") from None
    try:
        yield connection
    finally:
        connection.close()
        engine.dispose()


def _config(schema: str, x_arguments: list[str] | None = None) -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(_script_location()).replace("%", "%%")
    )
    config.attributes["schema"] = schema
    config.cmd_opts = Namespace(x=x_arguments or [])
    return config


def _script_location() -> Path:
    """
    Find the chain: in the wheel inside the package, in a checkout beside it.
    """
    package = importlib.util.find_spec("jobstore")
    assert package is not None
    assert package.origin is not None
    here = Path(package.origin).parent
    for folder in (here / "_migrations", here.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    message = f"no migrations beside {here}: the installation is incomplete"
    raise SchemaError(message)
