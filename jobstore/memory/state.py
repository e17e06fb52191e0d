"""
What a memory store remembers: dicts behind one lock, and a log to undo from.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobstore.errors import InvalidInput, JobNotFound
from jobstore.lifecycle import JobStatus
from jobstore.model import Attempt, AttemptOutcome, Job, Payload, check_count
from jobstore.retry import RetryPolicy

__all__ = ["Key", "Settings", "State", "utc_now"]

_log = logging.getLogger("jobstore.memory")

_LARGEST_PAYLOAD = 1_000_000_000
_ABSENT = object()


def utc_now() -> datetime:
    """
    Read the clock of this machine.
    """
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Key:
    """
    What an idempotency key stands for.
    """

    job_id: str
    fingerprint: bytes
    created_at: datetime
    expires_at: datetime | None = None
    """Set when the job is pruned and the key stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    What a memory store was told when it was made.
    """

    retry: RetryPolicy
    max_payload_bytes: int
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        check_count("max_payload_bytes", self.max_payload_bytes, 0, _LARGEST_PAYLOAD)
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidInput("retry", self.retry, "must be a RetryPolicy")
        if not callable(self.clock):
            raise InvalidInput("clock", self.clock, "must be callable")


class State:
    """
    The jobs of one memory store and of all views on it.

    Jobs are frozen values that are replaced, never changed, so what was handed out
    stays what it was. Everything is written through `put` and `drop` within a
    `transaction`, which undoes it all if an error comes up.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.jobs: dict[str, Job] = {}
        self.leases: dict[str, timedelta] = {}
        self.payloads: dict[str, Payload] = {}
        self.keys: dict[tuple[str, str], Key] = {}
        self.attempts: dict[str, tuple[Attempt, ...]] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.listeners: dict[object, Callable[[str | None], None]] = {}
        self.now = settings.clock()
        self._by_status: dict[JobStatus, dict[str, None]] = {
            status: {} for status in JobStatus
        }
        # Heaps of what can be claimed and of what is due when. A job that left its
        # line leaves its entry behind; it is dropped when it comes to the front.
        self._ready: dict[tuple[str, int], list[tuple[datetime, str]]] = {}
        self._due: list[tuple[datetime, str]] = []
        self._lock = threading.RLock()
        self._depth = 0
        self._undo: list[Callable[[], None]] = []
        self._queues_to_wake: set[str] = set()

    @contextmanager
    def transaction(self) -> Iterator["State"]:
        """
        Hold the lock, with one instant as `now`; undo everything on an error.
        """
        with self._lock:
            if self._depth == 0:
                self.now = self.settings.clock()
            self._depth += 1
            mark = len(self._undo)
            try:
                yield self
            except BaseException:
                while len(self._undo) > mark:
                    self._undo.pop()()
                raise
            finally:
                self._depth -= 1
                woken: set[str] = set()
                if self._depth == 0:
                    self._undo.clear()
                    woken, self._queues_to_wake = self._queues_to_wake, set()
        for queue in woken:
            self._wake(queue)

    def _wake(self, queue: str) -> None:
        for listener in tuple(self.listeners.values()):
            # The verb is done, and must say so whatever a listener makes of it.
            try:
                listener(queue)
            except Exception:  # noqa: BLE001 - it may raise anything
                _log.exception("a listener of queue %s raised", queue)

    # -- jobs ------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """
        Return the job or raise `JobNotFound`.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    def held(self, token: tuple[str, int]) -> Job | None:
        """
        Return the job whose present lease has this token.
        """
        job = self.jobs.get(token[0])
        if job is None or job.fence != token[1] or job.heartbeat_at is None:
            return None
        return job

    def change(self, job: Job, **changes: Any) -> Job:
        """
        Replace *job* by itself with *changes*, updated now.
        """
        after = replace(job, **{"updated_at": self.now, **changes})
        if after.heartbeat_at is None and job.id in self.leases:
            self._drop(self.leases, job.id)
        self.store_job(after)
        return after

    def store_job(self, job: Job) -> None:
        """
        Keep *job*, and keep the indexes in step with it.
        """
        before = self.jobs.get(job.id)
        self._undo.append(lambda: self._place(job, before))
        self._place(before, job)
        was_queued = before is not None and before.status is JobStatus.QUEUED
        if job.status is JobStatus.QUEUED and not was_queued:
            self._queues_to_wake.add(job.queue)

    def delete_job(self, job: Job) -> None:
        """
        Forget *job* with its payload and history; its key stays.
        """
        self._undo.append(lambda: self._place(None, job))
        self._place(job, None)
        tables: tuple[MutableMapping[Any, Any], ...] = (
            self.payloads,
            self.leases,
            self.attempts,
        )
        for table in tables:
            if job.id in table:
                self._drop(table, job.id)

    def in_status(self, status: JobStatus) -> list[Job]:
        return [self.jobs[job_id] for job_id in self._by_status[status]]

    def children_of(self, job_id: str) -> list[Job]:
        """
        Return the children, by created_at, then id.
        """
        members = [self.jobs[child] for child in self.children.get(job_id, ())]
        return sorted(members, key=lambda job: (job.created_at, job.id))

    def next_ready(self, queue: str, rank: int) -> Job | None:
        """
        Return the first of one line without taking it out.
        """
        line = self._ready.get((queue, rank), [])
        while line:
            job = self.jobs.get(line[0][1])
            if job is not None and _line_of(job) == (queue, rank, *line[0]):
                return job
            heapq.heappop(line)
        return None

    def next_due(self) -> Job | None:
        """
        Return the scheduled job that is due first, if its time has come.
        """
        while self._due and self._due[0][0] <= self.now:
            job = self.jobs.get(self._due[0][1])
            if (
                job is not None
                and job.status is JobStatus.SCHEDULED
                and job.available_at == self._due[0][0]
            ):
                return job
            heapq.heappop(self._due)
        return None

    # -- the rest --------------------------------------------------------------

    def put(self, table: MutableMapping[Any, Any], key: object, value: object) -> None:
        before = table.get(key, _ABSENT)
        self._undo.append(lambda: _restore(table, key, before))
        table[key] = value

    def drop_key(self, key: tuple[str, str]) -> None:
        self._drop(self.keys, key)

    def record(
        self,
        job: Job,
        outcome: AttemptOutcome,
        *,
        attempt: int | None = None,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> None:
        """
        Write the attempt under the job's fence into the history, if it isn't there.
        """
        if self.attempt_under(job.id, job.fence) or job.started_at is None:
            return
        past = Attempt(
            job_id=job.id,
            fence=job.fence,
            attempt=job.attempts if attempt is None else attempt,
            worker=job.worker,
            started_at=job.started_at,
            ended_at=self.now,
            outcome=outcome,
            error_code=error_code,
            error_message=error_message,
        )
        self.put(self.attempts, job.id, (*self.attempts.get(job.id, ()), past))

    def attempt_under(self, job_id: str, fence: int) -> Attempt | None:
        for past in reversed(self.attempts.get(job_id, ())):
            if past.fence == fence:
                return past
        return None

    def _drop(self, table: MutableMapping[Any, Any], key: object) -> None:
        before = table.pop(key)
        self._undo.append(lambda: _restore(table, key, before))

    def _place(self, before: Job | None, after: Job | None) -> None:
        if before is not None:
            self._by_status[before.status].pop(before.id)
            if after is None:
                del self.jobs[before.id]
                if before.parent_id is not None:
                    siblings = self.children[before.parent_id]
                    siblings.pop(before.id)
                    if not siblings:
                        del self.children[before.parent_id]
        if after is None:
            return
        self.jobs[after.id] = after
        self._by_status[after.status][after.id] = None
        if before is None and after.parent_id is not None:
            self.children.setdefault(after.parent_id, {})[after.id] = None
        line = _line_of(after)
        if line is not None and (before is None or _line_of(before) != line):
            queue, rank, created_at, job_id = line
            heapq.heappush(
                self._ready.setdefault((queue, rank), []), (created_at, job_id)
            )
        if after.status is JobStatus.SCHEDULED:
            heapq.heappush(self._due, (after.available_at, after.id))


def _line_of(job: Job) -> tuple[str, int, datetime, str] | None:
    """
    Say where a job stands in line: queue, class rank, created_at, id.
    """
    if job.status is not JobStatus.QUEUED or job.attempts >= job.max_attempts:
        return None
    return job.queue, job.job_class.rank, job.created_at, job.id


def _restore(table: MutableMapping[Any, Any], key: object, value: object) -> None:
    if value is _ABSENT:
        table.pop(key, None)
    else:
        table[key] = value
