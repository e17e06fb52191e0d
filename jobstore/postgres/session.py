"""
What an operation works on: a connection, the schema, and the store's few rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from jobstore.postgres.floor import ClaimFloor
from jobstore.postgres.schema import Schema
from jobstore.retry import RetryPolicy

__all__ = ["Call", "Rules", "Session"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """
    What a store was told when it was made.
    """

    schema: Schema
    retry: RetryPolicy
    max_payload_bytes: int


@dataclass(frozen=True, slots=True)
class Session:
    """
    One connection, for the length of one operation.
    """

    connection: Connection
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
        return self._execute(statement, parameters).all()  # type: ignore[no-any-return]

    def row(self, statement: str, **parameters: Any) -> Any | None:
        """
        Execute *statement* and return its first row, if it has one.
        """
        return self._execute(statement, parameters).first()

    def run(self, statement: str, **parameters: Any) -> int:
        """
        Execute *statement* and return how many rows it changed.
        """
        return self._execute(statement, parameters).rowcount  # type: ignore[no-any-return]

    def _execute(self, statement: str, parameters: dict[str, Any]) -> Any:
        sql = self.rules.schema.render(statement)
        return self.connection.exec_driver_sql(sql, parameters)


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
