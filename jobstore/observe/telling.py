"""
From what verbs answered to events, and from events to listeners.

Both colours of observed store use this; it asks the store nothing.
"""

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from jobstore.errors import (
    JobCancelled,
    JobNotFound,
    JobstoreError,
    LeaseLost,
    OutcomeUnknown,
    SchemaError,
    StoreFault,
    StoreUnavailable,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    Claim,
    Completed,
    Created,
    Failed,
    Heartbeat,
    Job,
    Lease,
    Outcome,
    Reclaimed,
    Released,
)
from jobstore.observe.events import (
    AttemptEnd,
    Event,
    FamiliesRepaired,
    JobChanged,
    JobClaimed,
    JobCreated,
    JobFinished,
    JobLost,
    JobsPromoted,
    JobsPruned,
    LeasesReclaimed,
    Listener,
    StoreFailed,
)

__all__ = ["Telling"]

_log = logging.getLogger("jobstore.observe")

# A lease says only which job; queue, kind and start are remembered from its claim. Who
# claims and never finishes must not fill the memory: the oldest are forgotten.
_MOST_REMEMBERED = 100_000

_Known = tuple[str, str, float]


class Telling:
    """
    Tells the listeners. Safe between threads.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._lock = threading.Lock()
        self._claimed: OrderedDict[tuple[str, int], _Known] = OrderedDict()

    @contextlib.contextmanager
    def failures_of(self, verb: str) -> Iterator[None]:
        """
        Tell if the block fails by the store's fault, and let the error pass.
        """
        try:
            yield
        except (StoreUnavailable, OutcomeUnknown, StoreFault, SchemaError) as error:
            self._tell(StoreFailed(verb=verb, code=error.code))
            raise

    @contextlib.contextmanager
    def fan_out_of(self, lease: Lease) -> Iterator[None]:
        """
        As `failures_of`; also tell if *lease* is found lost.
        """
        with self.failures_of("fan_out"):
            try:
                yield
            except (LeaseLost, JobNotFound) as error:
                if error.job_id == lease.job_id:
                    self._lost(lease, error)
                raise

    def created(self, answers: Iterable[Created]) -> None:
        for answer in answers:
            job = answer.job
            self._tell(
                JobCreated(
                    job_id=job.id,
                    tenant=job.tenant,
                    queue=job.queue,
                    kind=job.kind,
                    job_class=job.job_class,
                    parent_id=job.parent_id,
                    is_new=answer.created,
                )
            )

    def claimed(self, claims: Iterable[Claim]) -> None:
        now = time.monotonic()
        for claim in claims:
            job = claim.job
            with self._lock:
                self._claimed[claim.lease.token] = (job.queue, job.kind, now)
                if len(self._claimed) > _MOST_REMEMBERED:
                    self._claimed.popitem(last=False)
            self._tell(
                JobClaimed(
                    job_id=job.id,
                    fence=job.fence,
                    tenant=job.tenant,
                    queue=job.queue,
                    kind=job.kind,
                    job_class=job.job_class,
                    worker=job.worker,
                    attempt=job.attempts,
                    waited=_waited(job),
                )
            )

    def finished(
        self,
        outcomes: Sequence[tuple[Lease, Outcome]],
        answers: Sequence[JobStatus | LeaseLost | JobNotFound],
    ) -> None:
        for (lease, outcome), answer in zip(outcomes, answers, strict=True):
            if isinstance(answer, JobstoreError):
                self._lost(lease, answer)
            else:
                code = outcome.error_code if isinstance(outcome, Failed) else None
                self._finished(lease, _end_of(outcome, answer), answer, code)

    def fanned_out(self, lease: Lease, children: Iterable[Created]) -> None:
        self.created(children)
        self._finished(lease, AttemptEnd.WAITING, None, None)

    def heard(self, answer: Heartbeat) -> None:
        for lease in answer.lost:
            self._lost(lease, None)
        for lease in answer.cancelled:
            self._lost(lease, None, is_cancelled=True)

    def reclaimed(self, answer: Reclaimed) -> None:
        if answer.requeued or answer.failed:
            self._tell(LeasesReclaimed(requeued=answer.requeued, failed=answer.failed))

    def changed(self, verb: str, job: Job) -> None:
        self._tell(
            JobChanged(
                job_id=job.id,
                tenant=job.tenant,
                queue=job.queue,
                kind=job.kind,
                verb=verb,
                status=job.status,
            )
        )

    def promoted(self, jobs: int) -> None:
        if jobs:
            self._tell(JobsPromoted(jobs=jobs))

    def pruned(self, jobs: int) -> None:
        if jobs:
            self._tell(JobsPruned(jobs=jobs))

    def repaired(self, parents: int) -> None:
        if parents:
            self._tell(FamiliesRepaired(parents=parents))

    def _finished(
        self,
        lease: Lease,
        end: AttemptEnd,
        status: JobStatus | None,
        error_code: str | None,
    ) -> None:
        queue, kind, ran = self._recall(lease)
        self._tell(
            JobFinished(
                job_id=lease.job_id,
                fence=lease.fence,
                queue=queue,
                kind=kind,
                end=end,
                status=status,
                error_code=error_code,
                ran=ran,
            )
        )

    def _lost(
        self, lease: Lease, error: JobstoreError | None, *, is_cancelled: bool = False
    ) -> None:
        queue, kind, _ = self._recall(lease)
        self._tell(
            JobLost(
                job_id=lease.job_id,
                fence=lease.fence,
                queue=queue,
                kind=kind,
                is_cancelled=is_cancelled or isinstance(error, JobCancelled),
            )
        )

    def _recall(self, lease: Lease) -> tuple[str | None, str | None, timedelta | None]:
        with self._lock:
            known = self._claimed.pop(lease.token, None)
        if known is None:
            return None, None, None
        queue, kind, since = known
        return queue, kind, timedelta(seconds=time.monotonic() - since)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever it is, it is not ours
                # The act is done; a listener's fault must not make it look undone.
                _log.exception("a listener failed on %s", type(event).__name__)


def _end_of(outcome: Outcome, status: JobStatus) -> AttemptEnd:
    if isinstance(outcome, Completed):
        return AttemptEnd.COMPLETED
    if isinstance(outcome, Failed):
        is_final = status is JobStatus.FAILED
        return AttemptEnd.FAILED if is_final else AttemptEnd.RETRIED
    return AttemptEnd.RELEASED if isinstance(outcome, Released) else AttemptEnd.SNOOZED


def _waited(job: Job) -> timedelta:
    due = max(job.created_at, job.available_at)
    return max(timedelta(0), (job.started_at or due) - due)
