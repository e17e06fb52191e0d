"""
A migrator's connections: one that holds the lock, one to migrate on.
"""

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from jobstore.errors import StoreBusy, StoreUnavailable
from jobstore.postgres.engine import engine_url, shown_url
from jobstore.postgres.schema import Schema

__all__ = ["LOCK_NAME", "LOCK_TIMEOUT_MS", "connected", "migrating"]

LOCK_NAME = "jobstore migrate"
LOCK_TIMEOUT_MS = 1000
_WAIT_FOR_OTHERS = timedelta(minutes=10)


@contextlib.contextmanager
def migrating(target: str | Engine, *, schema: str) -> Iterator[Connection]:
    """
    Hold the migration lock of *schema*, and lend a connection to migrate on.

    The schema exists when the connection is lent.
    """
    named = Schema(schema)
    with connected(target) as holder:
        _take_lock(holder, schema)
        try:
            with connected(target) as connection:
                _create_schema(holder, named)
                # For this connection alone, which is not pooled; as a plain
                # statement, since revisions may commit several transactions.
                connection.exec_driver_sql(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
                connection.exec_driver_sql("SET statement_timeout = 0")
                connection.exec_driver_sql(
                    "SET idle_in_transaction_session_timeout = 0"
                )
                connection.commit()
                yield connection.execution_options(isolation_level="READ COMMITTED")
        finally:
            with contextlib.suppress(DBAPIError):
                holder.exec_driver_sql("SELECT pg_advisory_unlock_all()")


@contextlib.contextmanager
def connected(target: str | Engine) -> Iterator[Connection]:
    """
    Lend an autocommitting connection that belongs to no pool.
    """
    url = target.url if isinstance(target, Engine) else engine_url(target)
    engine = create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True
    )
    # Before SQLAlchemy asks which schema is the default one.
    event.listen(engine, "connect", _forget_search_path, insert=True)
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


def _forget_search_path(driver: Any, _record: object) -> None:
    """
    See nothing without its schema: ours is compared by name, even if it is public.
    """
    with driver.cursor() as cursor:
        cursor.execute("SET search_path = pg_catalog")
    driver.commit()


def _take_lock(holder: Connection, schema: str) -> None:
    """
    Take the migration lock, or raise `StoreBusy` naming who has it.
    """
    deadline = time.monotonic() + _WAIT_FOR_OTHERS.total_seconds()
    key = {"name": f"{LOCK_NAME} {schema}"}
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
