"""
From SQLSTATE to our errors: the only place that reads them.

What the driver says is not repeated in full: a failed constraint quotes the row, and
with it payloads and keys. Our errors carry the state, the constraint's name and the
first line of the message, and no chained exception.
"""

from dataclasses import dataclass

import psycopg
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from jobstore.errors import (
    JobstoreError,
    OutcomeUnknown,
    SchemaMissing,
    SchemaOutdated,
    StoreBusy,
    StoreFault,
    StoreUnavailable,
)

__all__ = ["DATABASE_ERRORS", "Fault", "fault_of", "translate"]

DATABASE_ERRORS = (psycopg.Error, SQLAlchemyError)
"""What a statement, or getting a connection for it, may raise."""

# What the server refused as a whole, with nothing done: worth another try.
_BUSY = {
    "40001": "a serialization failure",
    "40P01": "a deadlock",
    "55P03": "a lock that was not free in time",
    "57014": "a time limit, or somebody who cancelled the statement",
    "55006": "an object in use",
    "25P02": "the transaction failed before: roll it back and repeat it",
}
_READ_ONLY = "25006"
_UNAVAILABLE = {
    _READ_ONLY: "the server is read-only: a standby, or told so",
    "53300": "too many connections",
    "53400": "a configured limit",
    "57P03": "the server is starting up or shutting down",
}
# The connection ended under the statement: nobody knows whether it was done.
_CUT = frozenset({"57P01", "57P02", "57P05", "25P03", "25P04"})
_MISSING = frozenset({"42P01", "3F000", "42883"})
_OUTDATED = frozenset({"42703", "42704"})


@dataclass(frozen=True, slots=True)
class Fault:
    """
    What is known of a failure, however it reached us.
    """

    sqlstate: str | None
    is_read_only: bool
    """The server takes no writes, as a standby; another connection may do better."""
    is_cut: bool
    """The connection is gone; the next one may well work."""
    while_connecting: bool
    """Nothing had been sent."""
    text: str
    constraint: str | None

    @property
    def is_lost(self) -> bool:
        """
        Whether this connection is of no more use, and another one may be.
        """
        return self.is_cut or self.is_read_only

    @property
    def may_repeat_at_once(self) -> bool:
        """
        Whether the server undid the whole transaction for the sake of another one.
        """
        return self.sqlstate in {"40001", "40P01"}


def fault_of(error: Exception, driver: psycopg.BaseConnection | None = None) -> Fault:
    """
    Examine what the driver, or SQLAlchemy around it, raised.

    Args:
        error: What was raised.
        driver: The connection it was raised on, where SQLAlchemy was not asked; None
            if there was none yet.
    """
    if isinstance(error, DBAPIError):
        original: BaseException | None = error.orig
        broken = error.connection_invalidated
        # A value that can't be read has no statement either, but is no lost server.
        connecting = (
            error.statement is None
            and not broken
            and not isinstance(original, psycopg.DataError)
        )
    else:
        original = error
        broken = driver is not None and driver.closed
        connecting = driver is None
    sqlstate = getattr(original, "sqlstate", None)
    is_read_only = sqlstate == _READ_ONLY
    diag = getattr(original, "diag", None)
    text = getattr(diag, "message_primary", None) or str(original)
    return Fault(
        sqlstate=sqlstate,
        is_read_only=is_read_only,
        is_cut=(broken and not is_read_only)
        or sqlstate in _CUT
        or (sqlstate is not None and sqlstate.startswith("08")),
        while_connecting=connecting,
        text=text.strip().splitlines()[0] if text.strip() else type(original).__name__,
        constraint=getattr(diag, "constraint_name", None),
    )


def translate(error: Exception, fault: Fault, *, writes: bool) -> JobstoreError:
    """
    Say in our terms what a failure means for the call that met it.

    Args:
        error: What was raised.
        fault: What `fault_of` found in it.
        writes: Whether the call may have changed something; a read that was cut
            short can simply be repeated.
    """
    if isinstance(error, PoolTimeout):
        return StoreBusy(
            "all connections of the pool are in use: raise pool_size, "
            "or hold transactions for a shorter time"
        )
    if isinstance(error, InvalidRequestError):
        return StoreBusy(
            "the transaction cannot be used any more: roll it back and repeat it"
        )
    if fault.is_cut and not fault.while_connecting:
        message = "the connection broke before the answer came"
        return OutcomeUnknown(message) if writes else StoreUnavailable(message)
    if fault.sqlstate is None:
        if fault.while_connecting:
            return StoreUnavailable(f"cannot connect: {fault.text}")
        return StoreFault(f"{type(error).__name__}: {fault.text}")
    return _answer(fault, fault.sqlstate)


def _answer(fault: Fault, sqlstate: str) -> JobstoreError:
    if sqlstate in _BUSY:
        return StoreBusy(f"{_BUSY[sqlstate]} (SQLSTATE {sqlstate})")
    if sqlstate in _UNAVAILABLE or fault.is_cut:
        reason = _UNAVAILABLE.get(sqlstate, fault.text)
        return StoreUnavailable(f"{reason} (SQLSTATE {sqlstate})")
    if sqlstate in _MISSING:
        return SchemaMissing(f"{fault.text}: run jobstore migrate up")
    if sqlstate in _OUTDATED:
        return SchemaOutdated(f"{fault.text}: run jobstore migrate up")
    where = f" by {fault.constraint}" if fault.constraint else ""
    return StoreFault(f"refused{where}: {fault.text} (SQLSTATE {sqlstate})", sqlstate)
