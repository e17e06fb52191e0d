"""
The nouns, ids, retry policy and errors, without a store.
"""

import copy
import os
import pickle
import threading
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from jobstore.errors import (
    IdempotencyConflict,
    InvalidInput,
    InvalidParent,
    InvalidTransition,
    JobCancelled,
    JobNotFound,
    JobPruned,
    JobstoreError,
    LeaseLost,
    OutcomeUnknown,
    PayloadMissing,
    StoreFault,
    StoreUnavailable,
)
from jobstore.ids import known_id, new_id, process_name
from jobstore.model import Completed, Created, Failed, Lease, NewJob, Snoozed
from jobstore.retry import RetryPolicy

NO_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


# -- new jobs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", ""),
        ("kind", "a\x00b"),
        ("kind", "\ud800"),
        ("kind", "é" * 128),
        ("kind", None),
        ("kind", 5),
        ("tenant", ""),
        ("tenant", None),
        ("tenant", "x" * 256),
        ("queue", "x" * 129),
        ("content_type", ""),
        ("idem_key", "x" * 10_000),
        ("idem_key", "a\x00"),
        ("idem_key", 5),
        ("idem_key", 0),
        ("idem_key", False),
        ("idem_key", b""),
        ("payload", "text"),
        ("payload", None),
        ("payload", {"a": 1}),
        ("payload", 5),
        ("job_class", "urgent"),
        ("job_class", None),
        ("max_attempts", 0),
        ("max_attempts", 1_000_001),
        ("max_attempts", True),
        ("max_attempts", 2.0),
        ("max_attempts", float("nan")),
        ("delay", 5),
        ("delay", timedelta(microseconds=-1)),
        ("delay", timedelta.max),
        ("available_at", datetime(2026, 1, 1)),  # noqa: DTZ001 - what is refused
        ("available_at", "2026-01-01"),
        (
            "available_at",
            datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
        ),
        ("parent_id", 5),
        ("pages", "123"),
        ("pages", [-1]),
        ("pages", [2**31]),
        ("pages", [1.5]),
        ("pages", [True]),
        ("pages", {1}),
        ("pages", range(100_001)),
        ("traceparent", "x"),
        ("traceparent", "00-" + "A" * 32 + "-" + "b" * 16 + "-01"),
        ("traceparent", 5),
    ],
)
def test_a_field_that_does_not_fit_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        NewJob(**{"kind": "work", name: value})
    assert caught.value.field == name
    assert isinstance(caught.value, ValueError)


def test_a_parent_that_no_job_can_be_is_not_found() -> None:
    with pytest.raises(JobNotFound):
        NewJob(kind="work", parent_id="nonsense")


def test_a_new_job_is_normalised() -> None:
    at = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    job = NewJob(
        kind="é" * 127,
        payload=memoryview(b"ab"),  # type: ignore[arg-type]
        job_class="system",  # type: ignore[arg-type]
        idem_key="",
        pages=[1, 2],  # type: ignore[arg-type]
        available_at=at,
        parent_id=NO_ID.lower(),
    )
    assert job.payload == b"ab"
    assert type(job.payload) is bytes
    assert job.idem_key is None
    assert job.pages == (1, 2)
    assert job.available_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.parent_id == NO_ID
    with pytest.raises(FrozenInstanceError):
        job.kind = "other"  # type: ignore[misc]


def test_a_mutable_payload_is_copied() -> None:
    data = bytearray(b"ab")
    job = NewJob(kind="work", payload=data)  # type: ignore[arg-type]
    data[0] = 0
    assert job.payload == b"ab"


def test_private_fields_are_not_shown() -> None:
    job = NewJob(kind="work", payload=b"s3cr3t", idem_key="s3cr3t")
    assert "s3cr3t" not in repr(job)
    assert "s3cr3t" not in repr(Completed(b"s3cr3t"))
    assert "s3cr3t" not in repr(Failed("E", "s3cr3t"))


def test_a_fingerprint_tells_fields_apart() -> None:
    prints = {
        NewJob(kind=kind, content_type=content_type, payload=payload).fingerprint
        for kind, content_type, payload in [
            ("a", "b", b"c"),
            ("ab", "c", b""),
            ("a", "bc", b""),
            ("a", "b", b"C"),
            ("a", "b", b""),
        ]
    }
    assert len(prints) == 5
    one, other = (NewJob(kind="a", tenant=tenant) for tenant in "xy")
    assert one.fingerprint == other.fingerprint


# -- outcomes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a\x00b", "a␀b"), ("\ud800", "?"), ("", "ERROR"), ("  ", "ERROR"), ("é", "é")],
)
def test_a_failure_takes_any_code(text: str, kept: str) -> None:
    assert Failed(text).error_code == kept


def test_a_long_failure_is_cut_between_characters() -> None:
    failed = Failed("é" * 200, "x" * 20_000)
    assert failed.error_code == "é" * 127
    assert len(failed.error_message) == 10_000
    assert Failed(ValueError("v")).error_code == "v"  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", [None, 5, timedelta(-1), timedelta(days=3651)])
def test_a_snooze_needs_a_delay(delay: Any) -> None:
    with pytest.raises(InvalidInput):
        Snoozed(delay)


@pytest.mark.parametrize("result", ["x", 5, [], {}])
def test_a_result_is_bytes(result: Any) -> None:
    with pytest.raises(InvalidInput):
        Completed(result)


def test_a_created_unpacks_with_what_it_came_to() -> None:
    stored: Any = object()
    created = Created(stored, created=True, payload_matches=False)
    job, is_new = created
    assert job is stored
    assert is_new
    assert not created.payload_matches


def test_a_created_can_be_copied_and_pickled() -> None:
    stored: Any = "a job"
    created = Created(stored, created=False, payload_matches=False)
    pickled = pickle.loads(pickle.dumps(created))  # noqa: S301 - our own
    for other in (pickled, copy.deepcopy(created), created._replace(job=stored)):
        assert other == created
        assert not other.payload_matches


def test_a_lease_is_its_job_and_fence() -> None:
    assert Lease("a", 1, is_child=True) == Lease("a", 1)
    assert Lease("a", 1) != Lease("a", 2)
    assert len({Lease("a", 1, is_child=True), Lease("a", 1)}) == 1


# -- ids ---------------------------------------------------------------------------


def test_ids_grow_and_never_repeat() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(known_id(one) == one for one in ids)


def test_ids_of_threads_never_repeat() -> None:
    made: list[str] = []

    def work() -> None:
        made.extend([new_id() for _ in range(1_000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 4_000


def test_ids_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    monkeypatch.setattr("jobstore.ids.time.time_ns", lambda: 0)
    assert new_id() > before


@pytest.mark.parametrize(
    "text",
    ["", "x", "8" * 26, "I" * 26, NO_ID[:-1], NO_ID + "0", NO_ID + "\n", "\u0660" * 26],
)
def test_no_job_has_an_id_that_is_no_ulid(text: str) -> None:
    with pytest.raises(JobNotFound):
        known_id(text)


def test_a_process_has_one_name() -> None:
    assert process_name() == process_name()
    assert f":{os.getpid()}:" in process_name()


# -- retry -------------------------------------------------------------------------


def test_delays_grow_to_the_cap() -> None:
    policy = RetryPolicy(
        initial=timedelta(seconds=1), factor=3, cap=timedelta(seconds=20), jitter=0
    )
    seconds = [policy.delay(attempt).total_seconds() for attempt in range(6)]
    assert seconds == [1, 1, 3, 9, 20, 20]


@pytest.mark.parametrize("attempt", [0, -5, 2_000, 10**9])
@pytest.mark.parametrize("factor", [1, 1.0000001, 2, 100])
def test_no_number_of_attempts_overflows(attempt: int, factor: float) -> None:
    if attempt == 10**9 and factor == 1.0000001:
        attempt = 10**6
    policy = RetryPolicy(factor=factor)
    assert timedelta(0) <= policy.delay(attempt) <= policy.cap * 1.25


def test_jitter_spreads_both_ways_and_no_further() -> None:
    policy = RetryPolicy(initial=timedelta(seconds=100), jitter=0.5)
    seconds = [policy.delay(1).total_seconds() for _ in range(500)]
    assert 50 <= min(seconds) < 90
    assert 110 < max(seconds) <= 150


def test_a_policy_may_retry_at_once() -> None:
    assert RetryPolicy(initial=timedelta(0)).delay(10) == timedelta(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial", timedelta(-1)),
        ("initial", timedelta(days=366)),
        ("cap", timedelta(-1)),
        ("cap", timedelta(days=366)),
        ("factor", 0.9),
        ("factor", 101),
        ("factor", float("nan")),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", float("nan")),
        ("initial", 5),
        ("cap", None),
        ("factor", "2"),
        ("factor", True),
        ("jitter", None),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy(**{name: value})
    assert caught.value.field == name


# -- errors ------------------------------------------------------------------------

ERRORS: list[JobstoreError] = [
    InvalidInput("kind", "x", "is odd"),
    JobNotFound("id"),
    JobPruned("id"),
    PayloadMissing("id"),
    IdempotencyConflict("id", "tenant"),
    InvalidParent("id", "ended"),
    InvalidTransition("id", "queued", "waiting"),
    LeaseLost("id", 3, "gone"),
    JobCancelled("id", 3, "cancelled"),
    StoreUnavailable("away"),
    OutcomeUnknown("cut", "id"),
    StoreFault("refused", "42501"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_its_journey(error: JobstoreError) -> None:
    travelled = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(travelled) is type(error)
    assert str(travelled) == str(error)
    assert vars(travelled) == vars(error)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payload", b"s3cr3t"),
        ("result", memoryview(b"s3cr3t")),
        ("idem_key", "s3cr3t"),
        ("kind", "x" * 100 + "s3cr3t"),
    ],
)
def test_a_message_tells_no_secret(field: str, value: object) -> None:
    text = str(InvalidInput(field, value, "does not fit"))
    assert "s3cr3t" not in text
    assert "\n" not in text
    assert text.startswith(field)


def test_a_time_and_a_delay_exclude_each_other() -> None:
    with pytest.raises(InvalidInput) as caught:
        NewJob(kind="k", available_at=datetime.now(UTC), delay=timedelta(1))
    assert caught.value.field == "delay"
