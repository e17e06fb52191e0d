"""
The two drawings, as coordinates: the flow of the last hour, and the life of one job.

The templates make SVG of them; nothing here knows HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobstore.lifecycle import JobStatus
from jobstore.model import Attempt, Job
from jobstore.web.values import Minute

__all__ = ["Bar", "Event", "Flow", "Strip", "events", "flow", "spark", "strip"]

WIDTH = 732
HEIGHT = 120
_STEP = 12
_BAR = 9
STACKED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Bar:
    """
    A rectangle, and what it stands for.
    """

    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """
    Bars for what ended in each minute, a line for what was created.
    """

    bars: list[Bar]
    created: str
    """Points of the line."""
    top: int
    """The value at the upper edge."""
    totals: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """
    A job's life from left to right.
    """

    bars: list[Bar]
    begins: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """
    Something that happened to a job.
    """

    at: datetime
    what: str
    detail: str = ""
    kind: str = ""


def flow(minutes: Sequence[Minute]) -> Flow:
    """
    Lay out the minutes of an hour.
    """
    ended = [sum(one.counts.get(kind, 0) for kind in STACKED) for one in minutes]
    made = [one.counts.get("created", 0) for one in minutes]
    top = _round_up(max([*ended, *made, 1]))
    bars = []
    for number, minute in enumerate(minutes):
        y = float(HEIGHT)
        for kind in STACKED:
            height = _height(minute.counts.get(kind, 0), top)
            if height:
                y -= height
                left = number * _STEP + (_STEP - _BAR) / 2
                bars.append(Bar(left, round(y, 1), _BAR, height, kind))
    points = [
        f"{number * _STEP + _STEP / 2:g},{HEIGHT - _height(jobs, top):g}"
        for number, jobs in enumerate(made)
    ]
    kinds = ("created", *STACKED)
    return Flow(
        bars=bars,
        created=" ".join(points),
        top=top,
        totals={
            kind: sum(one.counts.get(kind, 0) for one in minutes) for kind in kinds
        },
    )


def spark(counts: Sequence[int]) -> str:
    """
    Lay out a small line of an hour's minutes, each line to its own measure.
    """
    top = max([*counts, 1])
    return " ".join(
        f"{number},{16 - 15 * jobs / top:.3g}" for number, jobs in enumerate(counts)
    )


def strip(job: Job, attempts: Sequence[Attempt], now: datetime) -> Strip:
    """
    Lay out the attempts of a job between its creation and its end, or now.
    """
    ends = job.finished_at or max(now, job.updated_at)
    length = max(ends - job.created_at, timedelta(milliseconds=1))

    def bar(begin: datetime, end: datetime, kind: str) -> Bar:
        left = min(max((begin - job.created_at) / length, 0.0), 1.0) * WIDTH
        right = min(max((end - job.created_at) / length, 0.0), 1.0) * WIDTH
        width = max(right - left, 3.0)
        return Bar(round(min(left, WIDTH - width), 1), 0, round(width, 1), 18, kind)

    bars = [bar(one.started_at, one.ended_at, str(one.outcome)) for one in attempts]
    if job.started_at is not None and job.status is JobStatus.COMPLETED:
        bars.append(bar(job.started_at, ends, "completed"))
    elif job.started_at is not None and job.status is JobStatus.PROCESSING:
        bars.append(bar(job.started_at, ends, "processing"))
    return Strip(bars=bars, begins=job.created_at, ends=ends)


def events(job: Job, attempts: Sequence[Attempt]) -> list[Event]:
    """
    Tell what happened to a job, in order of time.
    """
    told = [Event(job.created_at, "created")]
    for one in attempts:
        who = one.worker or "an unknown worker"
        told.append(
            Event(one.started_at, f"attempt {one.attempt} claimed", f"by {who}")
        )
        why = ": ".join(part for part in (one.error_code, one.error_message) if part)
        outcome = str(one.outcome).replace("_", " ")
        told.append(
            Event(
                one.ended_at, f"attempt {one.attempt}: {outcome}", why, str(one.outcome)
            )
        )
    current = {JobStatus.PROCESSING, JobStatus.COMPLETED}
    if job.started_at is not None and job.status in current:
        what = f"attempt {job.attempts} claimed"
        told.append(Event(job.started_at, what, f"by {job.worker}"))
    if job.heartbeat_at is not None:
        told.append(Event(job.heartbeat_at, "last heartbeat", f"from {job.worker}"))
    if job.status is JobStatus.SCHEDULED:
        told.append(Event(job.available_at, "due", "joins the line", "scheduled"))
    if job.finished_at is not None:
        why = ": ".join(part for part in (job.error_code, job.error_message) if part)
        told.append(Event(job.finished_at, str(job.status), why, str(job.status)))
    return sorted(told, key=lambda event: event.at)


def _height(jobs: int, top: int) -> float:
    if not jobs:
        return 0.0
    # A single failure among thousands must still be seen.
    return max(round(jobs / top * HEIGHT, 1), 1.5)


def _round_up(value: int) -> int:
    """
    Return the next number that is easy to halve: 2, 4, 6, 8 or 10 times a power of ten.
    """
    power = 1
    while value > 10 * power:
        power *= 10
    return -(-value // (2 * power)) * 2 * power
