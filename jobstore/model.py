"""
The nouns: what is submitted, what is stored, what is held, how an attempt ends.

Frozen values, checked when they are built, so that nothing unfit ever reaches a
store. No I/O here, and no SQL.

Text is compared byte for byte: ``"k"`` and ``"k "`` are two idempotency keys, and
so are the composed and the decomposed form of one accented letter.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, Self

from jobstore.errors import InvalidInput
from jobstore.ids import known_id
from jobstore.lifecycle import JobClass, JobStatus

__all__ = [
    "Attempt",
    "AttemptOutcome",
    "ChildFailure",
    "Claim",
    "Completed",
    "Created",
    "Failed",
    "Heartbeat",
    "Job",
    "Lease",
    "NewJob",
    "Outcome",
    "Payload",
    "QueueStats",
    "Reclaimed",
    "Released",
    "Snoozed",
    "check_count",
    "check_duration",
    "check_flag",
    "check_text",
]

MAX_BYTES: Mapping[str, int] = {
    "tenant": 255,
    "idem_key": 1024,
    "queue": 128,
    "kind": 255,
    "content_type": 255,
    "worker": 255,
    "error_code": 255,
}
"""Longest text for each field, in UTF-8 bytes. The schema's CHECKs say the same."""

MAX_ERROR_MESSAGE = 10_000
"""Characters of an error message that are kept; the rest is cut."""

_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

MAX_ATTEMPTS = 1_000_000
MAX_PAGES = 100_000
LONGEST = timedelta(days=3650)

_EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


class ChildFailure(StrEnum):
    """
    What a parent does when its last child has ended and not all completed.
    """

    RESUME = "resume"
    """It is queued again all the same, and decides for itself."""
    FAIL = "fail"
    """It fails with error code CHILD_FAILED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """
    A job to be created. It has no id that you could keep by mistake, and may be
    created any number of times.

    Args:
        kind: Free label by which a worker finds its handler.
        payload: The work, as bytes; 0 bytes is fine. How many a store accepts is
            the store's ``max_payload_bytes``.
        content_type: What the payload is, for example ``application/pdf``.
        tenant: Whose job it is. Idempotency keys count within one tenant.
        idem_key: Makes a repeated create find the first job. None or "" means
            that this job is never deduplicated.
        queue: Routing name; a worker claims from the queues it names.
        job_class: Service class, from which the claim order follows.
        max_attempts: How often it may be tried, 1 to 1,000,000.
        available_at: Not to be claimed before this instant; aware. None: at once.
        delay: Not to be claimed before this time has passed since its creation, by the
            store's clock, up to 3650 days. Instead of *available_at*.
        parent_id: The job that this one is a part of.
        pages: Page numbers of the document that this job covers, 0 or greater.
        traceparent: W3C trace context of whoever submits it, for tracing across the
            queue; see https://www.w3.org/TR/trace-context/.

    Raises:
        InvalidInput: names the field and why.
    """

    kind: str
    payload: bytes = field(default=b"", repr=False)
    content_type: str = "application/octet-stream"
    tenant: str = "default"
    idem_key: str | None = field(default=None, repr=False)
    queue: str = "default"
    job_class: JobClass = JobClass.BATCH
    max_attempts: int = 5
    available_at: datetime | None = None
    delay: timedelta | None = None
    parent_id: str | None = None
    pages: tuple[int, ...] = ()
    traceparent: str | None = None

    def __post_init__(self) -> None:
        for name in ("kind", "content_type", "tenant", "queue"):
            check_text(name, getattr(self, name))
        if self.idem_key == "":
            _put(self, "idem_key", None)
        if self.idem_key is not None:
            check_text("idem_key", self.idem_key)
        if not isinstance(self.payload, (bytes, bytearray, memoryview)):
            raise InvalidInput("payload", type(self.payload), "must be bytes")
        _put(self, "payload", bytes(self.payload))
        _put(self, "job_class", _job_class(self.job_class))
        check_count("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.available_at is not None:
            _put(self, "available_at", check_instant("available_at", self.available_at))
        if self.delay is not None:
            check_duration("delay", self.delay, shortest=timedelta(0))
            if self.available_at is not None:
                raise InvalidInput("delay", self.delay, "goes without available_at")
        if self.parent_id is not None:
            _put(self, "parent_id", known_id(self.parent_id, "parent_id"))
        _put(self, "pages", _pages(self.pages))
        _put(self, "traceparent", _traceparent(self.traceparent))

    @property
    def fingerprint(self) -> bytes:
        """
        SHA-256 over kind, content type and payload: what one key stands for.

        Byte for byte: two spellings of the same JSON are two fingerprints.
        """
        digest = hashlib.sha256(_labels(self.kind, self.content_type))
        digest.update(self.payload)
        return digest.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    A job as it was when it was read. All instants are UTC, by the database's clock.
    """

    id: str
    tenant: str
    idem_key: str | None = field(repr=False)
    queue: str
    kind: str
    job_class: JobClass
    status: JobStatus
    attempts: int
    """Attempts that count against `max_attempts`, the running one included."""
    max_attempts: int
    fence: int
    """Grows by one at each claim and never goes down."""
    parent_id: str | None
    pages: tuple[int, ...]
    on_child_failure: ChildFailure
    children_total: int
    """Children ever created under this job."""
    children_open: int
    """Children that have not ended yet."""
    children_failed: int
    """Children that ended in another way than completed."""
    result: bytes | None = field(repr=False)
    error_code: str | None
    """Why it failed; on a job that is tried again, why its last attempt did."""
    error_message: str | None = field(repr=False)
    created_at: datetime
    updated_at: datetime
    available_at: datetime
    started_at: datetime | None
    """When the latest attempt was claimed."""
    heartbeat_at: datetime | None
    """The lease's last sign of life; set exactly while processing."""
    finished_at: datetime | None
    worker: str | None
    """Who holds it, or held it last."""
    traceparent: str | None = None
    """Trace context of whoever submitted it."""

    @property
    def is_resumed(self) -> bool:
        """
        Whether its children have all ended: time to join what they made.
        """
        return self.children_total > 0 and self.children_open == 0

    def child(
        self,
        *,
        kind: str,
        payload: bytes = b"",
        content_type: str = "application/octet-stream",
        pages: Sequence[int] = (),
        idem_key: str | None = None,
        max_attempts: int | None = None,
    ) -> NewJob:
        """
        Describe a part of this job: same tenant, queue, class and trace.
        """
        return NewJob(
            kind=kind,
            payload=payload,
            content_type=content_type,
            tenant=self.tenant,
            idem_key=idem_key,
            queue=self.queue,
            job_class=self.job_class,
            max_attempts=self.max_attempts if max_attempts is None else max_attempts,
            parent_id=self.id,
            pages=tuple(pages),
            traceparent=self.traceparent,
        )


@dataclass(frozen=True, slots=True)
class Payload:
    """
    The work itself.
    """

    data: bytes = field(repr=False)
    content_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Lease:
    """
    The right to write one job's outcome: the job and its fencing token.

    A worker that stalled past its lease still has the old token; whatever it
    writes then is refused (https://martin.kleppmann.com/2016/02/08/
    how-to-do-distributed-locking.html).
    """

    job_id: str
    fence: int
    # A hint that spares the finishing statement a look-up; never trusted.
    is_child: bool = field(default=False, compare=False, repr=False)

    @property
    def token(self) -> tuple[str, int]:
        """
        Job id and fence: what must match.
        """
        return self.job_id, self.fence


@dataclass(frozen=True, slots=True)
class Claim:
    """
    A job that is yours, and the lease to finish it with.
    """

    job: Job

    @property
    def lease(self) -> Lease:
        job = self.job
        return Lease(job.id, job.fence, job.parent_id is not None)


class _Created(NamedTuple):
    job: Job
    created: bool


class Created(_Created):
    """
    What a create came to; unpacks as ``job, created``.
    """

    payload_matches: bool = True

    def __new__(cls, job: Job, *, created: bool, payload_matches: bool = True) -> Self:
        """
        Args:
            job: The stored job: the new one, or the first with the same key.
            created: False if the key was known and nothing was inserted.
            payload_matches: False if the known job has another payload, content type
                or kind than was asked for now.
        """
        self = super().__new__(cls, job, created)
        if not payload_matches:
            # Else the class says so: batches are large, and so is a dict for each.
            self.payload_matches = False
        return self

    def _replace(self, **changes: Any) -> Self:
        values = {**self._asdict(), "payload_matches": self.payload_matches, **changes}
        return type(self)(**values)

    def __reduce__(self) -> tuple[object, ...]:
        # A tuple would be copied and unpickled without the names of its arguments.
        return _created, (self.job, self.created, self.payload_matches)


@dataclass(frozen=True, slots=True)
class Completed:
    """
    The attempt succeeded, with *result* (None: nothing to say).
    """

    result: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.result is None:
            return
        if not isinstance(self.result, (bytes, bytearray, memoryview)):
            raise InvalidInput("result", type(self.result), "must be bytes or None")
        _put(self, "result", bytes(self.result))


@dataclass(frozen=True, slots=True)
class Failed:
    """
    The attempt failed.

    Text that a database cannot hold (NUL, lone surrogates) is replaced and
    over-long text is cut, here and not refused: a failure must always be
    recordable.

    Args:
        error_code: Short and stable, for counting and filtering.
        error_message: For people.
        final: End the job now, whatever attempts are left.
        retry_in: Wait before the next attempt; None: by the store's policy.
    """

    error_code: str
    error_message: str = field(default="", repr=False)
    final: bool = False
    retry_in: timedelta | None = None

    def __post_init__(self) -> None:
        code = recordable(self.error_code).encode()[: MAX_BYTES["error_code"]]
        _put(self, "error_code", code.decode(errors="ignore").strip() or "ERROR")
        message = recordable(self.error_message)[:MAX_ERROR_MESSAGE]
        _put(self, "error_message", message)
        _put(self, "final", bool(self.final))
        if self.retry_in is not None:
            check_duration("retry_in", self.retry_in, shortest=timedelta(0))


@dataclass(frozen=True, slots=True)
class Released:
    """
    The attempt was not the job's fault: back to its place in line, not charged.
    """


@dataclass(frozen=True, slots=True)
class Snoozed:
    """
    Not now: due again after *delay*, not charged.
    """

    delay: timedelta

    def __post_init__(self) -> None:
        check_duration("delay", self.delay, shortest=timedelta(0))


Outcome = Completed | Failed | Released | Snoozed
"""How a worker may end an attempt."""


class AttemptOutcome(StrEnum):
    """
    How an attempt in the history ended. Success is not there: the job row has it.
    """

    FAILED = "failed"
    LEASE_EXPIRED = "lease_expired"
    RELEASED = "released"
    SNOOZED = "snoozed"
    WAITING = "waiting"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """
    One attempt that did not end in success.
    """

    job_id: str
    fence: int
    attempt: int
    """Its number; given back and used again when the attempt was not charged."""
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: AttemptOutcome
    error_code: str | None
    error_message: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """
    What became of the leases that were asked about; each is in exactly one set.
    """

    held: frozenset[Lease]
    lost: frozenset[Lease]
    """Held by another worker by now, ended, or deleted. Stop, and drop the outcome."""
    cancelled: frozenset[Lease]
    """Lost because the job was cancelled: asked to stop."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """
    What a sweep over expired leases did.
    """

    requeued: int
    failed: int
    """Jobs whose attempts were used up; error code ATTEMPTS_EXHAUSTED."""

    def __add__(self, other: "Reclaimed") -> "Reclaimed":
        return Reclaimed(self.requeued + other.requeued, self.failed + other.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """
    One line of `Store.stats`: the jobs of one queue and class in one status.
    """

    queue: str
    job_class: JobClass
    status: JobStatus
    jobs: int
    oldest_at: datetime | None
    """The earliest created_at among them; for ended jobs, the earliest finished_at."""


def check_text(name: str, value: object) -> str:
    """
    Return *value* if it is text that field *name* can hold, else `InvalidInput`.
    """
    if not isinstance(value, str):
        raise InvalidInput(name, value, "must be a str")
    if not value:
        raise InvalidInput(name, value, "must not be empty")
    if "\x00" in value:
        raise InvalidInput(name, value, "must not contain NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(name, value, "must not contain surrogates") from None
    if size > MAX_BYTES[name]:
        raise InvalidInput(name, value, f"is over {MAX_BYTES[name]} bytes of UTF-8")
    return value


def check_count(name: str, value: object, least: int, most: int) -> int:
    """
    Return *value* if it is a whole number in the range, else `InvalidInput`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(name, value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidInput(name, value, f"must be {least:,} to {most:,}")
    return value


def check_flag(name: str, value: object) -> bool:
    """
    Return *value* if it is True or False, else `InvalidInput`.
    """
    if not isinstance(value, bool):
        raise InvalidInput(name, value, "must be True or False")
    return value


def check_duration(
    name: str, value: object, *, shortest: timedelta, longest: timedelta = LONGEST
) -> timedelta:
    """
    Return *value* if it is a timedelta in the range, else `InvalidInput`.
    """
    if not isinstance(value, timedelta):
        raise InvalidInput(name, value, "must be a timedelta")
    if not shortest <= value <= longest:
        raise InvalidInput(name, value, f"must be {shortest} to {longest}")
    return value


def _job_class(value: object) -> JobClass:
    try:
        return JobClass(value)  # type: ignore[arg-type]  # that is what is checked
    except ValueError:
        known = ", ".join(JobClass)
        raise InvalidInput("job_class", value, f"must be one of {known}") from None


def check_instant(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidInput(name, value, "must be a datetime")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(
            name, value, "must be aware; a naive datetime has no instant"
        )
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(name, value, "is out of range in UTC") from None
    # Beyond, it could be stored, but not be read where clocks are set otherwise.
    if not _EARLIEST <= instant <= _LATEST:
        raise InvalidInput(name, value, "is the first or the last day of the calendar")
    return instant


@lru_cache(maxsize=1024)
def _labels(*texts: str) -> bytes:
    # Each with its length before it, so that no two make the same bytes. A batch has
    # them in common.
    parts = [text.encode() for text in texts]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _pages(value: object) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput("pages", value, "must be a sequence of page numbers")
    if len(value) > MAX_PAGES:
        raise InvalidInput("pages", len(value), f"are over {MAX_PAGES:,} numbers")
    return tuple(check_count("pages", page, 0, 2**31 - 1) for page in value)


def _traceparent(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _TRACEPARENT.fullmatch(value):
        raise InvalidInput("traceparent", value, "must be a W3C traceparent")
    return value


def recordable(value: object) -> str:
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - what went wrong is kept, even if it can't say it
        text = f"({type(value).__name__} has no text: its str() fails)"
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()


def _created(job: Job, created: bool, payload_matches: bool) -> Created:  # noqa: FBT001
    return Created(job, created=created, payload_matches=payload_matches)


def _put(value: object, name: str, to: object) -> None:
    # The one way to normalise a field of a frozen value while it is being built.
    object.__setattr__(value, name, to)
