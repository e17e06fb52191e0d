"""
The contract of the verbs that end an attempt.
"""

from datetime import UTC, timedelta

import pytest

from jobstore.lifecycle import JobStatus
from jobstore.model import (
    AttemptOutcome,
    Failed,
    Outcome,
    Released,
    Snoozed,
)
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    HOUR,
    Contract,
    create,
    hold,
    run_out,
)
from jobstore.testing.harness import MAX_PAYLOAD_BYTES, RETRY, Harness

__all__ = ["FinishContract"]

ENDINGS: dict[str, Outcome] = {
    "F": Failed("F", retry_in=timedelta(0)),
    "R": Released(),
    "S": Snoozed(timedelta(0)),
}


class FinishContract(Contract):
    """
    What complete, fail, release, snooze, set_result and set_results promise.
    """

    @pytest.mark.parametrize(
        "result", [None, b"", bytes(range(256)), b"x" * MAX_PAYLOAD_BYTES]
    )
    def test_a_completed_job_keeps_its_result(
        self, store: Store, result: bytes | None
    ) -> None:
        create(store)
        claim = hold(store, worker="w")
        assert store.complete(claim.lease, result) is JobStatus.COMPLETED
        job = store.get(claim.job.id)
        assert job.status is JobStatus.COMPLETED
        assert job.result == result
        assert job.finished_at == job.updated_at
        assert job.finished_at is not None
        assert job.finished_at.tzinfo is UTC
        assert job.heartbeat_at is None
        assert (job.worker, job.attempts, job.fence) == ("w", 1, 1)
        assert job.started_at == claim.job.started_at
        assert store.attempts(job.id) == []

    def test_success_clears_the_error_of_earlier_attempts(self, store: Store) -> None:
        create(store)
        store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        store.complete(hold(store).lease)
        job = store.get(store.list()[0].id)
        assert (job.error_code, job.error_message) == (None, None)
        assert [past.error_code for past in store.attempts(job.id)] == ["E"]

    def test_a_failed_attempt_is_tried_again_later(self, store: Store) -> None:
        create(store)
        claim = hold(store, worker="w")
        status = store.fail(
            claim.lease, error_code="E", error_message="why", retry_in=HOUR
        )
        assert status is JobStatus.SCHEDULED
        job = store.get(claim.job.id)
        assert job.status is JobStatus.SCHEDULED
        assert job.available_at == job.updated_at + HOUR
        assert (job.error_code, job.error_message) == ("E", "why")
        assert (job.attempts, job.fence) == (1, 1)
        assert job.heartbeat_at is None
        assert job.finished_at is None
        (past,) = store.attempts(job.id)
        assert past.job_id == job.id
        assert (past.fence, past.attempt, past.worker) == (1, 1, "w")
        assert past.outcome is AttemptOutcome.FAILED
        assert (past.error_code, past.error_message) == ("E", "why")
        assert past.started_at == claim.job.started_at
        assert past.ended_at == job.updated_at

    def test_the_policy_says_when_to_try_again(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store)
        for attempt in (1, 2, 3, 4):
            store.fail(hold(store).lease, error_code="E")
            after = store.get(job.id)
            assert after.available_at - after.updated_at == RETRY.delay(attempt)
            harness.age(job.id, HOUR)

    def test_failing_at_once_stays_in_line(self, store: Store) -> None:
        first, _ = create(store), create(store)
        status = store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        assert status is JobStatus.QUEUED
        assert hold(store).job.id == first.id

    def test_a_final_failure_ends_the_job(self, store: Store) -> None:
        before = create(store)
        claim = hold(store)
        status = store.fail(claim.lease, error_code="E", final=True, retry_in=HOUR)
        assert status is JobStatus.FAILED
        job = store.get(claim.job.id)
        assert job.status is JobStatus.FAILED
        assert job.finished_at == job.updated_at
        assert job.available_at == before.available_at
        assert len(store.attempts(job.id)) == 1

    def test_the_last_attempt_ends_the_job(self, store: Store) -> None:
        job = create(store, max_attempts=2)
        now = timedelta(0)
        assert store.fail(hold(store).lease, error_code="E", retry_in=now) == "queued"
        assert store.fail(hold(store).lease, error_code="E", retry_in=now) == "failed"
        assert store.get(job.id).attempts == 2
        assert store.claim_next() is None

    def test_a_failure_is_recordable_at_any_number_of_attempts(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store, max_attempts=1_000_000)
        harness.edit(job.id, attempts=40_000)
        assert store.fail(hold(store).lease, error_code="E") is JobStatus.SCHEDULED
        after = store.get(job.id)
        assert after.available_at - after.updated_at == RETRY.cap

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("a\x00b", "c\x00d"),
            ("\ud800", "\udfff"),
            ("", ""),
            ("x" * 999, "é" * 20000),
        ],
    )
    def test_a_failure_is_recordable_whatever_its_text(
        self, store: Store, code: str, message: str
    ) -> None:
        create(store)
        claim = hold(store)
        store.fail(claim.lease, error_code=code, error_message=message, final=True)
        job = store.get(claim.job.id)
        kept = Failed(code, message)
        assert (job.error_code, job.error_message) == (
            kept.error_code,
            kept.error_message,
        )
        assert store.attempts(job.id)[0].error_message == kept.error_message

    def test_a_released_job_takes_its_place_in_line(self, store: Store) -> None:
        first, _ = create(store), create(store)
        claim = hold(store)
        assert store.release(claim.lease) is JobStatus.QUEUED
        job = store.get(first.id)
        assert (job.attempts, job.fence) == (0, 1)
        assert job.available_at == first.available_at
        assert job.heartbeat_at is None
        assert job.error_code is None
        (past,) = store.attempts(first.id)
        assert (past.outcome, past.attempt) == (AttemptOutcome.RELEASED, 1)
        again = hold(store)
        assert (again.job.id, again.job.attempts, again.job.fence) == (first.id, 1, 2)

    def test_a_snoozed_job_is_due_again_later(self, store: Store) -> None:
        create(store)
        claim = hold(store)
        assert store.snooze(claim.lease, HOUR) is JobStatus.SCHEDULED
        job = store.get(claim.job.id)
        assert job.available_at == job.updated_at + HOUR
        assert (job.attempts, job.fence) == (0, 1)
        (past,) = store.attempts(job.id)
        assert (past.outcome, past.attempt) == (AttemptOutcome.SNOOZED, 1)

    def test_a_snooze_of_nothing_is_queued(self, store: Store) -> None:
        create(store)
        assert store.snooze(hold(store).lease, timedelta(0)) is JobStatus.QUEUED

    # -- what an attempt costs -------------------------------------------------

    @pytest.mark.parametrize(
        ("story", "starts"),
        [
            ("FFF", 3),
            ("CCC", 3),
            ("FCF", 3),
            ("FRFF", 4),
            ("RRRRFFF", 7),
            ("FSSFF", 5),
            ("CRCSF", 5),
            ("FDDFF", 5),
        ],
    )
    def test_three_attempts_are_three_starts_at_the_jobs_expense(
        self, store: Store, harness: Harness, story: str, starts: int
    ) -> None:
        job = create(store, max_attempts=3)
        for number, step in enumerate(story, 1):
            claim = hold(store)
            assert claim.job.id == job.id
            assert claim.job.fence == number
            if step == "C":
                run_out(harness, claim)
            elif step == "D":  # a repeated submit or finish costs nothing
                store.set_results([(claim.lease, Released())])
                store.release(claim.lease)
            else:
                store.set_result(claim.lease, ENDINGS[step])
        after = store.get(job.id)
        assert after.status is JobStatus.FAILED
        assert after.attempts == 3
        assert after.fence == starts == len(store.attempts(job.id))
        assert store.claim_next() is None
