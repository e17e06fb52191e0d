"""
How a check looks at the database: short read-only transactions, with limits.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from jobstore.doctor.report import Finding, Severity
from jobstore.doctor.thresholds import Thresholds
from jobstore.errors import InvalidInput, StoreUnavailable
from jobstore.postgres.engine import engine_url, shown_url
from jobstore.postgres.schema import Schema

__all__ = ["Check", "Look", "looking", "server_time"]

_BEGIN = """
SELECT set_config('statement_timeout', '30s', true),
    set_config('lock_timeout', '2s', true),
    set_config('TimeZone', 'UTC', true),
    set_config('transaction_read_only', 'on', true)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    What every check gets.
    """

    engine: Engine
    connection: Connection
    schema: Schema
    thresholds: Thresholds
    wall_clock: Callable[[], float] = time.time

    def rows(self, statement: str, **parameters: object) -> list[Any]:
        """
        Run *statement*, with the schema as {s}, in a transaction; return its rows.
        """
        with self.connection.begin():
            self.connection.exec_driver_sql(_BEGIN)
            sql = self.schema.render(statement)
            # Percent signs are parameters' here, as in all statements of ours.
            return list(self.connection.exec_driver_sql(sql, parameters).all())

    def row(self, statement: str, **parameters: object) -> Any:
        return self.rows(statement, **parameters)[0]

    def named(self, name: str) -> str:
        """
        Name a view, function or index of the schema, for people to paste.
        """
        return f"{self.schema.quoted}.{name}"

    def graded(self, value: float, warning: float) -> Severity | None:
        """
        Grade *value* against a threshold; None: it is below.
        """
        if value < warning:
            return None
        if value >= warning * self.thresholds.critical_factor:
            return Severity.CRITICAL
        return Severity.WARNING


@dataclass(frozen=True, slots=True)
class Check:
    """
    One check: a name for alerts, a title for people, and what it does.
    """

    name: str
    title: str
    run: Callable[[Look], Iterator[Finding]]
    needs_schema: bool = True


@contextlib.contextmanager
def looking(
    target: str | URL | Engine, schema: str, thresholds: Thresholds
) -> Iterator[Look]:
    """
    Connect, for the length of one examination.

    Raises:
        InvalidInput: An argument does not fit; nothing was sent.
        StoreUnavailable: The database could not be reached.
    """
    named = Schema(schema)
    if not isinstance(thresholds, Thresholds):
        raise InvalidInput("thresholds", thresholds, "must be Thresholds")
    url = target.url if isinstance(target, Engine) else engine_url(target)
    engine = create_engine(
        url,
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        # No start-up options and nothing prepared: a pooler may be in between.
        connect_args={
            "application_name": "jobstore doctor",
            "prepare_threshold": None,
            **({} if "connect_timeout" in url.query else {"connect_timeout": 10}),
        },
    )
    try:
        with engine.connect() as connection:
            yield Look(
                engine=engine,
                connection=connection,
                schema=named,
                thresholds=thresholds,
            )
    except OperationalError as error:
        message = f"cannot connect to {shown_url(url)}"
        reason = str(error.orig).strip().splitlines()[0]
        raise StoreUnavailable(f"{message}: {reason}") from None
    finally:
        engine.dispose()


def server_time(look: Look) -> datetime:
    at: datetime = look.row("SELECT statement_timestamp()")[0]
    return at.astimezone(UTC)
