"""
The contract of families: levels, reopening, children in pages, counts put right.
"""

from dataclasses import replace

import pytest

from jobstore.errors import (
    InvalidInput,
    InvalidTransition,
    JobNotFound,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    ChildFailure,
    Claim,
    Job,
    NewJob,
)
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    HOUR,
    NO_ID,
    Contract,
    create,
    hold,
    parked,
)
from jobstore.testing.harness import Harness

__all__ = ["LevelsContract"]


def _fail(harness: Harness, claim: Claim) -> None:
    harness.store.fail(claim.lease, error_code="E", final=True)


class LevelsContract(Contract):
    """
    What families promise beyond one fan-out.
    """

    # -- three levels ----------------------------------------------------------

    def _three_levels(self, store: Store, policy: ChildFailure) -> tuple[Job, Job]:
        """
        Return a waiting grandparent and its waiting child, which has two pages.
        """
        grand, ((middle, _),) = parked(
            store, [NewJob(kind="part", queue="parts")], on_child_failure=policy
        )
        part = hold(store, queue="parts")
        page = replace(middle.child(kind="page"), queue="pages")
        store.fan_out(part.lease, [page, page], on_child_failure=policy)
        return grand.job, middle

    def test_a_failure_goes_up_as_far_as_parents_say(
        self, store: Store, harness: Harness
    ) -> None:
        grand, middle = self._three_levels(store, ChildFailure.FAIL)
        for page in store.claim(2, queue="pages"):
            _fail(harness, page)
        for job_id, failed in ((middle.id, 2), (grand.id, 1)):
            job = store.get(job_id)
            assert (job.status, job.error_code) == (JobStatus.FAILED, "CHILD_FAILED")
            assert (job.children_open, job.children_failed) == (0, failed)

    def test_three_levels_resume_from_below(self, store: Store) -> None:
        grand, middle = self._three_levels(store, ChildFailure.RESUME)
        for page in store.claim(2, queue="pages"):
            store.complete(page.lease)
        assert store.get(middle.id).status is JobStatus.QUEUED
        assert store.get(grand.id).status is JobStatus.WAITING
        store.complete(hold(store, queue="parts").lease)
        assert store.get(grand.id).status is JobStatus.QUEUED

    def test_cancelling_the_head_cancels_all_that_is_left(self, store: Store) -> None:
        grand, middle = self._three_levels(store, ChildFailure.RESUME)
        done, held = store.claim(2, queue="pages")
        store.complete(done.lease, b"kept")
        job = store.cancel(grand.id, reason="no longer wanted")
        assert job == store.get(grand.id)
        assert (job.status, job.error_message) == (
            JobStatus.CANCELLED,
            "no longer wanted",
        )
        assert store.get(middle.id).status is JobStatus.CANCELLED
        assert store.get(held.job.id).status is JobStatus.CANCELLED
        assert store.get(done.job.id).result == b"kept"
        assert store.heartbeat([held.lease]).cancelled == {held.lease}
        for job_id in (grand.id, middle.id):
            assert store.get(job_id).children_open == 0
        assert not store.list(status=["queued", "waiting", "processing"])  # type: ignore[list-item]

    def test_cancelling_the_middle_lets_the_head_go_on(self, store: Store) -> None:
        grand, middle = self._three_levels(store, ChildFailure.RESUME)
        store.cancel(middle.id)
        head = store.get(grand.id)
        assert (head.status, head.children_failed) == (JobStatus.QUEUED, 1)
        assert {job.status for job in store.list_children(middle.id)} == {"cancelled"}

    def test_cancelling_reaches_past_members_that_have_ended(
        self, store: Store
    ) -> None:
        grand, ((middle, _),) = parked(store, [NewJob(kind="part", queue="parts")])
        part = hold(store, queue="parts")
        page = replace(middle.child(kind="page"), queue="pages")
        store.create_many([page, page, page])
        done, failed, _ = store.claim(3, queue="pages")
        store.complete(done.lease)
        store.fail(failed.lease, error_code="E", final=True)
        store.create(replace(grand.job.child(kind="late"), queue="late"))
        store.complete(part.lease, b"kept")
        before = store.get(middle.id)
        assert (before.status, before.children_open) == (JobStatus.COMPLETED, 1)
        store.cancel(grand.job.id)
        after = store.get(middle.id)
        assert (after.status, after.result) == (JobStatus.COMPLETED, b"kept")
        assert after.finished_at == before.finished_at
        counts = (after.children_total, after.children_open, after.children_failed)
        assert counts == (3, 0, 2)
        assert [job.status for job in store.list_children(middle.id)] == [
            JobStatus.COMPLETED,
            JobStatus.FAILED,
            JobStatus.CANCELLED,
        ]
        head = store.get(grand.job.id)
        assert (head.children_open, head.children_failed) == (0, 1)

    # -- reopening -------------------------------------------------------------

    def test_a_requeued_child_is_waited_for_again(self, store: Store) -> None:
        claim, _ = parked(store, 2)
        failed = hold(store, queue="pages")
        store.fail(failed.lease, error_code="E", final=True)
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (1, 1)
        store.requeue(failed.job.id)
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (2, 0)
        for page in store.claim(2, queue="pages"):
            store.complete(page.lease)
        parent = store.get(claim.job.id)
        assert parent.status is JobStatus.QUEUED
        assert (parent.children_open, parent.children_failed) == (0, 0)

    def test_of_two_failed_children_one_is_reopened(
        self, store: Store, harness: Harness
    ) -> None:
        claim, _ = parked(store, 3)
        first, second, _ = store.claim(3, queue="pages")
        for page in (first, second):
            _fail(harness, page)
        store.requeue(first.job.id)
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (2, 1)
        store.cancel(first.job.id)
        store.requeue(first.job.id)
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (2, 1)

    def test_a_child_run_before_its_time_is_counted_once(self, store: Store) -> None:
        claim, _ = parked(store, 1)
        store.snooze(hold(store, queue="pages").lease, HOUR)
        store.requeue(store.list_children(claim.job.id)[0].id)
        assert store.get(claim.job.id).children_open == 1
        store.complete(hold(store, queue="pages").lease)
        assert store.get(claim.job.id).status is JobStatus.QUEUED

    def test_a_child_of_an_ended_parent_may_be_reopened(self, store: Store) -> None:
        claim, _ = parked(store, 1, on_child_failure=ChildFailure.FAIL)
        page = hold(store, queue="pages")
        store.fail(page.lease, error_code="E", final=True)
        store.requeue(page.job.id)
        store.complete(hold(store, queue="pages").lease)
        assert store.get(claim.job.id).status is JobStatus.FAILED
        with pytest.raises(InvalidTransition):
            store.cancel(claim.job.id)

    def test_a_child_of_a_cancelled_parent_may_be_reopened(self, store: Store) -> None:
        claim, _ = parked(store, 2)
        page = hold(store, queue="pages")
        parent = store.cancel(claim.job.id)
        store.requeue(page.job.id)
        reopened = store.get(parent.id)
        assert (reopened.status, reopened.finished_at) == (
            JobStatus.CANCELLED,
            parent.finished_at,
        )
        assert (reopened.children_open, reopened.children_failed) == (1, 1)
        assert store.cancel(parent.id) == reopened, "what ended is not ended again"
        store.complete(hold(store, queue="pages").lease)
        ended = store.get(parent.id)
        assert ended.status is JobStatus.CANCELLED
        assert (ended.children_open, ended.children_failed) == (0, 1)

    # -- children by hand ------------------------------------------------------

    def test_children_come_in_pages_in_their_order(
        self, store: Store, harness: Harness
    ) -> None:
        claim, made = parked(store, 5)
        parked(store, 2)
        first = made[4].job
        harness.edit(first.id, created_at=first.created_at - HOUR)
        line = [first.id, *(one.job.id for one in made[:4])]
        everything = store.list_children(claim.job.id)
        assert [job.id for job in everything] == line
        read: list[str] = []
        while page := store.list_children(
            claim.job.id, after=read[-1] if read else None, limit=2
        ):
            assert len(page) <= 2
            read += [job.id for job in page]
        assert read == line
        assert store.list_children(claim.job.id, after=NO_ID) == []

    def test_the_results_of_children_may_be_left_out(self, store: Store) -> None:
        claim, _ = parked(store, 1)
        store.complete(hold(store, queue="pages").lease, b"text")
        assert store.list_children(claim.job.id)[0].result == b"text"
        (child,) = store.list_children(claim.job.id, with_result=False)
        assert (child.result, child.status) == (None, JobStatus.COMPLETED)

    def test_children_of_no_job_are_not_found(self, store: Store) -> None:
        with pytest.raises(JobNotFound):
            store.list_children(NO_ID)
        assert store.list_children(create(store).id) == []
        for limit in (0, 10_001):
            with pytest.raises(InvalidInput):
                store.list_children(NO_ID, limit=limit)

    def test_repair_resumes_a_parent_whose_count_is_off(
        self, store: Store, harness: Harness
    ) -> None:
        claim, _ = parked(store, 1)
        store.complete(hold(store, queue="pages").lease)
        other, made = parked(store, 2)
        page = hold(store, queue="pages")
        store.complete(page.lease)
        harness.edit(claim.job.id, status="waiting", children_open=7)
        harness.edit(other.job.id, children_open=9, children_failed=9)
        assert store.repair_families() == 2
        assert store.repair_families() == 0
        assert store.get(claim.job.id).status is JobStatus.QUEUED
        parent = store.get(other.job.id)
        assert parent.status is JobStatus.WAITING
        assert (parent.children_open, parent.children_failed) == (1, 0)
        assert len(made) == 2

    def test_repair_fails_a_parent_and_tells_its_own(
        self, store: Store, harness: Harness
    ) -> None:
        grand, middle = self._three_levels(store, ChildFailure.FAIL)
        pages = store.claim(2, queue="pages")
        for page in pages:
            harness.edit(
                page.job.id,
                status="failed",
                error_code="HAND",
                heartbeat_at=None,
                finished_at=page.job.started_at,
            )
        assert store.repair_families() == 1
        assert store.get(middle.id).error_code == "CHILD_FAILED"
        assert store.get(grand.id).error_code == "CHILD_FAILED"
