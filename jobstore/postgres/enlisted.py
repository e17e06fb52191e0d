"""
The verbs inside a transaction of the caller's: all of it commits, or none.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
)
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.orm import scoped_session

from jobstore.errors import InvalidInput, JobNotFound, LeaseLost, SchemaError
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    ChildFailure,
    Created,
    Lease,
    NewJob,
    Outcome,
)
from jobstore.outcomes import AsyncOutcomes, Outcomes
from jobstore.postgres.core import Core
from jobstore.postgres.engine import FORMATS
from jobstore.postgres.session import Call, Session, SharedConnection
from jobstore.postgres.translate import fault_of, translate

__all__ = ["AsyncEnlisted", "AsyncTransaction", "Enlisted", "Transaction"]

T = TypeVar("T")

Transaction: TypeAlias = Connection | OrmSession | scoped_session[Any]
AsyncTransaction: TypeAlias = AsyncConnection | AsyncSession | async_scoped_session[Any]

_SET = """
SELECT current_setting(name), set_config(name, value, true)
FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, value)
"""


class Enlisted(Outcomes):
    """
    The submitting and finishing verbs, in the transaction of a Connection or Session.

    The verbs promise what `jobstore.store` says, with the transaction's commit as the
    moment at which they count. Errors leave the transaction usable, except when the
    connection itself is gone.
    """

    def __init__(self, core: Core, transaction: Transaction) -> None:
        if not isinstance(transaction, (Connection, OrmSession, scoped_session)):
            raise InvalidInput(
                "transaction", type(transaction), "must be a Connection or a Session"
            )
        self._core = core
        self._calls = core.calls
        self._transaction = transaction

    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        return self._run(self._calls.create(new, strict=strict, job_id=job_id))

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        return self._run(self._calls.create_many(new, strict=strict))

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        return self._run(
            self._calls.fan_out(lease, children, on_child_failure=on_child_failure)
        )

    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        endings = self._calls.check_endings(outcomes)
        return self._run(self._calls.set_results(endings)) if endings else []

    def _run(self, call: Call[T]) -> T:
        return run_enlisted(self._transaction, self._core, call)


class AsyncEnlisted(AsyncOutcomes):
    """
    Async twin of `Enlisted`, for an AsyncConnection or AsyncSession.
    """

    def __init__(self, core: Core, transaction: AsyncTransaction) -> None:
        if not isinstance(
            transaction, (AsyncConnection, AsyncSession, async_scoped_session)
        ):
            raise InvalidInput(
                "transaction",
                type(transaction),
                "must be an AsyncConnection or an AsyncSession",
            )
        self._core = core
        self._calls = core.calls
        self._transaction = transaction

    async def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """See `Creator.create`."""
        return await self._run(self._calls.create(new, strict=strict, job_id=job_id))

    async def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """See `Creator.create_many`."""
        return await self._run(self._calls.create_many(new, strict=strict))

    async def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """See `Finisher.fan_out`."""
        return await self._run(
            self._calls.fan_out(lease, children, on_child_failure=on_child_failure)
        )

    async def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""
        endings = self._calls.check_endings(outcomes)
        return await self._run(self._calls.set_results(endings)) if endings else []

    async def _run(self, call: Call[T]) -> T:
        # Both run it on their synchronous side.
        transaction = self._transaction
        if isinstance(transaction, async_scoped_session):
            transaction = transaction()
        return await transaction.run_sync(run_enlisted, self._core, call)


def run_enlisted(transaction: Transaction, core: Core, call: Call[T]) -> T:
    """
    Run *call* in a savepoint of *transaction*.
    """
    try:
        connection = (
            transaction
            if isinstance(transaction, Connection)
            else transaction.connection()
        )
        if getattr(connection.connection.driver_connection, "autocommit", False):
            raise InvalidInput(
                "transaction", "AUTOCOMMIT", "there is no transaction to be part of"
            )
        executor = SharedConnection(connection)
        core.check_fit(executor)
        with connection.begin_nested():
            # A duplicate key may be in an open transaction that nobody ends; and the
            # session may write values in a way that the driver doesn't read. What the
            # caller had set is put back; an error's rollback does so by itself.
            lock = core.limits.settings()["lock_timeout"]
            before = _set(executor, {"lock_timeout": lock, **FORMATS})
            result = call.run(Session(executor, core.rules, core.floor))
            _set(executor, before)
            return result
    except SQLAlchemyError as error:
        # Not committed: if the connection is gone, so is all that was done on it.
        failure = translate(error, fault_of(error), writes=False)
    if isinstance(failure, SchemaError):
        # What the schema says of itself tells more than what it lacks.
        with contextlib.suppress(SQLAlchemyError):
            core.check_fit(SharedConnection(connection), again=True)
    raise failure


def _set(executor: SharedConnection, settings: dict[str, str]) -> dict[str, str]:
    """
    Set *settings* for the rest of the transaction, and return what they were.
    """
    names = list(settings)
    rows = executor.rows(_SET, {"names": names, "values": list(settings.values())})
    return {name: row[0] for name, row in zip(names, rows, strict=True)}
