"""
From SQLSTATE to our errors: one function, and the only place that reads them.

What the driver says is not repeated in full: a failed constraint quotes the row, and
with it payloads and keys. Our errors carry the state, the constraint's name and the
first line of the message, and no chained exception.
"""

from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InvalidRequestError,
    SQLAlchemyError,
)
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

__all__ = ["is_cut", "may_repeat_at_once", "translate"]

# What the server refused as a whole, with nothing done: worth another try.
_BUSY = {
    "40001": "a serialization failure",
    "40P01": "a deadlock",
    "55P03": "a lock that was not free in time",
    "57014": "a time limit, or somebody who cancelled the statement",
    "55006": "an object in use",
}
_UNAVAILABLE = {
    "25006": "the server is read-only: a standby, or told so",
    "53300": "too many connections",
    "53400": "a configured limit",
    "57P03": "the server is starting up or shutting down",
}
# The connection ended under the statement: nobody knows whether it was done.
_CUT = frozenset({"57P01", "57P02", "57P05", "25P03", "25P04"})


def translate(error: SQLAlchemyError, *, writes: bool) -> JobstoreError:
    """
    Say in our terms what *error* means for the call that met it.

    Args:
        error: What SQLAlchemy raised.
        writes: Whether the call may have changed something; a read that was cut
            short can simply be repeated.
    """
    if isinstance(error, PoolTimeout):
        return StoreBusy(
            "all connections of the pool are in use: raise pool_size, "
            "or hold transactions for a shorter time"
        )
    if not isinstance(error, DBAPIError):
        if isinstance(error, DisconnectionError):
            return StoreUnavailable("the connection could not be used")
        if isinstance(error, InvalidRequestError):
            return StoreBusy(
                "the transaction cannot be used any more: roll it back and repeat it"
            )
        return StoreFault(type(error).__name__)
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate is None or is_cut(error):
        return _no_answer(error, writes=writes)
    return _answer(error, sqlstate)


def may_repeat_at_once(error: SQLAlchemyError) -> bool:
    """
    Whether the server undid the whole transaction for the sake of another one.
    """
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state in {"40001", "40P01"}


def is_cut(error: SQLAlchemyError) -> bool:
    """
    Whether the connection is gone; the next one may well work.
    """
    if not isinstance(error, DBAPIError):
        return False
    sqlstate = getattr(error.orig, "sqlstate", None) or ""
    return error.connection_invalidated or sqlstate.startswith("08") or sqlstate in _CUT


def _no_answer(error: DBAPIError, *, writes: bool) -> JobstoreError:
    if is_cut(error):
        message = "the connection broke before the answer came"
        return OutcomeUnknown(message) if writes else StoreUnavailable(message)
    # Without a statement the failure was in connecting, before anything was sent.
    if error.statement is None:
        return StoreUnavailable(f"cannot connect: {_first_line(error)}")
    return StoreFault(_first_line(error))


def _answer(error: DBAPIError, sqlstate: str) -> JobstoreError:
    if sqlstate in _BUSY:
        return StoreBusy(f"{_BUSY[sqlstate]} (SQLSTATE {sqlstate})")
    if sqlstate in _UNAVAILABLE:
        return StoreUnavailable(f"{_UNAVAILABLE[sqlstate]} (SQLSTATE {sqlstate})")
    if sqlstate in {"42P01", "3F000", "42883"}:
        return SchemaMissing(f"{_first_line(error)}: run jobstore migrate up")
    if sqlstate in {"42703", "42704"}:
        return SchemaOutdated(f"{_first_line(error)}: run jobstore migrate up")
    if sqlstate == "25P02":
        return StoreBusy("the transaction failed before: roll it back and repeat it")
    constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    where = f" by {constraint}" if constraint else ""
    return StoreFault(
        f"refused{where}: {_first_line(error)} (SQLSTATE {sqlstate})", sqlstate
    )


def _first_line(error: DBAPIError) -> str:
    diag = getattr(error.orig, "diag", None)
    primary = getattr(diag, "message_primary", None)
    text = primary or str(error.orig)
    return text.strip().splitlines()[0] if text.strip() else type(error.orig).__name__
