"""
The checks that all stores share, and what holds of any value at all.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobstore import checks
from jobstore.errors import InvalidInput, InvalidTransition, JobNotFound
from jobstore.ids import is_canonical, known_id, new_id
from jobstore.lifecycle import TERMINAL, TRANSITIONS, JobClass, JobStatus
from jobstore.model import (
    MAX_BYTES,
    MAX_ERROR_MESSAGE,
    ChildFailure,
    Completed,
    Failed,
    Job,
    Lease,
    NewJob,
    Released,
    Snoozed,
    check_text,
)
from jobstore.retry import RetryPolicy
from jobstore.store import MAX_BATCH

LEASE = Lease(new_id(), 1)

# Whatever a caller may hand over: text of any kind, numbers, containers.
ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(),
    st.timedeltas(),
    st.datetimes(),
    st.lists(st.one_of(st.integers(), st.text())),
    st.dictionaries(st.text(), st.integers()),
)


def job(status: JobStatus = JobStatus.QUEUED, **fields: Any) -> Job:
    now = datetime.now(UTC)
    values = {
        **dict.fromkeys(
            (one.name for one in dataclasses.fields(Job)),
        ),
        "id": new_id(),
        "queue": "default",
        "job_class": JobClass.BATCH,
        "status": status,
        "attempts": 0,
        "max_attempts": 5,
        "available_at": now,
        "finished_at": now if status in TERMINAL else None,
        "heartbeat_at": now if status is JobStatus.PROCESSING else None,
        "error_code": "E" if status is JobStatus.FAILED else None,
        **fields,
    }
    return Job(**values)


def changed(before: Job, **fields: Any) -> Job:
    return dataclasses.replace(before, **fields)


# -- any value at all --------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        checks.check_lease,
        checks.check_leases,
        checks.check_limit,
        checks.check_lease_time,
        checks.check_job_class,
        checks.check_child_failure,
        checks.check_statuses,
        checks.check_terminal,
        lambda value: checks.check_new(value, 10),
        lambda value: checks.check_new_jobs(value, 10),
        lambda value: checks.check_endings(value, 10),
        lambda value: checks.check_endings([value], 10),
        lambda value: checks.check_endings([(LEASE, value)], 10),
        lambda value: checks.check_endings([(value, Released())], 10),
        lambda value: checks.check_lease(Lease(value, 1)),
        lambda value: checks.check_lease(Lease(LEASE.job_id, value)),
        lambda value: checks.check_update(job(), value, 10),
        known_id,
        lambda value: RetryPolicy(factor=value),
        lambda value: RetryPolicy(initial=value),
        Completed,
        Snoozed,
    ],
)
@given(value=ANYTHING)
def test_any_value_is_taken_or_refused_by_name(
    check: Callable[[Any], object], value: Any
) -> None:
    said = ""
    try:
        check(value)
    except (InvalidInput, JobNotFound) as error:
        said = str(error)
    assert len(said) < 400
    assert "\n" not in said or said == f"no job {value}"


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(NewJob)])
@given(value=ANYTHING)
def test_any_field_of_a_new_job_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        new = NewJob(**{"kind": "work", name: value})
    except (InvalidInput, JobNotFound):
        return
    # What was taken can be stored: it is what the schema's CHECKs allow.
    for field, most in MAX_BYTES.items():
        text = getattr(new, field, None)
        if text is not None:
            assert 0 < len(text.encode()) <= most
            assert "\x00" not in text
    assert new.available_at is None or new.available_at.tzinfo is UTC
    assert dataclasses.replace(new) == new
    assert len(new.fingerprint) == 32


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(Job)])
@given(value=ANYTHING)
def test_any_change_of_a_job_is_taken_or_refused(name: str, value: Any) -> None:
    before = job()
    try:
        after = checks.check_update(before, changed(before, **{name: value}), 10)
    except (InvalidInput, InvalidTransition):
        return
    assert after.available_at.tzinfo is UTC
    for one in (after.queue, after.error_code):
        assert one is None or one.encode()


@given(code=ANYTHING, message=ANYTHING)
def test_any_failure_can_be_recorded(code: Any, message: Any) -> None:
    failed = Failed(code, message)
    check_text("error_code", failed.error_code)
    assert len(failed.error_message) <= MAX_ERROR_MESSAGE
    assert "\x00" not in failed.error_message
    assert failed.error_message.encode() is not None
    assert Failed(failed.error_code, failed.error_message) == failed


@given(text=st.text(st.characters()))
def test_any_reason_can_be_recorded(text: str) -> None:
    kept = checks.recordable_reason(text)
    assert "\x00" not in kept
    assert kept.encode() is not None
    assert checks.recordable_reason(kept) == kept


@given(
    left=st.tuples(st.text("ab", min_size=1), st.text("ab", min_size=1), st.binary()),
    right=st.tuples(st.text("ab", min_size=1), st.text("ab", min_size=1), st.binary()),
)
def test_equal_fingerprints_are_of_equal_content(
    left: tuple[str, str, bytes], right: tuple[str, str, bytes]
) -> None:
    prints = [
        NewJob(kind=kind, content_type=content_type, payload=payload).fingerprint
        for kind, content_type, payload in (left, right)
    ]
    assert (prints[0] == prints[1]) == (left == right)


@given(
    attempt=st.integers(-10, 10_000),
    initial=st.timedeltas(timedelta(0), timedelta(days=365)),
    cap=st.timedeltas(timedelta(0), timedelta(days=365)),
    factor=st.floats(1, 100),
    jitter=st.floats(0, 1),
)
def test_a_delay_is_never_past_cap_and_jitter(
    attempt: int, initial: timedelta, cap: timedelta, factor: float, jitter: float
) -> None:
    policy = RetryPolicy(initial=initial, cap=cap, factor=factor, jitter=jitter)
    longest = cap * (1 + jitter) + timedelta(microseconds=1)
    assert timedelta(0) <= policy.delay(attempt) <= longest


@given(text=st.text(st.characters()))
def test_only_what_new_id_could_make_is_an_id(text: str) -> None:
    if is_canonical(text):
        assert known_id(text) == text
    else:
        with contextlib.suppress(JobNotFound):
            assert known_id(text) == text.upper() != text


# -- batches -----------------------------------------------------------------------


def test_a_batch_may_be_any_iterable_of_the_right_size() -> None:
    new = NewJob(kind="work")
    assert checks.check_new_jobs((one for one in [new, new]), 0) == [new, new]
    assert checks.check_leases(iter([LEASE])) == [LEASE]
    assert len(checks.check_leases([LEASE] * MAX_BATCH)) == MAX_BATCH
    with pytest.raises(InvalidInput, match="10,000"):
        checks.check_leases([LEASE] * (MAX_BATCH + 1))


def test_limits_have_their_ends() -> None:
    assert checks.check_limit(1) == 1
    assert checks.check_limit(MAX_BATCH) == MAX_BATCH
    for limit in (0, MAX_BATCH + 1, True, 1.0, "1"):
        with pytest.raises(InvalidInput, match="limit"):
            checks.check_limit(limit)


def test_a_payload_may_be_as_large_as_the_store_says() -> None:
    new = NewJob(kind="work", payload=b"12345")
    assert checks.check_new(new, 5) is new
    with pytest.raises(InvalidInput, match="<5 bytes>"):
        checks.check_new(new, 4)
    checks.check_endings([(LEASE, Completed(b"12345"))], 5)
    with pytest.raises(InvalidInput, match="<5 bytes>"):
        checks.check_endings([(LEASE, Completed(b"12345"))], 4)


def test_a_lease_stands_once_in_a_batch_whatever_it_hints() -> None:
    hinted = dataclasses.replace(LEASE, is_child=True)
    with pytest.raises(InvalidInput, match="once"):
        checks.check_endings([(LEASE, Released()), (hinted, Released())], 5)


def test_words_are_taken_for_what_they_name() -> None:
    assert checks.check_statuses("queued") == (JobStatus.QUEUED,)  # type: ignore[arg-type]
    assert checks.check_statuses(["failed", "failed"]) == (JobStatus.FAILED,)  # type: ignore[list-item]
    assert checks.check_statuses(None) == ()
    assert checks.check_job_class("system") is JobClass.SYSTEM
    assert checks.check_child_failure("fail") is ChildFailure.FAIL
    assert checks.check_lease_time(None) is None


# -- what update_status may do -----------------------------------------------------


@pytest.mark.parametrize("wanted", JobStatus)
@pytest.mark.parametrize("current", JobStatus)
def test_an_update_keeps_to_the_table(current: JobStatus, wanted: JobStatus) -> None:
    before = job(current)
    code = "HAND" if wanted is JobStatus.FAILED else None
    after = dataclasses.replace(before, status=wanted, error_code=code)
    if wanted is not current and wanted not in TRANSITIONS[current]:
        with pytest.raises(InvalidTransition):
            checks.check_update(before, after, 10)
    elif wanted is JobStatus.PROCESSING and wanted is not current:
        with pytest.raises(InvalidInput, match="only a claim"):
            checks.check_update(before, after, 10)
    else:
        assert checks.check_update(before, after, 10).status is wanted


@pytest.mark.parametrize(
    "name",
    sorted(
        {one.name for one in dataclasses.fields(Job)}
        - {
            "status",
            "queue",
            "job_class",
            "max_attempts",
            "available_at",
            "result",
            "error_code",
            "error_message",
            "updated_at",
        }
    ),
)
def test_an_update_may_not_touch_other_fields(name: str) -> None:
    before = job()
    after = changed(before, **{name: "changed"})
    with pytest.raises(InvalidInput) as caught:
        checks.check_update(before, after, 10)
    assert caught.value.field == name


def test_completing_by_hand_drops_the_error_of_before() -> None:
    before = job(JobStatus.PROCESSING, error_code="E", error_message="m")
    done = dataclasses.replace(before, status=JobStatus.COMPLETED, result=b"r")
    after = checks.check_update(before, done, 10)
    assert (after.error_code, after.error_message) == (None, None)
    for field in ("error_code", "error_message"):
        with pytest.raises(InvalidInput, match="completed"):
            checks.check_update(before, changed(done, **{field: "n"}), 10)
