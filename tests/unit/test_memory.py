"""
What only a MemoryStore promises: its clock, its listeners, and undoing.
"""

import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobstore import (
    InvalidInput,
    Job,
    JobPruned,
    JobStatus,
    LeaseLost,
    MemoryStore,
    NewJob,
    Reclaimed,
    RetryPolicy,
)
from jobstore.memory.state import State

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
WORK = NewJob(kind="work")


class Clock:
    """
    A clock that stands still until it is moved.
    """

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock, retry=RetryPolicy(initial=HOUR, jitter=0))


# -- the clock ---------------------------------------------------------------------


def test_every_instant_is_of_the_one_clock(store: MemoryStore, clock: Clock) -> None:
    job = store.create(WORK).job
    assert {job.created_at, job.updated_at, job.available_at} == {BEGIN}
    clock.now += HOUR
    claim = store.claim_next()
    assert claim is not None
    assert {claim.job.started_at, claim.job.heartbeat_at} == {BEGIN + HOUR}
    clock.now += HOUR
    assert store.fail(claim.lease, error_code="E") is JobStatus.SCHEDULED
    assert store.get(job.id).available_at == BEGIN + 3 * HOUR
    (past,) = store.attempts(job.id)
    assert (past.started_at, past.ended_at) == (BEGIN + HOUR, BEGIN + 2 * HOUR)


def test_a_job_is_due_at_its_very_instant(store: MemoryStore, clock: Clock) -> None:
    store.create(dataclasses.replace(WORK, available_at=BEGIN + HOUR))
    clock.now = BEGIN + HOUR - timedelta(microseconds=1)
    assert store.promote_due() == 0
    assert store.claim_next() is None
    clock.now = BEGIN + HOUR
    assert store.claim_next() is not None


def test_a_job_available_now_is_queued(store: MemoryStore) -> None:
    job = store.create(dataclasses.replace(WORK, available_at=BEGIN)).job
    assert job.status is JobStatus.QUEUED


def test_a_lease_ends_at_its_very_instant(store: MemoryStore, clock: Clock) -> None:
    store.create(WORK)
    store.claim_next()
    clock.now = BEGIN + HOUR - timedelta(microseconds=1)
    assert store.reclaim_stale(HOUR) == Reclaimed(0, 0)
    clock.now = BEGIN + HOUR
    assert store.reclaim_stale(HOUR) == Reclaimed(1, 0)


def test_a_kept_key_is_good_for_its_time_and_no_longer(
    store: MemoryStore, clock: Clock
) -> None:
    keyed = dataclasses.replace(WORK, idem_key="k")
    store.cancel(store.create(keyed).job.id)
    clock.now += HOUR
    assert store.prune(timedelta(minutes=1), keep_keys_for=3 * HOUR) == 1
    clock.now = BEGIN + 3 * HOUR - timedelta(microseconds=1)
    store.prune(HOUR)
    with pytest.raises(JobPruned):
        store.create(keyed)
    clock.now = BEGIN + 3 * HOUR
    store.prune(HOUR)
    assert store.create(keyed).created


def test_a_key_used_long_ago_is_not_kept(store: MemoryStore, clock: Clock) -> None:
    keyed = dataclasses.replace(WORK, idem_key="k")
    store.cancel(store.create(keyed).job.id)
    clock.now += 3 * HOUR
    assert store.prune(HOUR, keep_keys_for=2 * HOUR) == 1
    assert store.create(keyed).created


def test_stats_look_back_as_far_as_their_window(
    store: MemoryStore, clock: Clock
) -> None:
    store.cancel(store.create(WORK).job.id)
    clock.now += HOUR
    assert store.stats(window=HOUR) == []
    assert len(store.stats(window=HOUR + timedelta(microseconds=1))) == 1


# -- undoing -----------------------------------------------------------------------


def snapshot(state: State) -> tuple[object, ...]:
    tables = (state.jobs, state.leases, state.payloads, state.keys, state.attempts)
    return tuple(dict(table) for table in tables)


@pytest.mark.parametrize("depth", [1, 2])
def test_whatever_breaks_off_is_undone(store: MemoryStore, depth: int) -> None:
    parent = store.create(dataclasses.replace(WORK, idem_key="k")).job
    claim = store.claim_next(lease=HOUR)
    assert claim is not None
    ended = store.create(WORK).job
    store.cancel(ended.id)
    before = snapshot(store._state)
    lines = [job.id for job in store.list()]

    def break_off(job: Job) -> Job:
        store.create(parent.child(kind="page", idem_key="l"))
        store.fan_out(claim.lease, [parent.child(kind="page")])
        store.requeue(ended.id)
        store.claim(10)
        if depth == 2:
            with pytest.raises(LeaseLost):
                store.complete(claim.lease)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.update_status(parent.id, break_off)
    assert snapshot(store._state) == before
    assert [job.id for job in store.list()] == lines
    assert store.list_children(parent.id) == []
    assert store.heartbeat([claim.lease]).held == {claim.lease}
    assert store.claim(10) == []
    assert store.requeue(ended.id).status is JobStatus.QUEUED
    assert [one.job.id for one in store.claim(10)] == [ended.id]


def test_a_line_is_whole_after_undoing(store: MemoryStore) -> None:
    ids = [one.job.id for one in store.create_many([WORK] * 5)]

    def take_all(job: Job) -> Job:
        assert len(store.claim(10)) == 5
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            store.update_status(ids[0], take_all)
    assert [claim.job.id for claim in store.claim(10)] == ids


# -- listening ---------------------------------------------------------------------


def hear(store: MemoryStore, *verbs: Callable[[], object]) -> list[list[str | None]]:
    said: list[list[str | None]] = []
    heard: list[str | None] = []
    listening = store.listen(heard.append)
    for verb in verbs:
        heard.clear()
        verb()
        said.append(sorted(heard, key=str))
    listening.close()
    return said


def test_listeners_hear_of_queues_that_got_work(
    store: MemoryStore, clock: Clock
) -> None:
    other = dataclasses.replace(WORK, queue="other")
    late = dataclasses.replace(WORK, available_at=BEGIN + HOUR)
    first = store.create(WORK).job
    claims = store.claim(1)

    def wait() -> None:
        clock.now += HOUR
        store.promote_due()

    assert hear(
        store,
        lambda: store.create(other),
        lambda: store.create_many([WORK, WORK, other]),
        lambda: store.create(late),
        wait,
        lambda: store.heartbeat([claims[0].lease]),
        lambda: store.release(claims[0].lease),
        lambda: store.cancel(first.id),
        lambda: store.requeue(first.id),
        lambda: store.get(first.id),
    ) == [
        ["other"],
        ["default", "other"],
        [],
        ["default"],
        [],
        ["default"],
        [],
        ["default"],
        [],
    ]


def test_a_listener_may_use_the_store(store: MemoryStore) -> None:
    taken: list[str] = []
    found = threading.Event()

    def work(queue: str | None) -> None:
        def take() -> None:
            taken.extend(claim.job.id for claim in store.claim(1))
            found.set()

        threading.Thread(target=take).start()
        assert found.wait(10), "the lock is free while listeners are called"

    with_listener = store.listen(work)
    job = store.create(WORK).job
    with_listener.close()
    assert taken == [job.id]


def test_a_listener_that_breaks_does_not_break_the_verb(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str | None] = []

    def explode(queue: str | None) -> None:
        raise ZeroDivisionError

    listeners = [store.listen(explode), store.listen(heard.append)]
    job = store.create(WORK).job
    assert store.get(job.id) == job
    assert heard == ["default"]
    assert "a listener of queue default raised" in caplog.text
    for one in listeners:
        one.close()


# -- making one --------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, None, True, 1.5, 10**10])
def test_a_largest_payload_must_be_a_size(size: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        MemoryStore(max_payload_bytes=size)
    assert caught.value.field == "max_payload_bytes"


def test_a_store_for_nothing_takes_empty_payloads() -> None:
    store = MemoryStore(max_payload_bytes=0)
    assert store.create(WORK).created
    with pytest.raises(InvalidInput):
        store.create(dataclasses.replace(WORK, payload=b"x"))
