"""
The checks of arguments that every store makes before it does anything.

They return the checked value in the form the stores use, or raise `InvalidInput`
naming the field. Values check themselves when they are built (`jobstore.model`);
here is what only a verb knows.
"""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import fields, replace
from datetime import timedelta
from itertools import islice

from jobstore.errors import InvalidInput
from jobstore.ids import is_canonical
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus, check_transition
from jobstore.model import (
    MAX_ATTEMPTS,
    MAX_ERROR_MESSAGE,
    ChildFailure,
    Completed,
    Failed,
    Job,
    Lease,
    NewJob,
    Outcome,
    Released,
    Snoozed,
    check_count,
    check_duration,
    check_instant,
    check_text,
    recordable,
)
from jobstore.store import MAX_BATCH

__all__ = [
    "check_callable",
    "check_child_failure",
    "check_endings",
    "check_job_class",
    "check_lease",
    "check_lease_time",
    "check_leases",
    "check_limit",
    "check_new",
    "check_new_jobs",
    "check_statuses",
    "check_terminal",
    "check_update",
    "recordable_reason",
]

_HIGHEST_FENCE = 2**63 - 1

_UPDATABLE = frozenset(
    {
        "status",
        "queue",
        "job_class",
        "max_attempts",
        "available_at",
        "result",
        "error_code",
        "error_message",
        "updated_at",
    }
)


def check_new(new: object, max_payload_bytes: int) -> NewJob:
    if not isinstance(new, NewJob):
        raise InvalidInput("new", type(new), "must be a NewJob")
    if len(new.payload) > max_payload_bytes:
        raise InvalidInput(
            "payload", new.payload, f"is over max_payload_bytes, {max_payload_bytes:,}"
        )
    return new


def check_new_jobs(
    new: object, max_payload_bytes: int, name: str = "new"
) -> list[NewJob]:
    jobs = _batch(name, new)
    return [check_new(one, max_payload_bytes) for one in jobs]


def check_lease(lease: object) -> Lease:
    if not isinstance(lease, Lease):
        raise InvalidInput("lease", type(lease), "must be a Lease: use claim.lease")
    job_id, fence = lease.token
    # What no claim ever gave is refused here: a database would call it a bad byte
    # or a missing operator, and True is fence 1 to a dict.
    if not is_canonical(job_id):
        raise InvalidInput("lease.job_id", job_id, "must be a job's id, as it came")
    if type(fence) is not int or not 0 <= fence <= _HIGHEST_FENCE:
        raise InvalidInput("lease.fence", fence, "must be a whole number, 0 or greater")
    return lease


def check_leases(leases: object) -> list[Lease]:
    return [check_lease(lease) for lease in _batch("leases", leases)]


def check_endings(
    outcomes: object, max_result_bytes: int
) -> list[tuple[Lease, Outcome]]:
    endings = []
    seen = set()
    for pair in _batch("outcomes", outcomes):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInput("outcomes", type(pair), "must be (lease, outcome) pairs")
        lease, outcome = check_lease(pair[0]), pair[1]
        if not isinstance(outcome, (Completed, Failed, Released, Snoozed)):
            raise InvalidInput(
                "outcome",
                type(outcome),
                "must be Completed, Failed, Released or Snoozed",
            )
        if isinstance(outcome, Completed):
            _check_result(outcome.result, max_result_bytes)
        if lease.token in seen:
            raise InvalidInput("outcomes", lease, "must name each lease once")
        seen.add(lease.token)
        endings.append((lease, outcome))
    return endings


def check_limit(limit: object) -> int:
    return check_count("limit", limit, 1, MAX_BATCH)


def check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise InvalidInput(name, value, "must be callable")


def check_lease_time(lease: object) -> timedelta | None:
    if lease is None:
        return None
    return check_duration("lease", lease, shortest=timedelta(seconds=1))


def check_job_class(job_class: object) -> JobClass:
    try:
        return JobClass(job_class)  # type: ignore[arg-type]  # that is what is checked
    except ValueError:
        known = ", ".join(JobClass)
        raise InvalidInput("job_class", job_class, f"must be one of {known}") from None


def check_child_failure(policy: object) -> ChildFailure:
    try:
        return ChildFailure(policy)  # type: ignore[arg-type]  # that is what is checked
    except ValueError:
        known = ", ".join(ChildFailure)
        raise InvalidInput(
            "on_child_failure", policy, f"must be one of {known}"
        ) from None


def check_statuses(
    status: JobStatus | Iterable[JobStatus] | None,
) -> tuple[JobStatus, ...]:
    if status is None:
        return ()
    if not isinstance(status, Iterable):
        raise InvalidInput("status", status, "must be a status, or several")
    words = (status,) if isinstance(status, str) else tuple(islice(status, MAX_BATCH))
    if not words:
        raise InvalidInput("status", status, "must name at least one status")
    return tuple(dict.fromkeys(_check_status(word) for word in words))


def check_terminal(status: Iterable[JobStatus]) -> tuple[JobStatus, ...]:
    if isinstance(status, str) or not isinstance(status, Iterable):
        raise InvalidInput("status", status, "must be several statuses")
    statuses = check_statuses(status)
    if not TERMINAL.issuperset(statuses):
        known = ", ".join(sorted(TERMINAL))
        raise InvalidInput("status", status, f"must be among {known}")
    return statuses


def check_update(before: Job, after: object, max_result_bytes: int) -> Job:
    """
    Check what ``update_status`` is to make of *before*, and return it normalised.
    """
    if not isinstance(after, Job):
        raise InvalidInput("fn", type(after), "must return the changed Job")
    for one in fields(Job):
        changed = getattr(before, one.name) != getattr(after, one.name)
        if changed and one.name not in _UPDATABLE:
            raise InvalidInput(one.name, getattr(after, one.name), "cannot be changed")
    status = _check_status(after.status)
    check_transition(before.id, before.status, status)
    if status is JobStatus.PROCESSING and before.status is not JobStatus.PROCESSING:
        raise InvalidInput("status", status, "only a claim grants a lease")
    check_text("queue", after.queue)
    check_job_class(after.job_class)
    check_count("max_attempts", after.max_attempts, 1, MAX_ATTEMPTS)
    available_at = check_instant("available_at", after.available_at)
    _check_result(after.result, max_result_bytes)
    if after.result is not None and status is not JobStatus.COMPLETED:
        raise InvalidInput("result", after.result, "only a completed job has one")
    if available_at != before.available_at and status is not JobStatus.SCHEDULED:
        raise InvalidInput("available_at", available_at, "only a scheduled job waits")
    if status is JobStatus.CANCELLED and before.children_open:
        raise InvalidInput(
            "status", status, "it has open children: cancel() ends the whole family"
        )
    if status is JobStatus.FAILED and not after.error_code:
        raise InvalidInput("error_code", after.error_code, "a failed job has one")
    if after.error_code is not None:
        check_text("error_code", after.error_code)
    error_code, error_message = _fitting_error(before, after, status)
    return replace(
        after,
        available_at=available_at,
        error_code=error_code,
        error_message=error_message,
    )


def _check_status(status: object) -> JobStatus:
    try:
        return JobStatus(status)  # type: ignore[arg-type]  # that is what is checked
    except ValueError:
        known = ", ".join(JobStatus)
        raise InvalidInput("status", status, f"must be among {known}") from None


def _fitting_error(
    before: Job, after: Job, status: JobStatus
) -> tuple[str | None, str | None]:
    """
    Return the error as it is to be stored: none on a completed job.

    What an earlier attempt left there goes by itself, as with `complete`.
    """
    if status is not JobStatus.COMPLETED:
        message = after.error_message
        return after.error_code, None if message is None else recordable_reason(message)
    for name in ("error_code", "error_message"):
        value = getattr(after, name)
        if value is not None and value != getattr(before, name):
            raise InvalidInput(name, value, "a completed job has none")
    return None, None


def recordable_reason(reason: object) -> str:
    return recordable(reason)[:MAX_ERROR_MESSAGE]


def _check_result(result: object, max_result_bytes: int) -> None:
    if result is None:
        return
    if not isinstance(result, bytes):
        raise InvalidInput("result", type(result), "must be bytes or None")
    if len(result) > max_result_bytes:
        raise InvalidInput(
            "result", result, f"is over max_payload_bytes, {max_result_bytes:,}"
        )


def _batch(name: str, values: object) -> Sequence[object]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInput(name, type(values), "must be a sequence")
    # One more tells; a source that never ends is not read to its end.
    batch = list(islice(values, MAX_BATCH + 1))
    if len(batch) > MAX_BATCH:
        count = len(values) if isinstance(values, Sized) else len(batch)
        raise InvalidInput(name, count, f"are over {MAX_BATCH:,} at once")
    return batch
