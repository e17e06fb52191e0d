"""
Reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from jobstore.errors import PayloadMissing
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.memory.state import State
from jobstore.model import Job, Payload, QueueStats

__all__ = ["list_children", "list_jobs", "payload", "stats"]


def payload(state: State, job_id: str) -> Payload:
    state.job(job_id)
    stored = state.payloads.get(job_id)
    if stored is None:
        raise PayloadMissing(job_id)
    return stored


def list_jobs(
    state: State,
    filters: Mapping[str, str],
    statuses: Sequence[JobStatus],
    *,
    after: str | None,
    oldest_first: bool,
    limit: int,
    with_result: bool,
) -> list[Job]:
    wanted = list(filters.items())
    found: list[Job] = []
    for job_id in sorted(state.jobs, reverse=not oldest_first):
        if after is not None and (job_id <= after if oldest_first else job_id >= after):
            continue
        job = state.jobs[job_id]
        if statuses and job.status not in statuses:
            continue
        if any(getattr(job, name) != value for name, value in wanted):
            continue
        found.append(job)
        if len(found) == limit:
            break
    return _with_results(found, with_result=with_result)


def list_children(
    state: State,
    parent_id: str,
    *,
    after: str | None,
    limit: int | None,
    with_result: bool,
) -> list[Job]:
    state.job(parent_id)
    children = state.children_of(parent_id)
    if after is not None:
        last = state.jobs.get(after)
        children = [
            child
            for child in children
            if last is not None
            and (child.created_at, child.id) > (last.created_at, last.id)
        ]
    return _with_results(children[:limit], with_result=with_result)


def stats(state: State, window: timedelta) -> list[QueueStats]:
    since = state.now - window
    lines: dict[tuple[str, int, int], list[Job]] = {}
    order = list(JobStatus)
    for job in state.jobs.values():
        if job.status in (JobStatus.COMPLETED, JobStatus.CANCELLED) and (
            job.finished_at is None or job.finished_at <= since
        ):
            continue
        key = (job.queue, job.job_class.rank, order.index(job.status))
        lines.setdefault(key, []).append(job)
    return [
        QueueStats(
            queue=lines[key][0].queue,
            job_class=lines[key][0].job_class,
            status=lines[key][0].status,
            jobs=len(lines[key]),
            oldest_at=min(_age_of(job) for job in lines[key]),
        )
        for key in sorted(lines)
    ]


def _age_of(job: Job) -> datetime:
    if job.status in TERMINAL and job.finished_at is not None:
        return job.finished_at
    return job.created_at


def _with_results(jobs: Iterable[Job], *, with_result: bool) -> list[Job]:
    return [job if with_result else replace(job, result=None) for job in jobs]
