"""
The contract of update_status, cancel and requeue.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import (
    InvalidInput,
    InvalidTransition,
    JobCancelled,
    JobNotFound,
    LeaseLost,
)
from jobstore.lifecycle import (
    REOPENABLE,
    TERMINAL,
    TRANSITIONS,
    JobClass,
    JobStatus,
)
from jobstore.model import AttemptOutcome, Job
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
    later,
    parked,
)
from jobstore.testing.harness import MAX_PAYLOAD_BYTES

__all__ = ["OperateContract"]

OPEN = sorted(set(JobStatus) - TERMINAL)


def to(status: JobStatus, job: Job) -> Job:
    code = "HAND" if status is JobStatus.FAILED else None
    result = job.result if status is JobStatus.COMPLETED else None
    return replace(job, status=status, error_code=code, result=result)


class OperateContract(Contract):
    """
    What update_status, cancel and requeue promise.
    """

    # -- update_status ---------------------------------------------------------

    @pytest.mark.parametrize("wanted", JobStatus, ids=str)
    @pytest.mark.parametrize("current", JobStatus, ids=str)
    def test_update_keeps_to_the_table_of_transitions(
        self, store: Store, current: JobStatus, wanted: JobStatus
    ) -> None:
        job = in_status(store, current)
        stays = wanted is current
        if not stays and wanted not in TRANSITIONS[current]:
            with pytest.raises(InvalidTransition) as caught:
                store.update_status(job.id, lambda job: to(wanted, job))
            error = caught.value
            assert (error.job_id, error.current, error.wanted) == (
                job.id,
                current,
                wanted,
            )
            assert store.get(job.id) == job
            return
        is_lease = wanted is JobStatus.PROCESSING and not stays
        is_family = (current, wanted) == (JobStatus.WAITING, JobStatus.CANCELLED)
        if is_lease or is_family:
            with pytest.raises(InvalidInput):
                store.update_status(job.id, lambda job: to(wanted, job))
            assert store.get(job.id) == job
            return
        after = store.update_status(job.id, lambda job: to(wanted, job))
        assert after == store.get(job.id)
        assert after.status is wanted
        assert after.updated_at > job.updated_at
        assert (after.finished_at is not None) == (wanted in TERMINAL)
        assert (after.heartbeat_at is not None) == (wanted is JobStatus.PROCESSING)
        assert (after.attempts, after.fence) == (job.attempts, job.fence)
        if stays and wanted in TERMINAL:
            assert after.finished_at == job.finished_at

    @pytest.mark.parametrize(
        ("status", "outcome"),
        [
            (JobStatus.QUEUED, AttemptOutcome.RELEASED),
            (JobStatus.SCHEDULED, AttemptOutcome.RELEASED),
            (JobStatus.WAITING, AttemptOutcome.WAITING),
            (JobStatus.FAILED, AttemptOutcome.FAILED),
            (JobStatus.CANCELLED, AttemptOutcome.CANCELLED),
            (JobStatus.COMPLETED, None),
        ],
    )
    def test_leaving_processing_ends_the_lease(
        self, store: Store, status: JobStatus, outcome: AttemptOutcome | None
    ) -> None:
        create(store)
        claim = hold(store, worker="w")
        store.update_status(claim.job.id, lambda job: to(status, job))
        past = store.attempts(claim.job.id)
        assert [one.outcome for one in past] == ([outcome] if outcome else [])
        assert [(one.fence, one.worker) for one in past] == [(1, "w")] * len(past)
        after = store.get(claim.job.id)
        with pytest.raises(LeaseLost):
            store.complete(claim.lease, b"late")
        assert claim.lease not in store.heartbeat([claim.lease]).held
        assert store.get(claim.job.id) == after

    def test_update_changes_what_it_may(self, store: Store) -> None:
        job = create(store)
        at = later()
        after = store.update_status(
            job.id,
            lambda job: replace(
                job,
                status=JobStatus.SCHEDULED,
                queue="other",
                job_class=JobClass.INTERACTIVE,
                max_attempts=9,
                available_at=at,
                error_code="NOTE",
                error_message="by hand",
            ),
        )
        assert after == store.get(job.id)
        assert after == replace(
            job,
            status=JobStatus.SCHEDULED,
            queue="other",
            job_class=JobClass.INTERACTIVE,
            max_attempts=9,
            available_at=at,
            error_code="NOTE",
            error_message="by hand",
            updated_at=after.updated_at,
        )

    @pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.PROCESSING])
    def test_only_a_scheduled_job_is_given_a_time(
        self, store: Store, status: JobStatus
    ) -> None:
        job = in_status(store, status)
        with pytest.raises(InvalidInput) as refused:
            store.update_status(job.id, lambda job: replace(job, available_at=later()))
        assert refused.value.field == "available_at"
        assert store.get(job.id) == job

    def test_an_update_does_not_cancel_half_a_family(self, store: Store) -> None:
        claim, children = parked(store, 2)
        with pytest.raises(InvalidInput, match="cancel") as refused:
            store.update_status(
                claim.job.id, lambda job: replace(job, status=JobStatus.CANCELLED)
            )
        assert refused.value.field == "status"
        assert store.get(claim.job.id).status is JobStatus.WAITING
        for child in children:
            assert store.get(child.job.id).status is JobStatus.QUEUED

    def test_a_job_moved_by_hand_is_claimed_where_it_is_now(self, store: Store) -> None:
        first, second = create(store), create(store)
        store.update_status(
            second.id, lambda job: replace(job, job_class=JobClass.INTERACTIVE)
        )
        store.update_status(first.id, lambda job: replace(job, queue="other"))
        assert [claim.job.id for claim in store.claim(5)] == [second.id]
        assert [claim.job.id for claim in store.claim(5, queue="other")] == [first.id]

    def test_update_can_complete_a_job_that_failed_before(self, store: Store) -> None:
        job = create(store)
        store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        hold(store)
        after = store.update_status(
            job.id, lambda job: replace(job, status=JobStatus.COMPLETED, result=b"r")
        )
        assert (after.result, after.error_code, after.error_message) == (
            b"r",
            None,
            None,
        )

    def test_any_message_can_be_recorded(self, store: Store) -> None:
        job = create(store)
        text = "a\x00b\ud800" + "x" * 20_000
        after = store.update_status(
            job.id, lambda job: replace(job, error_message=text)
        )
        assert after.error_message is not None
        assert after.error_message.startswith("a␀b?x")
        assert len(after.error_message) == 10_000

    @pytest.mark.parametrize(
        "changes",
        [
            {"id": NO_ID},
            {"tenant": "other"},
            {"idem_key": "k"},
            {"kind": "other"},
            {"attempts": 0},
            {"fence": 9},
            {"parent_id": NO_ID},
            {"pages": (1,)},
            {"children_open": 1},
            {"worker": "me"},
            {"heartbeat_at": None},
            {"created_at": later()},
            {"traceparent": "x"},
            {"queue": ""},
            {"queue": "a\x00"},
            {"job_class": "urgent"},
            {"status": "unknown"},
            {"status": None},
            {"status": ["queued"]},
            {"max_attempts": 0},
            {"max_attempts": "5"},
            {"available_at": None},
            {"available_at": later().replace(tzinfo=None)},
            {"result": b"x"},
            {"status": JobStatus.COMPLETED, "result": "text"},
            {
                "status": JobStatus.COMPLETED,
                "result": b"x" * (MAX_PAYLOAD_BYTES + 1),
            },
            {"status": JobStatus.COMPLETED, "error_code": "E"},
            {"status": JobStatus.FAILED},
            {"error_code": ""},
            {"error_code": "x" * 256},
            {"error_code": "\ud800"},
        ],
        ids="-".join,
    )
    def test_update_refuses_what_does_not_fit(
        self, store: Store, changes: dict[str, Any]
    ) -> None:
        create(store)
        job = hold(store).job
        with pytest.raises(InvalidInput):
            store.update_status(job.id, lambda job: replace(job, **changes))
        assert store.get(job.id) == job
        assert store.attempts(job.id) == []

    @pytest.mark.parametrize("answer", [None, True, {"status": "failed"}])
    def test_update_must_return_the_job(self, store: Store, answer: Any) -> None:
        job = create(store)
        with pytest.raises(InvalidInput):
            store.update_status(job.id, lambda _: answer)
        assert store.get(job.id) == job

    def test_what_the_function_raises_passes_through(self, store: Store) -> None:
        job = create(store)

        def explode(_: Job) -> Job:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.update_status(job.id, explode)
        assert store.get(job.id) == job
        assert store.update_status(job.id, lambda job: job).status is job.status

    def test_the_function_gets_the_present_job(self, store: Store) -> None:
        job = create(store)
        seen: list[Job] = []

        def note(job: Job) -> Job:
            seen.append(job)
            return job

        store.update_status(job.id, note)
        assert seen == [job]

    def test_no_job_is_not_found(self, store: Store) -> None:
        with pytest.raises(JobNotFound) as caught:
            store.update_status(NO_ID, lambda job: job)
        assert caught.value.job_id == NO_ID
        assert caught.value.code == "JOB_UNKNOWN"
        assert isinstance(caught.value, LookupError)
        for verb in (store.cancel, store.requeue, store.get, store.attempts):
            for job_id in (NO_ID, "", "nonsense", "x" * 26, "\x00"):
                with pytest.raises(JobNotFound):
                    verb(job_id)

    # -- cancel ----------------------------------------------------------------

    @pytest.mark.parametrize("status", OPEN, ids=str)
    def test_an_open_job_is_cancelled(self, store: Store, status: JobStatus) -> None:
        before = in_status(store, status)
        job = store.cancel(before.id, reason="enough")
        assert job == store.get(before.id)
        assert job.status is JobStatus.CANCELLED
        assert (job.error_code, job.error_message) == (None, "enough")
        assert job.finished_at == job.updated_at
        assert job.heartbeat_at is None
        assert job.children_open == 0
        assert store.claim(5, queue=job.queue) == []
        outcomes = [past.outcome for past in store.attempts(job.id)]
        if status is JobStatus.PROCESSING:
            assert outcomes == [AttemptOutcome.CANCELLED]
        else:
            assert AttemptOutcome.CANCELLED not in outcomes

    def test_cancelling_again_changes_nothing(self, store: Store) -> None:
        job = store.cancel(create(store).id, reason="first")
        assert store.cancel(job.id, reason="second") == job
        assert store.get(job.id) == job

    @pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED], ids=str)
    def test_an_ended_job_is_not_cancelled(
        self, store: Store, status: JobStatus
    ) -> None:
        job = in_status(store, status)
        with pytest.raises(InvalidTransition) as caught:
            store.cancel(job.id)
        assert caught.value.current == status
        assert store.get(job.id) == job

    def test_a_cancel_without_reason_has_no_message(self, store: Store) -> None:
        job = create(store)
        store.fail(
            hold(store).lease, error_code="E", error_message="m", retry_in=timedelta(0)
        )
        after = store.cancel(job.id)
        assert (after.error_code, after.error_message) == (None, None)

    @pytest.mark.parametrize("reason", ["a\x00b", "\ud800", "x" * 20_000])
    def test_any_reason_can_be_recorded(self, store: Store, reason: str) -> None:
        job = store.cancel(create(store).id, reason=reason)
        assert job.error_message
        assert len(job.error_message) <= 10_000

    # -- requeue ---------------------------------------------------------------

    @pytest.mark.parametrize("status", sorted(REOPENABLE), ids=str)
    def test_requeue_gives_fresh_attempts(
        self, store: Store, status: JobStatus
    ) -> None:
        before = in_status(store, status)
        job = store.requeue(before.id)
        assert job == store.get(before.id)
        assert job.status is JobStatus.QUEUED
        assert (job.attempts, job.fence) == (0, before.fence)
        assert (job.error_code, job.error_message, job.finished_at) == (
            None,
            None,
            None,
        )
        assert job.available_at == job.updated_at
        assert job.created_at == before.created_at
        claim = hold(store, queue=job.queue)
        assert (claim.job.attempts, claim.job.fence) == (1, before.fence + 1)

    @pytest.mark.parametrize("status", sorted(set(JobStatus) - REOPENABLE), ids=str)
    def test_requeue_refuses_other_states(
        self, store: Store, status: JobStatus
    ) -> None:
        job = in_status(store, status)
        with pytest.raises(InvalidTransition):
            store.requeue(job.id)
        assert store.get(job.id) == job

    def test_requeue_keeps_the_history_and_old_leases_dead(self, store: Store) -> None:
        job = create(store)
        old = hold(store)
        store.fail(old.lease, error_code="E", final=True)
        store.requeue(job.id)
        new = hold(store)
        with pytest.raises(LeaseLost):
            store.complete(old.lease, b"late")
        store.fail(new.lease, error_code="F", final=True)
        assert [(past.fence, past.attempt) for past in store.attempts(job.id)] == [
            (1, 1),
            (2, 1),
        ]

    def test_requeue_of_a_cancelled_job_keeps_its_lease_dead(
        self, store: Store
    ) -> None:
        create(store)
        old = hold(store)
        store.cancel(old.job.id)
        store.requeue(old.job.id)
        with pytest.raises(LeaseLost) as caught:
            store.complete(old.lease)
        assert not isinstance(caught.value, JobCancelled)
        assert hold(store).job.fence == 2

    def test_ending_a_child_by_hand_tells_its_parent(self, store: Store) -> None:
        claim, children = parked(store, 3)
        store.update_status(
            children[0].job.id, lambda job: to(JobStatus.CANCELLED, job)
        )
        hold(store, queue="pages")
        held = store.list_children(claim.job.id)[1]
        store.update_status(held.id, lambda job: to(JobStatus.COMPLETED, job))
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (1, 1)
        store.update_status(children[2].job.id, lambda job: to(JobStatus.FAILED, job))
        parent = store.get(claim.job.id)
        assert parent.status is JobStatus.QUEUED
        assert (parent.children_open, parent.children_failed) == (0, 2)
        store.update_status(
            children[2].job.id, lambda job: replace(job, error_message="noted")
        )
        assert store.get(claim.job.id) == parent
