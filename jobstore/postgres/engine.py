"""
Engines: how this library connects.

An engine made here carries everything a statement needs in its session, set by the
connection's start-up options: time limits, isolation, UTC, and planner settings.
So the common verb is one statement in one round trip, with nothing to set up first.
"""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from jobstore.errors import InvalidInput
from jobstore.model import check_count, check_duration, check_flag

__all__ = [
    "FORMATS",
    "Limits",
    "adopt",
    "async_engine",
    "engine",
    "engine_url",
    "own_connection",
    "recreated",
    "shared_connection",
    "shown_url",
]


FORMATS = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "array_nulls": "on",
    "client_encoding": "UTF8",
}
"""How values are written on the wire: what the driver reads, whatever a role's are."""


@contextmanager
def own_connection(engine: Engine) -> Iterator[Any]:
    """
    Lend the driver's connection out of the pool of an engine made here.

    For an asynchronous engine, called on its ``sync_engine`` within a greenlet, that
    is the driver's asynchronous one. Whoever borrows it ends his transactions: the
    pool does not roll back, it only looks.

    When it turns out dead, or to lead to a server that takes no writes (any more), the
    idle ones are dropped with it: after a restart or a failover they are no better, and
    would each cost a call.
    """
    pool = engine.pool
    pooled = pool.connect()
    driver: Any = pooled.driver_connection
    is_read_only = False
    try:
        yield driver
    except psycopg.errors.ReadOnlySqlTransaction:
        is_read_only = True
        raise
    finally:
        status = driver.pgconn.transaction_status
        if status == TransactionStatus.IDLE and not is_read_only:
            pooled.close()
            if engine.pool is not pool:
                # Dropped meanwhile by another's failure; nobody else would close what
                # comes back to it.
                pool.dispose()
        else:
            is_dead = driver.closed
            pooled.invalidate()
            if is_dead or is_read_only:
                engine.dispose()


def adopt(engine: Engine) -> None:
    """
    Have the connections of an engine that was handed in stay out of forked children.
    """
    _engines.add(engine)


@contextmanager
def shared_connection(connection: Connection) -> Iterator[None]:
    """
    Use a connection of an engine that was handed in.

    When it turns out to lead to a server that takes no writes, it goes with all that
    are pooled, as SQLAlchemy itself does with broken ones.
    """
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
            connection.invalidate()
            connection.engine.dispose()
        raise


def recreated(engine: Engine) -> Engine:
    """
    Make an engine that connects as *engine* does, with a pool of its own.
    """
    return create_engine(
        engine.url, pool=engine.pool.recreate(), hide_parameters=engine.hide_parameters
    )


# The server counts in milliseconds, with 31 bits.
_LONGEST_LIMIT = timedelta(days=24)

_MOST_CONNECTIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    How long the parts of a call may take, up to 24 days. Zero means without limit.
    """

    connect: timedelta = timedelta(seconds=10)
    statement: timedelta = timedelta(seconds=60)
    lock: timedelta = timedelta(seconds=5)
    call: timedelta = timedelta(seconds=120)
    """The whole of a call, kept by the client: for a server that hangs."""

    def __post_init__(self) -> None:
        for name in ("connect", "statement", "lock", "call"):
            value = getattr(self, name)
            check_duration(name, value, shortest=timedelta(0), longest=_LONGEST_LIMIT)

    def settings(self) -> dict[str, str]:
        """
        Return the server settings that every statement of this library runs under.
        """
        return {
            "statement_timeout": str(_milliseconds(self.statement)),
            "lock_timeout": str(_milliseconds(self.lock)),
            "TimeZone": "UTC",
            **FORMATS,
            # The hot statements find their rows by index at any size. A plan that
            # is cached while the table is empty would scan it, and would go on
            # scanning when it has grown; JIT would compile for longer than they run.
            "enable_seqscan": "off",
            "jit": "off",
            # Left to itself the server plans some of them anew each time, for as
            # long as they run; and the plans that the tests prove are those that run.
            "plan_cache_mode": "force_generic_plan",
        }


def engine_url(dsn: str | URL) -> URL:
    """
    Read a DSN (``postgresql://…``, ``postgres://…``) as a URL for psycopg 3.

    Raises:
        InvalidInput: It is no such URL. The message does not repeat it: it may
            hold a password.
    """
    try:
        url = make_url(dsn)
    except (ArgumentError, AttributeError, ValueError):
        raise InvalidInput(
            "dsn", "…", "must look like postgresql://user@host:5432/database"
        ) from None
    if url.drivername not in {
        "postgres",
        "postgresql",
        "postgresql+psycopg",
        "postgresql+psycopg_async",
    }:
        raise InvalidInput("dsn", url.drivername, "must begin with postgresql://")
    if "@" in f"{url.host}{url.database}":
        # Part of a password, most likely, that was cut at an earlier one.
        raise InvalidInput("dsn", "…", "an @ in a user or password is written %40")
    return url.set(drivername="postgresql+psycopg")


def shown_url(url: URL) -> str:
    """
    Say where *url* leads, and nothing that may be secret: options can be, too.
    """
    where = {name: url.query[name] for name in ("host", "port") if name in url.query}
    return url.set(query=where).render_as_string(hide_password=True)


def engine(
    dsn: str | URL, *, limits: Limits, pool_size: int, through_pooler: bool
) -> Engine:
    """
    Make a synchronous engine for *dsn*.
    """
    url = engine_url(dsn)
    _check_options(pool_size, through_pooler=through_pooler)
    made = create_engine(
        url, **_options(url, limits, pool_size, through_pooler=through_pooler)
    )
    event.listen(made, "connect", _pin_isolation)
    _engines.add(made)
    return made


def async_engine(
    dsn: str | URL, *, limits: Limits, pool_size: int, through_pooler: bool
) -> AsyncEngine:
    """
    Make an asynchronous engine for *dsn*.
    """
    url = engine_url(dsn)
    _check_options(pool_size, through_pooler=through_pooler)
    made = create_async_engine(
        url, **_options(url, limits, pool_size, through_pooler=through_pooler)
    )
    event.listen(made.sync_engine, "connect", _pin_isolation)
    _engines.add(made.sync_engine)
    return made


def _check_options(pool_size: object, *, through_pooler: object) -> None:
    check_count("pool_size", pool_size, 1, _MOST_CONNECTIONS)
    check_flag("through_pooler", through_pooler)


def _options(
    url: URL, limits: Limits, pool_size: int, *, through_pooler: bool
) -> dict[str, Any]:
    connect: dict[str, Any] = {
        "application_name": "jobstore",
        "connect_timeout": max(2, round(limits.connect.total_seconds())),
        # A peer that is gone without a word is noticed in about half a minute.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    if through_pooler:
        # Each transaction may run on another server connection: nothing may be
        # prepared or set for a session. The store sets its limits locally.
        connect["prepare_threshold"] = None
    else:
        connect["options"] = " ".join(
            [
                # First, so that what the user wrote in the DSN wins.
                *(f"-c {name}={value}" for name, value in limits.settings().items()),
                r"-c default_transaction_isolation=read\ committed",
                str(url.query.get("options", "")),
            ]
        ).strip()
    connect = {
        name: value
        for name, value in connect.items()
        if name == "options" or name not in url.query
    }
    return {
        "connect_args": connect,
        "isolation_level": "AUTOCOMMIT",
        "pool_size": pool_size,
        "max_overflow": 0,
        "pool_timeout": max(1.0, limits.connect.total_seconds()),
        "pool_use_lifo": True,
        "pool_reset_on_return": None,  # own_connection looks instead
        # Errors must not print parameters: they hold payloads and keys.
        "hide_parameters": True,
    }


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _pin_isolation(connection: Any, _record: Any) -> None:
    # For the transactions that the store begins, whatever the role's default is.
    level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        if isinstance(connection, psycopg.Connection):
            connection.isolation_level = level
        else:
            # SQLAlchemy's adapter of an asynchronous one.
            connection.set_isolation_level(level)
    except psycopg.Error:
        # It broke already. The pool forgets one that was not set up, unclosed.
        connection.close()
        raise


def _after_fork() -> None:
    # Parent and child must not talk over one socket. The child drops the pooled
    # connections without closing them: they are the parent's.
    for made in list(_engines):
        made.dispose(close=False)


os.register_at_fork(after_in_child=_after_fork)
