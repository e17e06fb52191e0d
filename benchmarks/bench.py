"""
What a benchmark works on: a server, a schema of its own, and ways to fill it.
"""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.postgres import AsyncPostgresStore, PostgresStore
from jobstore.postgres.engine import Limits
from jobstore.postgres.schema import Schema

__all__ = ["Bench", "libpq_dsn", "made"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """
    One migrated schema on one server, and how thoroughly to measure.
    """

    dsn: str
    schema: str
    pgbench: Path | None
    """The program, or None where it is not installed."""
    rounds: int = 5
    scale: float = 1.0
    """Multiplies the sizes of rounds; below 1 for a look, or for a test."""
    folder: Path = Path("results")
    """Where plots go."""

    def size(self, jobs: int, *, least: int = 1) -> int:
        """
        Scale a number of jobs.
        """
        return max(least, round(jobs * self.scale))

    def store(self, **options: Any) -> PostgresStore:
        """
        Make a store as a user would, with defaults unless *options* say otherwise.
        """
        return PostgresStore(self.dsn, schema=self.schema, **options)

    def async_store(self, **options: Any) -> AsyncPostgresStore:
        """
        Make an asynchronous store. See `store`.
        """
        return AsyncPostgresStore(self.dsn, schema=self.schema, **options)

    def render(self, statement: str) -> str:
        """
        Return a statement of the store as it sends it.
        """
        return Schema(self.schema).render(statement)

    def connect(self) -> psycopg.Connection[Any]:
        """
        Connect as a raw twin does: autocommit, prepared, with the store's settings.

        The planner settings are part of what makes the SQL the same.
        """
        settings = " ".join(
            f"-c {name}={value}" for name, value in Limits().settings().items()
        )
        return psycopg.connect(
            libpq_dsn(self.dsn), autocommit=True, prepare_threshold=0, options=settings
        )

    def connect_plain(self) -> psycopg.Connection[Any]:
        """
        Connect for preparing and looking, never for measuring.
        """
        return psycopg.connect(libpq_dsn(self.dsn), autocommit=True)

    def in_schema(self, statement: str) -> bytes:
        """
        Put the schema's name in place of ``{s}``.
        """
        return statement.replace("{s}", Schema(self.schema).quoted).encode()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """
        Run one statement on a connection of its own, without limits of time.
        """
        with self.connect_plain() as connection:
            cursor = connection.execute(self.in_schema(statement))
            return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        """
        Remove all rows.
        """
        self.execute("TRUNCATE {s}.job, {s}.payload, {s}.idempotency_key, {s}.attempt")

    def vacuum(self) -> None:
        """
        Bring the tables into the state that autovacuum keeps them in.
        """
        for table in ("job", "payload", "idempotency_key", "attempt"):
            self.execute(f"VACUUM ANALYZE {{s}}.{table}")


@contextlib.contextmanager
def made(
    dsn: str,
    *,
    pgbench: Path | None,
    rounds: int = 5,
    scale: float = 1.0,
    folder: Path = Path("results"),
) -> Iterator[Bench]:
    """
    Migrate a new schema for a while, and drop it in the end.
    """
    name = f"bench_{secrets.token_hex(4)}"
    migrate.upgrade(dsn, schema=name)
    bench = Bench(
        dsn=dsn,
        schema=name,
        pgbench=pgbench,
        rounds=rounds,
        scale=scale,
        folder=folder,
    )
    try:
        yield bench
    finally:
        with psycopg.connect(libpq_dsn(dsn), autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name))
            )


def libpq_dsn(dsn: str) -> str:
    """
    Return *dsn* as libpq reads it, without SQLAlchemy's name of the driver.
    """
    url = make_url(dsn).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)
