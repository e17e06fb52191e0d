"""
Parents and children: the parents' bookkeeping, cancelling a family, recounting.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from jobstore.errors import InvalidTransition
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.memory.state import State
from jobstore.model import AttemptOutcome, ChildFailure, Job

__all__ = ["cancel", "child_reopened", "repair_families", "tell_parents"]


def tell_parents(state: State, ended: Iterable[tuple[str, bool]]) -> None:
    """
    Tell parents that children have ended; *ended* is (parent id, completed) of each.

    A parent that thereby fails has a parent of its own to tell, and so on up.
    """
    news = list(ended)
    while news:
        count = Counter(parent_id for parent_id, _ in news)
        failed = Counter(parent_id for parent_id, completed in news if not completed)
        news = []
        for parent_id in sorted(count):
            parent = state.jobs.get(parent_id)
            if parent is None:
                continue
            after = _recounted(
                state,
                parent,
                still_open=max(parent.children_open - count[parent_id], 0),
                failed=parent.children_failed + failed[parent_id],
            )
            news += _news_of(parent, after)


def child_reopened(state: State, parent_id: str) -> None:
    parent = state.jobs.get(parent_id)
    if parent is not None:
        state.change(
            parent,
            children_open=parent.children_open + 1,
            children_failed=max(parent.children_failed - 1, 0),
        )


def cancel(state: State, job_id: str, *, reason: str) -> Job:
    job = state.job(job_id)
    if job.status is JobStatus.CANCELLED:
        return job
    if job.status in TERMINAL:
        raise InvalidTransition(job_id, job.status, JobStatus.CANCELLED)
    # Children before parents, as in the PostgreSQL store.
    for member in reversed(_family(state, job)):
        if member.status not in TERMINAL or member.children_open > 0:
            _cancel_one(state, member, reason or None)
    if job.parent_id is not None:
        tell_parents(state, [(job.parent_id, False)])
    return state.job(job_id)


def repair_families(state: State, limit: int) -> int:
    waiting = sorted(
        state.in_status(JobStatus.WAITING), key=lambda job: (job.updated_at, job.id)
    )
    repaired = 0
    news: list[tuple[str, bool]] = []
    for parent in waiting[:limit]:
        children = state.children_of(parent.id)
        still_open = sum(child.status not in TERMINAL for child in children)
        if still_open and still_open == parent.children_open:
            continue
        failed = sum(
            child.status in (JobStatus.FAILED, JobStatus.CANCELLED)
            for child in children
        )
        after = _recounted(state, parent, still_open=still_open, failed=failed)
        news += _news_of(parent, after)
        repaired += 1
    tell_parents(state, news)
    return repaired


def _recounted(state: State, parent: Job, *, still_open: int, failed: int) -> Job:
    """
    Write new counts; a waiting parent with no open child goes on.
    """
    changes: dict[str, Any] = {"children_open": still_open, "children_failed": failed}
    if parent.status is JobStatus.WAITING and still_open == 0:
        if parent.on_child_failure is ChildFailure.FAIL and failed > 0:
            changes["status"] = JobStatus.FAILED
            changes["finished_at"] = state.now
            changes["error_code"] = "CHILD_FAILED"
            changes["error_message"] = (
                f"{failed} of {parent.children_total} children did not complete"
            )
        else:
            changes["status"] = JobStatus.QUEUED
    return state.change(parent, **changes)


def _news_of(before: Job, after: Job) -> list[tuple[str, bool]]:
    """
    Return what the parent's own parent must hear.
    """
    failed_now = after.status is JobStatus.FAILED and before.status not in TERMINAL
    if failed_now and after.parent_id is not None:
        return [(after.parent_id, False)]
    return []


def _family(state: State, head: Job) -> list[Job]:
    """
    Return *head* and all below it, level by level.
    """
    members = [head]
    for member in members:  # grows as it goes
        members.extend(state.children_of(member.id))
    return members


def _cancel_one(state: State, job: Job, reason: str | None) -> None:
    failed = job.children_failed + job.children_open
    if job.status in TERMINAL:
        state.change(job, children_open=0, children_failed=failed)
        return
    after = state.change(
        job,
        status=JobStatus.CANCELLED,
        error_code=None,
        error_message=reason,
        finished_at=state.now,
        children_open=0,
        children_failed=failed,
        heartbeat_at=None,
    )
    if job.status is JobStatus.PROCESSING:
        state.record(after, AttemptOutcome.CANCELLED, error_message=reason)
