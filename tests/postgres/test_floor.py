"""
The claim floor by itself: what it hides, and for how long.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import Job, NewJob
from jobstore.postgres import floor as floors
from jobstore.postgres.floor import NO_FLOOR, ClaimFloor
from jobstore.postgres.rows import to_new_job

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MARGIN = timedelta(milliseconds=500)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    fake = SimpleNamespace(monotonic=clock.monotonic)
    monkeypatch.setattr(floors, "time", fake)
    return clock


def claimed(seconds_ago: float, job_class: JobClass = JobClass.BATCH) -> Job:
    created = NOW - timedelta(seconds=seconds_ago)
    new = NewJob(kind="a", job_class=job_class)
    job = to_new_job(new, "01K0000000000000000000000A", JobStatus.QUEUED, created)
    return replace(job, heartbeat_at=NOW)


def test_it_begins_with_a_look_at_everything(clock: Clock) -> None:
    assert ClaimFloor().of("q") is NO_FLOOR


def test_it_is_below_the_oldest_job_of_the_last_claim(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60), claimed(30)])

    _, _, batch = floor.of("q")

    assert batch == NOW - timedelta(seconds=60) - MARGIN
    assert floor.of("other") is NO_FLOOR


def test_better_classes_were_seen_empty_and_worse_ones_not_at_all(
    clock: Clock,
) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60, JobClass.SYSTEM)])

    interactive, system, batch = floor.of("q")

    assert interactive == NOW - MARGIN
    assert system == NOW - timedelta(seconds=60) - MARGIN
    assert batch == NO_FLOOR[2]


def test_a_claim_of_one_class_tells_of_that_class_alone(clock: Clock) -> None:
    floor = ClaimFloor()
    system = JobClass.SYSTEM
    floor.learn("q", NO_FLOOR, [claimed(60, system)], job_class=system)

    assert floor.of("q") is NO_FLOOR
    assert floor.of("q", system) == (
        NO_FLOOR[0],
        NOW - timedelta(seconds=60) - MARGIN,
        NO_FLOOR[2],
    )


def test_everything_is_looked_at_again_after_a_second(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60)])
    used = floor.of("q")
    clock.now += 0.9
    # A claim above the floor does not put off the walk.
    floor.learn("q", used, [claimed(50)])
    assert floor.of("q") is not NO_FLOOR

    clock.now += 0.2

    assert floor.of("q") is NO_FLOOR


def test_a_job_put_back_is_looked_for_at_once(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60)])
    floor.learn("q", NO_FLOOR, [claimed(60)], job_class=JobClass.BATCH)
    floor.learn("other", NO_FLOOR, [claimed(60)])

    floor.forget("q")

    assert floor.of("q") is NO_FLOOR
    assert floor.of("q", JobClass.BATCH) is NO_FLOOR
    assert floor.of("other") is not NO_FLOOR


def test_a_short_claim_may_walk_while_walks_are_cheap(clock: Clock) -> None:
    floor = ClaimFloor()
    assert floor.may_walk("q")
    for _ in range(3):
        floor.learn("q", NO_FLOOR, [claimed(60)], seconds=0.01)

    assert floor.may_walk("q")


def test_walks_that_are_slow_take_a_tenth_of_the_time(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60)], seconds=0.4)
    floor.learn("q", NO_FLOOR, [claimed(60)], seconds=0.3)

    clock.now += 2.9
    assert not floor.may_walk("q")
    assert floor.of("q") is not NO_FLOOR
    floor.forget("q")
    assert floor.of("q") is not NO_FLOOR

    clock.now += 0.2
    assert floor.may_walk("q")
    assert floor.of("q") is NO_FLOOR


def test_one_slow_walk_is_forgiven(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60)], seconds=0.001)
    floor.learn("q", NO_FLOOR, [claimed(60)], seconds=5.0)

    assert floor.may_walk("q")


def test_walks_are_never_put_off_for_longer_than_half_a_minute(clock: Clock) -> None:
    floor = ClaimFloor()
    for _ in range(2):
        floor.learn("q", NO_FLOOR, [claimed(60)], seconds=60.0)

    clock.now += 30.1

    assert floor.of("q") is NO_FLOOR


def test_what_is_known_stays_when_a_walk_finds_nothing(clock: Clock) -> None:
    floor = ClaimFloor()
    floor.learn("q", NO_FLOOR, [claimed(60)])
    before = floor.of("q")

    floor.learn("q", NO_FLOOR, [])

    assert floor.of("q") == before
