"""
Every error that jobstore raises on purpose.

    JobstoreError
    ├── InvalidInput (ValueError)       a value was refused before anything was sent
    ├── JobNotFound (LookupError)       no such job; code JOB_UNKNOWN
    ├── JobPruned (LookupError)         the key's job ran and was pruned since
    ├── PayloadMissing (LookupError)    the job is there, its payload row is not
    ├── IdempotencyConflict             strict create met the key with other content
    ├── InvalidParent                   the parent cannot take children now
    ├── InvalidTransition               the state machine forbids the change
    ├── LeaseLost                       the lease is no longer yours
    │   └── JobCancelled                … because the job was cancelled
    ├── StoreUnavailable                not done; repeat when the database is back
    │   └── StoreBusy                   not done; repeat at once or a little later
    ├── OutcomeUnknown                  done or not done; safe to repeat as it was
    ├── StoreFault                      the database refused it; repeating won't help
    └── SchemaError
        ├── SchemaMissing               run the migrations
        ├── SchemaOutdated              the schema is older than this code
        └── SchemaTooNew                the schema is newer than this code

Each class says with `outcome` what happened to the call: ``"not done"`` (nothing
was changed) or ``"unknown"``. There is no third value: a call that was done
returns. Messages carry ids, field names and states; never a payload, a result,
an idempotency key or a connection string's password.
"""

from typing import ClassVar, Literal

__all__ = [
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidParent",
    "InvalidTransition",
    "JobCancelled",
    "JobNotFound",
    "JobPruned",
    "JobstoreError",
    "LeaseLost",
    "OutcomeUnknown",
    "PayloadMissing",
    "SchemaError",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "StoreBusy",
    "StoreFault",
    "StoreUnavailable",
]


class JobstoreError(Exception):
    """
    Base of all errors of this library; catch it to catch them all.
    """

    code: ClassVar[str] = "JOBSTORE_ERROR"
    outcome: ClassVar[Literal["not done", "unknown"]] = "not done"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (multiprocessing, test runners), and
        # pickle's default would call the subclass with the message alone.
        return _restore, (type(self), self.args), self.__dict__


class InvalidInput(JobstoreError, ValueError):
    """
    A value was refused before the database saw it. Nothing was written.

    Correct the value named by *field* and call again; repeating won't help.
    """

    code = "INVALID_INPUT"

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"{field}={_short(field, value)}: {reason}")
        self.field = field
        self.value = value
        self.reason = reason


class JobNotFound(JobstoreError, LookupError):
    """
    There is no job with this id: never created, pruned, or deleted by hand.

    An API answers 404.
    """

    code = "JOB_UNKNOWN"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id}")
        self.job_id = job_id


class JobPruned(JobstoreError, LookupError):
    """
    The idempotency key is known, but its job was pruned or deleted since.

    Nothing was inserted: the work was accepted before. Treat it as done, or use
    another key to have it done again.
    """

    code = "JOB_PRUNED"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the key belongs to job {job_id}, which was pruned")
        self.job_id = job_id


class PayloadMissing(JobstoreError, LookupError):
    """
    The job exists but its payload row does not; somebody removed it by hand.

    Restore the row or end the job; a worker fails it on the usual counted path.
    """

    code = "PAYLOAD_MISSING"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has no payload row")
        self.job_id = job_id


class IdempotencyConflict(JobstoreError):
    """
    A strict create met its idempotency key in use for other content.

    Nothing was inserted. *job_id* is the job that owns the key. Use another key
    if the work differs, or create without ``strict`` to be given that job.
    """

    code = "IDEMPOTENCY_CONFLICT"

    def __init__(self, job_id: str, tenant: str) -> None:
        super().__init__(
            f"the key of tenant {tenant!r} already belongs to job {job_id}, "
            "which has another payload, content type, kind or parent"
        )
        self.job_id = job_id
        self.tenant = tenant


class InvalidParent(JobstoreError):
    """
    The parent is unknown, ended, or belongs to another tenant. Nothing was inserted.
    """

    code = "INVALID_PARENT"

    def __init__(self, parent_id: str, reason: str) -> None:
        super().__init__(f"parent {parent_id}: {reason}")
        self.parent_id = parent_id
        self.reason = reason


class InvalidTransition(JobstoreError):
    """
    The job is in a state from which the change is not allowed. Nothing was changed.

    Read the job again and decide; *current* is the state that was found.
    """

    code = "INVALID_TRANSITION"

    def __init__(self, job_id: str, current: str, wanted: str) -> None:
        super().__init__(f"job {job_id} is {current}; it cannot become {wanted}")
        self.job_id = job_id
        self.current = current
        self.wanted = wanted


class LeaseLost(JobstoreError):
    """
    The job is no longer held by this lease, and the write changed nothing.

    Another worker holds it, or it has ended some other way. Drop the outcome
    and stop; do not retry.
    """

    code = "LEASE_LOST"

    def __init__(self, job_id: str, fence: int, reason: str) -> None:
        super().__init__(f"lease {fence} on job {job_id} is lost: {reason}")
        self.job_id = job_id
        self.fence = fence
        self.reason = reason


class JobCancelled(LeaseLost):
    """
    The lease is lost because the job was cancelled. Stop working on it.
    """

    code = "JOB_CANCELLED"


class StoreUnavailable(JobstoreError):
    """
    The database could not be reached, or is not accepting work. Nothing was done.

    Repeat with a backoff; workers of this library do so by themselves.
    """

    code = "STORE_UNAVAILABLE"


class StoreBusy(StoreUnavailable):
    """
    A lock, a deadlock, a serialization failure, a full pool or a time limit.

    Nothing was done. Inside your own transaction it must be rolled back first;
    then repeat the whole transaction.
    """

    code = "STORE_BUSY"


class OutcomeUnknown(JobstoreError):
    """
    The connection broke after the write was sent; it is done or not done.

    Repeating the call is safe: a create with the same key, or with ``job_id`` set
    to this error's *job_id*, finds its own job; a finish with the same lease and
    outcome succeeds if it was the one that got through; a claim that got through
    comes back by its visibility timeout.
    """

    code = "OUTCOME_UNKNOWN"
    outcome = "unknown"

    def __init__(self, message: str, job_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class StoreFault(JobstoreError):
    """
    The database refused the statement for a reason that repeating won't cure.

    A missing grant, a full disk, a constraint that somebody added: *sqlstate*
    tells. Nothing was done.
    """

    code = "STORE_FAULT"

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class SchemaError(JobstoreError):
    """
    The tables and this code don't fit together; see the subclasses.
    """

    code = "SCHEMA_ERROR"


class SchemaMissing(SchemaError):
    """
    The schema has no jobstore tables. Run ``jobstore migrate up``.
    """

    code = "SCHEMA_MISSING"


class SchemaOutdated(SchemaError):
    """
    The schema is older than this code needs. Run ``jobstore migrate up``.
    """

    code = "SCHEMA_OUTDATED"


class SchemaTooNew(SchemaError):
    """
    The schema was migrated by a newer release, past what this code knows.

    Upgrade this process; nothing was written.
    """

    code = "SCHEMA_TOO_NEW"


def _restore(kind: type[JobstoreError], args: tuple[object, ...]) -> JobstoreError:
    error = kind.__new__(kind)
    error.args = args
    return error


def _short(field: str, value: object) -> str:
    """
    Render *value* for a message: one line, and never the content of what is private.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if field == "idem_key" and isinstance(value, str):
        return f"<{len(value)} characters>"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
