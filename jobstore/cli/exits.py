"""
Exit codes: stable, and one meaning each.
"""

from enum import IntEnum

from jobstore import errors

__all__ = ["Exit", "exit_of"]


class Exit(IntEnum):
    """
    What the shell gets to see.
    """

    OK = 0
    ERROR = 1
    """Something else went wrong."""
    USAGE = 2
    """The command line is off."""
    NOT_FOUND = 3
    """No such job, payload or result."""
    INVALID = 4
    """A value was refused."""
    CONFLICT = 5
    """The state of the job, its key or its parent forbids it."""
    UNAVAILABLE = 6
    """The database can't be reached, or is not accepting work. Nothing was done."""
    SCHEMA = 7
    """The schema is missing, too old or too new."""
    BUSY = 8
    """Nothing was done; try again."""
    UNKNOWN = 9
    """Done or not done; it is safe to try again."""
    SCHEMA_MISSING = 11
    """From `migrate check` and `wait`: there are no jobstore tables."""
    SCHEMA_OUTDATED = 12
    """From `migrate check` and `wait`: the schema is older than this code knows."""
    SCHEMA_TOO_NEW = 13
    """From `migrate check` and `wait`: the schema is too new for this code."""
    SCHEMA_DRIFT = 14
    """From `migrate check`: the schema was changed by hand."""
    INVALID_INDEX = 15
    """From `migrate check`: an index is invalid, since its build was killed."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """Whoever read the output went away; as for a program ended by SIGPIPE."""


# The first that fits counts.
_EXITS: tuple[tuple[type[errors.JobstoreError], Exit], ...] = (
    (errors.InvalidInput, Exit.INVALID),
    (errors.JobNotFound, Exit.NOT_FOUND),
    (errors.PayloadMissing, Exit.NOT_FOUND),
    (errors.JobPruned, Exit.NOT_FOUND),
    (errors.IdempotencyConflict, Exit.CONFLICT),
    (errors.InvalidParent, Exit.CONFLICT),
    (errors.InvalidTransition, Exit.CONFLICT),
    (errors.LeaseLost, Exit.CONFLICT),
    (errors.StoreBusy, Exit.BUSY),
    (errors.StoreUnavailable, Exit.UNAVAILABLE),
    (errors.OutcomeUnknown, Exit.UNKNOWN),
    (errors.SchemaError, Exit.SCHEMA),
)


def exit_of(error: errors.JobstoreError) -> Exit:
    """
    Return the exit code for *error*.
    """
    for kind, code in _EXITS:
        if isinstance(error, kind):
            return code
    return Exit.ERROR
