"""
What an observed store tells, and what its listeners can't do to it.
"""

import dataclasses
import logging
import pickle
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobstore import (
    AsyncMemoryStore,
    Context,
    Failed,
    InvalidInput,
    JobClass,
    JobFailed,
    JobStatus,
    LeaseLost,
    MemoryStore,
    NewJob,
    StoreBusy,
    Worker,
)
from jobstore.observe import (
    AttemptEnd,
    Event,
    JobChanged,
    JobClaimed,
    JobCreated,
    JobFinished,
    JobLost,
    JobsPromoted,
    LeasesReclaimed,
    StoreFailed,
    observed,
)
from jobstore.testing import MemoryHarness

MARK = "m4rked-as-private"
NEW = NewJob(
    kind="mail",
    queue="out",
    tenant="acme",
    payload=MARK.encode(),
    idem_key=MARK,
    job_class=JobClass.SYSTEM,
)


class Heard:
    """
    A listener that keeps what it was told.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, *kinds: type) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: set(kinds) <= {type(one) for one in self.events}, 30
            ), (kinds, self.events)

    def take(self) -> list[Event]:
        with self._changed:
            taken, self.events = self.events, []
            return taken


def test_the_life_of_a_job_is_told_in_order() -> None:
    heard = Heard()
    store = observed(MemoryStore(), heard)
    job, _ = store.create(NEW)
    store.create(NEW)
    claim = store.claim_next(queue="out", worker="w")
    assert claim is not None
    store.complete(claim.lease, MARK.encode())
    first, again, claimed, finished = heard.take()
    assert first == JobCreated(
        job_id=job.id,
        tenant="acme",
        queue="out",
        kind="mail",
        job_class=JobClass.SYSTEM,
        parent_id=None,
        is_new=True,
    )
    assert again == dataclasses.replace(first, is_new=False)
    assert isinstance(claimed, JobClaimed)
    assert (claimed.job_id, claimed.fence, claimed.attempt) == (job.id, 1, 1)
    assert (claimed.queue, claimed.kind, claimed.worker) == ("out", "mail", "w")
    assert timedelta(0) <= claimed.waited < timedelta(minutes=1)
    assert isinstance(finished, JobFinished)
    assert (finished.queue, finished.kind) == ("out", "mail")
    assert (finished.end, finished.status) == (
        AttemptEnd.COMPLETED,
        JobStatus.COMPLETED,
    )
    assert finished.ran is not None
    assert timedelta(0) <= finished.ran < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("verb", "end", "status"),
    [
        (
            lambda store, lease: store.fail(lease, error_code="E", error_message="x"),
            AttemptEnd.RETRIED,
            JobStatus.SCHEDULED,
        ),
        (
            lambda store, lease: store.fail(lease, error_code="E", final=True),
            AttemptEnd.FAILED,
            JobStatus.FAILED,
        ),
        (
            lambda store, lease: store.release(lease),
            AttemptEnd.RELEASED,
            JobStatus.QUEUED,
        ),
        (
            lambda store, lease: store.snooze(lease, timedelta(hours=1)),
            AttemptEnd.SNOOZED,
            JobStatus.SCHEDULED,
        ),
        (
            lambda store, lease: store.fan_out(lease, [NewJob(kind="page")]),
            AttemptEnd.WAITING,
            None,
        ),
    ],
)
def test_each_end_of_an_attempt_has_its_name(
    verb: Callable[[Any, Any], object], end: AttemptEnd, status: JobStatus | None
) -> None:
    heard = Heard()
    store = observed(MemoryStore(), heard)
    store.create(NewJob(kind="mail"))
    claim = store.claim_next()
    assert claim is not None
    heard.take()
    verb(store, claim.lease)
    last = heard.take()[-1]
    assert isinstance(last, JobFinished)
    assert (last.end, last.status, last.kind) == (end, status, "mail")
    failed = end in {AttemptEnd.FAILED, AttemptEnd.RETRIED}
    assert last.error_code == ("E" if failed else None)


def test_a_lost_lease_is_told_by_each_verb_that_finds_it_lost() -> None:
    heard = Heard()
    store = observed(MemoryStore(), heard)
    job, _ = store.create(NewJob(kind="mail"))
    claim = store.claim_next()
    assert claim is not None
    store.cancel(job.id)
    heard.take()
    store.heartbeat([claim.lease])
    store.set_results([(claim.lease, Failed("E"))])
    with pytest.raises(LeaseLost):
        store.fan_out(claim.lease, [])
    told = heard.take()
    assert [type(one) for one in told] == [JobLost] * 3
    assert all(isinstance(one, JobLost) and one.is_cancelled for one in told)
    # Known from the claim, and only once: what is told is forgotten.
    assert [getattr(one, "kind", "") for one in told] == ["mail", None, None]


def test_what_is_done_by_hand_and_by_upkeep_is_told() -> None:
    heard = Heard()
    memory = MemoryStore()
    store, hand = observed(memory, heard), MemoryHarness(memory)
    late = datetime.now(UTC) + timedelta(hours=1)
    job, _ = store.create(NewJob(kind="mail", available_at=late))
    store.promote_due()
    hand.age(job.id, timedelta(hours=2))
    store.promote_due()
    assert store.claim_next() is not None
    hand.age(job.id, timedelta(hours=2))
    store.reclaim_stale(timedelta(minutes=1))
    store.reclaim_stale(timedelta(minutes=1))
    store.cancel(job.id)
    store.requeue(job.id)
    told = [one for one in heard.take() if not isinstance(one, JobCreated | JobClaimed)]
    assert told[:2] == [JobsPromoted(jobs=1), LeasesReclaimed(requeued=1, failed=0)]
    assert [
        (one.verb, one.status) for one in told[2:] if isinstance(one, JobChanged)
    ] == [
        ("cancel", JobStatus.CANCELLED),
        ("requeue", JobStatus.QUEUED),
    ]


class _Away(MemoryStore):
    def create(self, *_args: Any, **_options: Any) -> Any:
        raise StoreBusy("full")


def test_a_store_that_fails_is_told_and_a_callers_mistake_is_not() -> None:
    heard = Heard()
    store = observed(_Away(), heard)
    with pytest.raises(StoreBusy):
        store.create(NewJob(kind="mail"))
    with pytest.raises(InvalidInput):
        store.claim(0)
    assert heard.take() == [StoreFailed(verb="create", code="STORE_BUSY")]


def test_a_listener_that_raises_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_event: Event) -> None:
        raise RuntimeError("at fault")

    heard = Heard()
    store = observed(MemoryStore(), fails, heard)
    with caplog.at_level(logging.ERROR, logger="jobstore.observe"):
        job, created = store.create(NEW)
    assert created
    assert store.get(job.id).status is JobStatus.QUEUED
    assert len(heard.take()) == 1, "the next listener is told all the same"
    assert "a listener failed on JobCreated" in caplog.text


def test_listeners_are_told_after_the_act() -> None:
    memory = MemoryStore()
    seen: list[JobStatus] = []

    def look(event: Event) -> None:
        if isinstance(event, JobCreated | JobFinished):
            seen.append(memory.get(event.job_id).status)

    store = observed(memory, look)
    store.create(NewJob(kind="mail"))
    claim = store.claim_next()
    assert claim is not None
    store.complete(claim.lease)
    assert seen == [JobStatus.QUEUED, JobStatus.COMPLETED]


def test_events_hold_nothing_private_and_cross_processes() -> None:
    heard = Heard()
    store = observed(MemoryStore(), heard)
    store.create(NEW)
    for end in range(2):
        claim = store.claim_next(queue="out")
        assert claim is not None
        if end:
            store.complete(claim.lease, MARK.encode())
        else:
            store.fail(
                claim.lease,
                error_code="E",
                error_message=MARK,
                retry_in=timedelta(0),
            )
    told = heard.take()
    assert len(told) == 5
    for event in told:
        copied = pickle.loads(pickle.dumps(event))  # noqa: S301 - made here
        assert copied == event
        assert MARK not in str(dataclasses.asdict(event))
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.job_id = "another"  # type: ignore[union-attr,misc]


@pytest.mark.parametrize("store", ["no store", None, 3])
def test_only_stores_are_observed(store: Any) -> None:
    with pytest.raises(InvalidInput, match="store"):
        observed(store)


def test_only_what_can_be_called_listens() -> None:
    with pytest.raises(InvalidInput, match="listeners"):
        observed(MemoryStore(), "loudly")  # type: ignore[call-overload]


@pytest.mark.parametrize("made", [MemoryStore, AsyncMemoryStore])
def test_a_worker_on_an_observed_store_is_observed(made: Any) -> None:
    """
    One job comes from a worker that died, one goes well, one badly, one is cancelled
    under its handler.
    """
    heard = Heard()
    inner = made()
    memory = inner if made is MemoryStore else inner.blocking
    store = observed(inner, heard)
    # What the worker itself uses.
    blocking = store if made is MemoryStore else store.blocking
    dead = blocking.create(NewJob(kind="good", max_attempts=3)).job
    assert blocking.claim_next() is not None
    MemoryHarness(memory).age(dead.id, timedelta(hours=1))

    def good(_context: Context) -> None:
        return

    def bad(_context: Context) -> None:
        raise JobFailed("E_BAD", MARK, final=True)

    def endless(context: Context) -> None:
        memory.cancel(context.job.id)
        heard.wait_for(JobLost)

    blocking.create(NewJob(kind="bad"))
    blocking.create(NewJob(kind="endless"))
    worker = Worker(
        store,
        {"good": good, "bad": bad, "endless": endless},
        visibility_timeout=timedelta(seconds=1),
        poll_every=timedelta(milliseconds=20),
        upkeep_every=timedelta(milliseconds=20),
        heartbeat_every=timedelta(milliseconds=20),
    )
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        heard.wait_for(JobFinished, JobLost, LeasesReclaimed)
        with heard._changed:
            assert heard._changed.wait_for(
                lambda: sum(isinstance(one, JobFinished) for one in heard.events) == 2,
                30,
            )
    finally:
        worker.stop()
        running.join(30)
    told = heard.take()
    ends = {
        (one.kind, one.end, one.error_code)
        for one in told
        if isinstance(one, JobFinished)
    }
    assert ends == {
        ("good", AttemptEnd.COMPLETED, None),
        ("bad", AttemptEnd.FAILED, "E_BAD"),
    }
    assert MARK not in repr(told)
    assert LeasesReclaimed(requeued=1, failed=0) in told
    # The outcome may be refused, too, before the handler is told that it need not.
    lost = [one.kind for one in told if isinstance(one, JobLost)]
    assert lost in (["endless"], ["endless", None])
