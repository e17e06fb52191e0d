"""
Ending attempts: set_result and set_results.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from jobstore.errors import JobCancelled, JobNotFound, LeaseLost
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    AttemptOutcome,
    Completed,
    Failed,
    Lease,
    Outcome,
    Released,
    Snoozed,
)
from jobstore.postgres.operations.families import tell_parents
from jobstore.postgres.session import Session
from jobstore.postgres.statements import finish as sql
from jobstore.retry import RetryPolicy

__all__ = ["complete_orphans", "lost_lease", "set_results"]

Answer = JobStatus | LeaseLost | JobNotFound
Ending = tuple[Lease, Outcome]


def complete_orphans(
    session: Session, endings: Sequence[tuple[Lease, Completed]]
) -> set[tuple[str, int]]:
    """
    Complete jobs without a parent in one statement; return what was written.

    The rest (lost leases, children after all) is for `set_results`.
    """
    if len(endings) == 1:
        ((lease, outcome),) = endings
        written = session.run(
            sql.COMPLETE,
            job_id=lease.job_id,
            fence=lease.fence,
            result=outcome.result,
        )
        return {lease.token} if written else set()
    rows = session.rows(sql.COMPLETE_ORPHANS, **_completions(endings))
    return {(job_id, fence) for job_id, fence, *_ in rows}


def set_results(
    session: Session, endings: Sequence[Ending], retry: RetryPolicy
) -> list[Answer]:
    endings = _with_retry_times(session, endings, retry)
    written: dict[tuple[str, int], JobStatus] = {}
    ended: list[tuple[str, bool]] = []
    for kind, end in _ENDERS.items():
        chosen = [ending for ending in endings if isinstance(ending[1], kind)]
        rows = end(session, chosen) if chosen else ()
        for job_id, fence, word, parent_id, queue in rows:
            status = JobStatus(word)
            written[job_id, fence] = status
            if status is JobStatus.QUEUED:
                session.queued(queue)
            if parent_id is not None and status in (
                JobStatus.COMPLETED,
                JobStatus.FAILED,
            ):
                ended.append((parent_id, status is JobStatus.COMPLETED))
    tell_parents(session, ended)
    missed = [ending for ending in endings if ending[0].token not in written]
    explained = iter(_explain(session, missed))
    return [written.get(lease.token) or next(explained) for lease, _ in endings]


def lost_lease(session: Session, lease: Lease) -> Exception:
    """
    Say why *lease* is not the job's present one.
    """
    answer = _explain(session, [(lease, Released())])[0]
    if isinstance(answer, JobStatus):
        return LeaseLost(lease.job_id, lease.fence, "its attempt has ended")
    return answer


def _with_retry_times(
    session: Session, endings: Sequence[Ending], retry: RetryPolicy
) -> Sequence[Ending]:
    """
    Fill in the policy's delay where a failure leaves it open.

    It follows from the attempts of the job, which no one can change while the lease
    stands; so they are read first, and need no lock.
    """
    by_policy = [
        lease.job_id
        for lease, outcome in endings
        if isinstance(outcome, Failed) and outcome.retry_in is None
    ]
    if not by_policy:
        return endings
    attempts = dict(session.rows(sql.READ_ATTEMPTS, job_ids=by_policy))
    return [
        (lease, replace(outcome, retry_in=retry.delay(attempts.get(lease.job_id, 1))))
        if isinstance(outcome, Failed) and outcome.retry_in is None
        else (lease, outcome)
        for lease, outcome in endings
    ]


def _complete(session: Session, endings: Sequence[Any]) -> Iterable[Any]:
    return session.rows(sql.COMPLETE_MANY, **_completions(endings))


def _completions(endings: Sequence[tuple[Lease, Completed]]) -> dict[str, Any]:
    return {
        **_leases(endings),
        "results": [outcome.result for _, outcome in endings],
    }


def _fail(session: Session, endings: Sequence[Any]) -> Iterable[Any]:
    return session.rows(
        sql.FAIL_MANY,
        **_leases(endings),
        error_codes=[outcome.error_code for _, outcome in endings],
        error_messages=[outcome.error_message for _, outcome in endings],
        finals=[outcome.final for _, outcome in endings],
        retry_in=[outcome.retry_in for _, outcome in endings],
    )


def _release(session: Session, endings: Sequence[Any]) -> Iterable[Any]:
    return _give_back(session, endings, AttemptOutcome.RELEASED, lambda _: timedelta(0))


def _snooze(session: Session, endings: Sequence[Any]) -> Iterable[Any]:
    return _give_back(
        session, endings, AttemptOutcome.SNOOZED, lambda outcome: outcome.delay
    )


def _give_back(
    session: Session,
    endings: Sequence[Any],
    word: AttemptOutcome,
    delay: Callable[[Any], timedelta],
) -> Iterable[Any]:
    return session.rows(
        sql.GIVE_BACK_MANY,
        **_leases(endings),
        outcomes=[str(word)] * len(endings),
        delays=[delay(outcome) for _, outcome in endings],
    )


_ENDERS: dict[type, Callable[[Session, Sequence[Any]], Iterable[Any]]] = {
    Completed: _complete,
    Failed: _fail,
    Released: _release,
    Snoozed: _snooze,
}


def _leases(endings: Sequence[tuple[Lease, Any]]) -> dict[str, Any]:
    return {
        "job_ids": [lease.job_id for lease, _ in endings],
        "fences": [lease.fence for lease, _ in endings],
    }


def _explain(session: Session, endings: Sequence[Ending]) -> list[Answer]:
    """
    Tell replays of what was written before from leases that are lost.
    """
    if not endings:
        return []
    answers: list[Answer] = []
    rows = sorted(session.rows(sql.LOOK_UP_LEASES, **_leases(endings)))
    for (lease, outcome), row in zip(endings, rows, strict=True):
        _, status, fence, is_held, *_ = row
        if status is None:
            answers.append(JobNotFound(lease.job_id))
        elif _is_replay(outcome, lease, row):
            answers.append(_status_then(outcome, JobStatus(status), lease, fence))
        elif status == JobStatus.CANCELLED and fence == lease.fence:
            answers.append(
                JobCancelled(lease.job_id, lease.fence, "the job was cancelled")
            )
        else:
            now = f"held under fence {fence}" if is_held else status
            answers.append(LeaseLost(lease.job_id, lease.fence, f"the job is {now}"))
    return answers


def _is_replay(outcome: Outcome, lease: Lease, row: Sequence[Any]) -> bool:
    _, status, fence, _, result, past, error_code, error_message = row
    if isinstance(outcome, Completed):
        return (status, fence, result) == (
            JobStatus.COMPLETED,
            lease.fence,
            outcome.result,
        )
    if isinstance(outcome, Failed):
        return (past, error_code, error_message) == (
            AttemptOutcome.FAILED,
            outcome.error_code,
            outcome.error_message,
        )
    word = (
        AttemptOutcome.SNOOZED
        if isinstance(outcome, Snoozed)
        else AttemptOutcome.RELEASED
    )
    return bool(past == word)


def _status_then(
    outcome: Outcome, status: JobStatus, lease: Lease, fence: int
) -> JobStatus:
    """
    What the first call answered, as far as it can be told by now.
    """
    if fence == lease.fence or isinstance(outcome, Completed):
        return status
    return JobStatus.QUEUED
