"""
The contract of leases: who may write, what may be repeated, what is refused.
"""

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobstore.errors import (
    InvalidInput,
    JobCancelled,
    JobNotFound,
    LeaseLost,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    Claim,
    Completed,
    Failed,
    Lease,
    NewJob,
    Outcome,
    Released,
    Snoozed,
)
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    HOUR,
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
    run_out,
)
from jobstore.testing.harness import MAX_PAYLOAD_BYTES, Harness

__all__ = ["LeasesContract"]

OUTCOMES: list[Outcome] = [
    Completed(b"\x00result"),
    Completed(None),
    Failed("BROKEN", "it broke"),
    Failed("BROKEN", "for good", final=True),
    Failed("BROKEN", retry_in=timedelta(0)),
    Released(),
    Snoozed(HOUR),
    Snoozed(timedelta(0)),
]


class LeasesContract(Contract):
    """
    What the verbs that end an attempt refuse, and what they let be repeated.
    """

    # -- leases ----------------------------------------------------------------

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_a_lost_lease_writes_nothing(
        self, store: Store, harness: Harness, outcome: Outcome
    ) -> None:
        create(store)
        old = hold(store)
        run_out(harness, old)
        waiting_again = store.get(old.job.id)
        with pytest.raises(LeaseLost) as caught:
            store.set_result(old.lease, outcome)
        assert not isinstance(caught.value, JobCancelled)
        assert (caught.value.job_id, caught.value.fence) == (old.job.id, 1)
        assert store.get(old.job.id) == waiting_again
        new = hold(store)
        with pytest.raises(LeaseLost):
            store.set_result(old.lease, outcome)
        assert store.get(old.job.id) == new.job
        assert store.complete(new.lease) is JobStatus.COMPLETED
        with pytest.raises(LeaseLost):
            store.set_result(old.lease, Completed(b"other"))
        with pytest.raises(LeaseLost):
            store.set_result(old.lease, Completed(None))

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    @pytest.mark.parametrize(
        "status", sorted(set(JobStatus) - {JobStatus.PROCESSING}), ids=str
    )
    def test_a_lease_that_never_was_writes_nothing(
        self, store: Store, status: JobStatus, outcome: Outcome
    ) -> None:
        job = in_status(store, status)
        for fence in (job.fence + 1, 99):
            with pytest.raises(LeaseLost):
                store.set_result(Lease(job.id, fence), outcome)
            with pytest.raises(LeaseLost):
                store.fan_out(Lease(job.id, fence), [job.child(kind="page")])
        assert store.get(job.id) == job

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_a_cancelled_lease_says_so(self, store: Store, outcome: Outcome) -> None:
        create(store)
        claim = hold(store)
        job = store.cancel(claim.job.id)
        with pytest.raises(JobCancelled):
            store.set_result(claim.lease, outcome)
        assert store.get(job.id) == job

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_a_deleted_job_is_not_found(
        self, store: Store, harness: Harness, outcome: Outcome
    ) -> None:
        create(store)
        claim = hold(store)
        harness.delete(claim.job.id)
        with pytest.raises(JobNotFound):
            store.set_result(claim.lease, outcome)
        with pytest.raises(JobNotFound):
            store.set_result(Lease(NO_ID, 1), outcome)

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_the_same_outcome_may_be_repeated(
        self, store: Store, outcome: Outcome
    ) -> None:
        create(store)
        claim = hold(store)
        status = store.set_result(claim.lease, outcome)
        job, past = store.get(claim.job.id), store.attempts(claim.job.id)
        assert job.status is status
        for _ in range(2):
            assert store.set_result(claim.lease, outcome) is status
        assert store.get(job.id) == job
        assert store.attempts(job.id) == past

    @pytest.mark.parametrize(
        "outcome", [o for o in OUTCOMES if not isinstance(o, Completed)], ids=repr
    )
    def test_a_repeat_succeeds_after_the_job_has_moved_on(
        self, store: Store, harness: Harness, outcome: Outcome
    ) -> None:
        job = create(store)
        claim = hold(store)
        if store.set_result(claim.lease, outcome) is JobStatus.FAILED:
            store.requeue(job.id)
        harness.age(job.id, 2 * HOUR)
        now = hold(store)
        assert isinstance(store.set_result(claim.lease, outcome), JobStatus)
        assert store.get(job.id) == now.job

    @pytest.mark.parametrize("first", OUTCOMES, ids=repr)
    @pytest.mark.parametrize(
        "second",
        [Completed(b"other"), Failed("OTHER"), Failed("BROKEN", "other")],
        ids=repr,
    )
    def test_another_outcome_is_refused(
        self, store: Store, first: Outcome, second: Outcome
    ) -> None:
        create(store)
        claim = hold(store)
        store.set_result(claim.lease, first)
        job = store.get(claim.job.id)
        with pytest.raises(LeaseLost):
            store.set_result(claim.lease, second)
        assert store.get(job.id) == job

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_an_attempt_that_has_ended_cannot_fan_out(
        self, store: Store, outcome: Outcome
    ) -> None:
        create(store)
        claim = hold(store)
        store.set_result(claim.lease, outcome)
        job = store.get(claim.job.id)
        for children in ([], [NewJob(kind="page", idem_key="k")]):
            with pytest.raises(LeaseLost) as caught:
                store.fan_out(claim.lease, children)
            assert not isinstance(caught.value, JobCancelled)
        assert store.list() == [job]

    # -- many ------------------------------------------------------------------

    def test_many_outcomes_are_answered_in_their_order(
        self, store: Store, harness: Harness
    ) -> None:
        store.create_many([NewJob(kind="work")] * 7)
        claims = store.claim(7)
        cancelled, lost = claims[5], claims[6]
        store.cancel(cancelled.job.id)
        run_out(harness, lost)
        outcomes: list[tuple[Lease, Outcome]] = [
            (lost.lease, Completed(b"late")),
            (claims[0].lease, Completed(b"0")),
            (claims[1].lease, Failed("E", final=True)),
            (Lease(NO_ID, 1), Completed()),
            (claims[2].lease, Released()),
            (claims[3].lease, Snoozed(HOUR)),
            (cancelled.lease, Completed()),
            (claims[4].lease, Failed("E", retry_in=HOUR)),
        ]
        answers = store.set_results(outcomes)
        assert [
            answer if isinstance(answer, JobStatus) else type(answer)
            for answer in answers
        ] == [
            LeaseLost,
            JobStatus.COMPLETED,
            JobStatus.FAILED,
            JobNotFound,
            JobStatus.QUEUED,
            JobStatus.SCHEDULED,
            JobCancelled,
            JobStatus.SCHEDULED,
        ]
        for (lease, _), answer in zip(outcomes, answers, strict=True):
            if isinstance(answer, JobStatus):
                assert store.get(lease.job_id).status is answer
        assert store.get(claims[0].job.id).result == b"0"

    def test_many_completions_keep_each_its_result(self, store: Store) -> None:
        store.create_many([NewJob(kind="work")] * 20)
        claims = store.claim(20)
        store.set_results(
            [(claim.lease, Completed(claim.job.id.encode())) for claim in claims]
        )
        for claim in claims:
            assert store.get(claim.job.id).result == claim.job.id.encode()

    def test_many_outcomes_may_be_none(self, store: Store) -> None:
        assert store.set_results([]) == []

    def test_each_lease_may_stand_once(self, store: Store) -> None:
        create(store)
        claim = hold(store)
        twice: list[tuple[Lease, Outcome]] = [
            (claim.lease, Completed()),
            (claim.lease, Failed("E")),
        ]
        with pytest.raises(InvalidInput):
            store.set_results(twice)
        assert store.get(claim.job.id) == claim.job

    @pytest.mark.parametrize(
        "result", [b"x" * (MAX_PAYLOAD_BYTES + 1), "text", 5, {"a": 1}]
    )
    def test_a_result_that_does_not_fit_is_refused(
        self, store: Store, result: Any
    ) -> None:
        create(store)
        claim = hold(store)
        with pytest.raises(InvalidInput, match="result"):
            store.complete(claim.lease, result)
        assert store.get(claim.job.id) == claim.job
        store.fail(claim.lease, error_code="TOO_LARGE", final=True)

    @pytest.mark.parametrize("bad", [None, "x", ("id", 1), 5])
    def test_only_leases_and_outcomes_are_taken(self, store: Store, bad: Any) -> None:
        create(store)
        claim = hold(store)
        for call in (
            lambda: store.set_result(bad, Completed()),
            lambda: store.set_result(claim.lease, bad),
            lambda: store.set_results([bad]),
        ):
            with pytest.raises(InvalidInput):
                call()
        assert store.get(claim.job.id) == claim.job

    @pytest.mark.parametrize(
        "fence", [None, "1", 1.0, True, float("nan"), -1, 2**63, 2**70], ids=repr
    )
    def test_a_fence_that_no_claim_gives_is_refused(
        self, store: Store, fence: Any
    ) -> None:
        create(store)
        claim = hold(store)
        self._refused(store, claim, Lease(claim.job.id, fence))

    @pytest.mark.parametrize(
        "job_id", [None, 5, "", "x", "a\x00b", "\ud800", "é" * 26, "8" * 26], ids=ascii
    )
    def test_an_id_that_no_claim_gives_is_refused(
        self, store: Store, job_id: Any
    ) -> None:
        create(store)
        claim = hold(store)
        self._refused(store, claim, Lease(job_id, 1))
        self._refused(store, claim, Lease(claim.job.id.lower(), 1))

    def _refused(self, store: Store, claim: Claim, lease: Lease) -> None:
        for call in (
            lambda: store.complete(lease),
            lambda: store.set_results(
                [(claim.lease, Completed()), (lease, Released())]
            ),
            lambda: store.heartbeat([claim.lease, lease]),
            lambda: store.fan_out(lease, []),
        ):
            with pytest.raises(InvalidInput, match="lease"):
                call()
        assert store.get(claim.job.id) == claim.job

    @pytest.mark.parametrize("delay", [timedelta(seconds=-1), timedelta(days=3651), 5])
    def test_delays_that_do_not_fit_are_refused(self, store: Store, delay: Any) -> None:
        create(store)
        claim = hold(store)
        with pytest.raises(InvalidInput):
            store.snooze(claim.lease, delay)
        with pytest.raises(InvalidInput):
            store.fail(claim.lease, error_code="E", retry_in=delay)
        assert store.get(claim.job.id) == claim.job

    def test_the_longest_delay_is_taken(self, store: Store) -> None:
        create(store)
        claim = hold(store)
        store.snooze(claim.lease, timedelta(days=3650))
        assert store.get(claim.job.id).available_at > datetime(2030, 1, 1, tzinfo=UTC)

    # -- errors ----------------------------------------------------------------

    def test_errors_travel_and_tell_no_secrets(self, store: Store) -> None:
        secret = "s3cr3t-" * 9
        job = create(store, payload=secret.encode(), idem_key=secret)
        claim = hold(store)
        store.complete(claim.lease, secret.encode())
        for call in (
            lambda: store.complete(claim.lease, secret.encode() + b"!"),
            lambda: store.create(NewJob(kind="x", idem_key=secret), strict=True),
            lambda: store.get(NO_ID),
            lambda: store.cancel(job.id),
            lambda: store.create(job.child(kind="x", payload=secret.encode())),
            lambda: store.complete(claim.lease, secret.encode() * MAX_PAYLOAD_BYTES),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - of many kinds
                call()
            error = caught.value
            travelled = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
            assert type(travelled) is type(error)
            assert str(travelled) == str(error)
            texts = [str(error), repr(error)]
            while error.__context__ is not None:
                error = error.__context__  # type: ignore[assignment]
                texts.append(str(error))
            assert not any("s3cr3t" in text for text in texts)
