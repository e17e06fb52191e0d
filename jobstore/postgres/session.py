"""
What an operation works on: a connection, the schema, and the store's few rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from jobstore.postgres.floor import ClaimFloor
from jobstore.postgres.schema import Schema
from jobstore.retry import RetryPolicy

__all__ = [
    "AsyncOwnConnection",
    "Call",
    "Driver",
    "Executor",
    "OwnConnection",
    "Rules",
    "Session",
    "SharedConnection",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """
    What a store was told when it was made.
    """

    schema: Schema
    retry: RetryPolicy
    max_payload_bytes: int


Driver: TypeAlias = psycopg.Connection | psycopg.AsyncConnection


class Executor(Protocol):
    """
    A way to execute SQL text with named parameters.
    """

    @property
    def driver(self) -> Driver: ...

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Any]: ...

    def run(self, sql: str, parameters: Mapping[str, Any]) -> int: ...


@dataclass(frozen=True, slots=True)
class SharedConnection:
    """
    A connection that is, or may be, somebody else's too: through SQLAlchemy, so that
    its events, its logging and its notion of the transaction all hold.
    """

    connection: Connection

    @property
    def driver(self) -> Driver:
        driver = self.connection.connection.driver_connection
        assert isinstance(driver, Driver), "jobstore speaks through psycopg 3"
        return driver

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
        return self.connection.exec_driver_sql(sql, dict(parameters)).all()

    def run(self, sql: str, parameters: Mapping[str, Any]) -> int:
        return self.connection.exec_driver_sql(sql, dict(parameters)).rowcount


@dataclass(frozen=True, slots=True)
class OwnConnection:
    """
    A connection of the store's own pool: straight to the driver.

    For the small statements of a queue, SQLAlchemy's execution costs a third of the
    whole (docs/performance.md).
    """

    driver: psycopg.Connection

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
        # The text comes from Schema.render: constants and a quoted name.
        # Binary results: as text, bytea comes in hexadecimal, twice its size.
        return self.driver.execute(sql, parameters, binary=True).fetchall()

    def run(self, sql: str, parameters: Mapping[str, Any]) -> int:
        return self.driver.execute(sql, parameters).rowcount

    def transaction(self) -> AbstractContextManager[object]:
        return self.driver.transaction()


@dataclass(frozen=True, slots=True)
class AsyncOwnConnection:
    """
    The same in the other colour. Only to be used within SQLAlchemy's greenlet.
    """

    driver: psycopg.AsyncConnection

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
        return await_only(self._rows(sql, parameters))

    def run(self, sql: str, parameters: Mapping[str, Any]) -> int:
        return await_only(self.driver.execute(sql, parameters)).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        transaction = self.driver.transaction()
        await_only(transaction.__aenter__())
        try:
            yield
        except BaseException as error:
            await_only(transaction.__aexit__(type(error), error, error.__traceback__))
            raise
        await_only(transaction.__aexit__(None, None, None))

    async def _rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
        # One switch between greenlets for the two awaits.
        cursor = await self.driver.execute(sql, parameters, binary=True)
        return await cursor.fetchall()


@dataclass(frozen=True, slots=True)
class Session:
    """
    One connection, for the length of one operation.
    """

    executor: Executor
    rules: Rules
    floor: ClaimFloor
    is_repeated: bool = False
    """An earlier try of the same call broke off; it may have been done."""
    queues_to_wake: set[str] = field(default_factory=set)
    """Queues in which this operation made more to claim; told after the commit."""

    def queued(self, queue: str) -> None:
        """
        Note that a job was put back in line, perhaps far in front.
        """
        self.floor.forget(queue)
        self.queues_to_wake.add(queue)

    def rows(self, statement: str, **parameters: Any) -> Sequence[Any]:
        """
        Execute *statement* and return all its rows.
        """
        return self.executor.rows(self.rules.schema.render(statement), parameters)

    def row(self, statement: str, **parameters: Any) -> Any | None:
        """
        Execute *statement* and return its first row, if it has one.
        """
        rows = self.executor.rows(self.rules.schema.render(statement), parameters)
        return rows[0] if rows else None

    def run(self, statement: str, **parameters: Any) -> int:
        """
        Execute *statement* and return how many rows it changed.
        """
        return self.executor.run(self.rules.schema.render(statement), parameters)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """
    One verb with its checked arguments, ready to run in either colour.
    """

    run: Callable[[Session], T]
    transaction: bool = False
    """More than one statement that must stand or fall together."""
    writes: bool = True
    repeatable: bool = True
    """Safe to run again when nobody knows whether it was done."""
    job_id: str | None = None
    """The id that a create would store under, for `OutcomeUnknown`."""
