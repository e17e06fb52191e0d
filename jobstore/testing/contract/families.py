"""
The contract of fan_out, list_children, repair_families, and of parents in general.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import (
    IdempotencyConflict,
    InvalidInput,
    InvalidParent,
    JobCancelled,
    JobNotFound,
    LeaseLost,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    AttemptOutcome,
    ChildFailure,
    Claim,
    Completed,
    Failed,
    NewJob,
)
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    Contract,
    create,
    hold,
    parked,
    run_out,
)
from jobstore.testing.harness import Harness

__all__ = ["FamiliesContract"]


def _complete(harness: Harness, claim: Claim) -> None:
    harness.store.complete(claim.lease, b"text")


def _fail(harness: Harness, claim: Claim) -> None:
    harness.store.fail(claim.lease, error_code="E", final=True)


def _cancel(harness: Harness, claim: Claim) -> None:
    harness.store.cancel(claim.job.id)


def _reclaim_to_death(harness: Harness, claim: Claim) -> None:
    harness.edit(claim.job.id, attempts=claim.job.max_attempts)
    run_out(harness, claim)


def _fail_by_hand(harness: Harness, claim: Claim) -> None:
    harness.store.update_status(
        claim.job.id,
        lambda job: replace(job, status=JobStatus.FAILED, error_code="HAND"),
    )


ROADS: list[tuple[Callable[[Harness, Claim], None], JobStatus]] = [
    (_complete, JobStatus.COMPLETED),
    (_fail, JobStatus.FAILED),
    (_cancel, JobStatus.CANCELLED),
    (_reclaim_to_death, JobStatus.FAILED),
    (_fail_by_hand, JobStatus.FAILED),
]


class FamiliesContract(Contract):
    """
    What fan-out, and every road by which children end, promise to the parent.
    """

    def test_fanning_out_parks_the_parent(self, store: Store) -> None:
        claim, children = parked(store, 3)
        parent = store.get(claim.job.id)
        assert parent.status is JobStatus.WAITING
        assert (parent.children_total, parent.children_open) == (3, 3)
        assert (parent.attempts, parent.fence) == (0, 1)
        assert parent.heartbeat_at is None
        assert parent.finished_at is None
        assert not parent.is_resumed
        (past,) = store.attempts(parent.id)
        assert (past.outcome, past.attempt) == (AttemptOutcome.WAITING, 1)
        assert [one.created for one in children] == [True] * 3
        assert [one.job.pages for one in children] == [(0,), (1,), (2,)]
        assert {one.job.parent_id for one in children} == {parent.id}
        assert store.list_children(parent.id) == [one.job for one in children]
        assert store.claim_next(queue=parent.queue) is None

    def test_fanning_out_gives_back_its_own_attempt_only(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store)
        store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        run_out(harness, hold(store))
        claim = hold(store)
        assert claim.job.attempts == 3
        store.fan_out(claim.lease, [replace(job.child(kind="p"), queue="pages")])
        parent = store.get(job.id)
        assert (parent.attempts, parent.fence, parent.error_code) == (2, 3, "E")
        assert [past.attempt for past in store.attempts(job.id)] == [1, 2, 3]
        store.complete(hold(store, queue="pages").lease)
        assert hold(store).job.attempts == 3

    @pytest.mark.parametrize(("road", "status"), ROADS)
    def test_the_last_child_resumes_the_parent_once(
        self,
        store: Store,
        harness: Harness,
        road: Callable[[Harness, Claim], None],
        status: JobStatus,
    ) -> None:
        claim, _ = parked(store, 2)
        first, second = store.claim(2, queue="pages")
        _complete(harness, first)
        parent = store.get(claim.job.id)
        assert (parent.status, parent.children_open) == (JobStatus.WAITING, 1)
        road(harness, second)
        assert store.get(second.job.id).status is status
        parent = store.get(claim.job.id)
        assert parent.status is JobStatus.QUEUED
        assert parent.is_resumed
        assert parent.children_failed == (status is not JobStatus.COMPLETED)
        again = hold(store, queue=parent.queue)
        assert (again.job.id, again.job.attempts, again.job.fence) == (parent.id, 1, 2)
        assert store.claim_next(queue=parent.queue) is None
        assert store.complete(again.lease) is JobStatus.COMPLETED

    @pytest.mark.parametrize(("road", "status"), ROADS)
    def test_a_parent_fails_with_its_children_if_it_said_so(
        self,
        store: Store,
        harness: Harness,
        road: Callable[[Harness, Claim], None],
        status: JobStatus,
    ) -> None:
        claim, _ = parked(store, 2, on_child_failure=ChildFailure.FAIL)
        first, second = store.claim(2, queue="pages")
        road(harness, first)
        assert store.get(claim.job.id).status is JobStatus.WAITING
        _complete(harness, second)
        parent = store.get(claim.job.id)
        assert parent.on_child_failure is ChildFailure.FAIL
        if status is JobStatus.COMPLETED:
            assert parent.status is JobStatus.QUEUED
            return
        assert parent.status is JobStatus.FAILED
        assert parent.error_code == "CHILD_FAILED"
        assert parent.finished_at is not None
        assert parent.children_failed == 1

    def test_a_child_that_is_tried_again_has_not_ended(self, store: Store) -> None:
        claim, _ = parked(store, 1)
        child = hold(store, queue="pages")
        store.fail(child.lease, error_code="E", retry_in=timedelta(0))
        store.release(hold(store, queue="pages").lease)
        assert store.get(claim.job.id).children_open == 1
        store.complete(hold(store, queue="pages").lease)
        assert store.get(claim.job.id).status is JobStatus.QUEUED

    def test_children_that_end_together_resume_the_parent_once(
        self, store: Store
    ) -> None:
        claim, _ = parked(store, 4)
        pages = store.claim(4, queue="pages")
        answers = store.set_results(
            [
                (page.lease, Completed() if number % 2 else Failed("E", final=True))
                for number, page in enumerate(pages)
            ]
        )
        assert all(isinstance(answer, JobStatus) for answer in answers)
        parent = store.get(claim.job.id)
        assert parent.status is JobStatus.QUEUED
        assert (parent.children_open, parent.children_failed) == (0, 2)

    def test_repair_makes_up_for_a_child_deleted_by_hand(
        self, store: Store, harness: Harness
    ) -> None:
        claim, _ = parked(store, 2)
        first, second = store.claim(2, queue="pages")
        harness.delete(first.job.id)
        _complete(harness, second)
        assert store.get(claim.job.id).status is JobStatus.WAITING
        assert store.repair_families() == 1
        parent = store.get(claim.job.id)
        assert (parent.status, parent.children_open) == (JobStatus.QUEUED, 0)
        assert hold(store, queue=parent.queue).job.fence == 2
        with pytest.raises(JobNotFound):
            _complete(harness, first)
        assert store.heartbeat([first.lease]).lost == {first.lease}

    def test_a_parent_that_died_half_way_does_not_double_its_children(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store, queue="parents")
        children = [
            replace(job.child(kind="page", idem_key=f"{job.id}/{n}"), queue="pages")
            for n in range(5)
        ]
        first = hold(store, queue="parents")
        store.create_many(children[:3])
        store.complete(hold(store, queue="pages").lease)
        run_out(harness, first)
        again = hold(store, queue="parents")
        made = store.fan_out(again.lease, children)
        assert [one.created for one in made] == [False] * 3 + [True] * 2
        parent = store.get(job.id)
        assert (parent.children_total, parent.children_open) == (5, 4)

    def test_a_replayed_end_of_a_child_counts_once(self, store: Store) -> None:
        claim, _ = parked(store, 2)
        page = hold(store, queue="pages")
        for _ in range(3):
            store.complete(page.lease, b"x")
        assert store.get(claim.job.id).children_open == 1
        page = hold(store, queue="pages")
        for _ in range(3):
            store.fail(page.lease, error_code="E", final=True)
        parent = store.get(claim.job.id)
        assert (parent.children_open, parent.children_failed) == (0, 1)

    def test_a_fan_out_into_nothing_is_queued_at_once(self, store: Store) -> None:
        claim, children = parked(store, 0)
        assert children == []
        parent = store.get(claim.job.id)
        assert (parent.status, parent.attempts) == (JobStatus.QUEUED, 0)
        assert not parent.is_resumed

    def test_children_may_be_created_before(self, store: Store) -> None:
        job = create(store, queue="parents")
        claim = hold(store, queue="parents")
        child = replace(job.child(kind="page"), queue="pages")
        store.create_many([child] * 3)
        store.complete(hold(store, queue="pages").lease)
        store.fan_out(claim.lease, [child])
        parent = store.get(job.id)
        assert parent.status is JobStatus.WAITING
        assert (parent.children_total, parent.children_open) == (4, 3)
        for page in store.claim(5, queue="pages"):
            store.complete(page.lease)
        assert store.get(job.id).status is JobStatus.QUEUED

    def test_a_resumed_parent_may_fan_out_again(self, store: Store) -> None:
        claim, _ = parked(store, 1)
        store.complete(hold(store, queue="pages").lease)
        again = hold(store, queue=claim.job.queue)
        store.fan_out(again.lease, [replace(again.job.child(kind="p"), queue="pages")])
        parent = store.get(claim.job.id)
        assert (parent.status, parent.children_total) == (JobStatus.WAITING, 2)
        store.complete(hold(store, queue="pages").lease)
        assert store.get(parent.id).status is JobStatus.QUEUED
        assert [past.fence for past in store.attempts(parent.id)] == [1, 2]

    # -- leases and keys -------------------------------------------------------

    def test_a_lost_lease_creates_no_child(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        old = hold(store)
        run_out(harness, old)
        with pytest.raises(LeaseLost):
            store.fan_out(old.lease, [old.job.child(kind="page")])
        store.cancel(hold(store).job.id)
        with pytest.raises(LeaseLost):
            store.fan_out(old.lease, [])
        assert len(store.list()) == 1

    def test_a_cancelled_or_deleted_parent_says_so(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        claim = hold(store)
        store.cancel(claim.job.id)
        with pytest.raises(JobCancelled):
            store.fan_out(claim.lease, [claim.job.child(kind="page")])
        harness.delete(claim.job.id)
        with pytest.raises(JobNotFound):
            store.fan_out(claim.lease, [claim.job.child(kind="page")])
        assert store.list() == []

    def test_a_repeat_finds_keyed_children(self, store: Store) -> None:
        job = create(store)
        claim = hold(store)
        children = [job.child(kind="p", idem_key=f"{job.id}/{n}") for n in range(3)]
        first = store.fan_out(claim.lease, children)
        again = store.fan_out(claim.lease, children)
        assert [one.job.id for one in again] == [one.job.id for one in first]
        assert [one.created for one in again] == [False] * 3
        assert store.get(job.id).children_total == 3

    def test_a_repeat_with_other_children_is_a_lost_lease(self, store: Store) -> None:
        job = create(store)
        claim = hold(store)
        one, other, new = (job.child(kind="p", idem_key=key) for key in "abc")
        store.create(NewJob(kind="p", idem_key="foreign", queue="x"))
        foreign = job.child(kind="p", idem_key="foreign")
        store.fan_out(claim.lease, [one, other])
        assert len(store.fan_out(claim.lease, [one])) == 1
        for children in ([one, new], [one, foreign], [one, job.child(kind="p")]):
            with pytest.raises(LeaseLost):
                store.fan_out(claim.lease, children)
        assert store.get(job.id).children_total == 2
        assert len(store.list()) == 4

    def test_a_repeat_without_keys_is_a_lost_lease(self, store: Store) -> None:
        claim, _ = parked(store, 2)
        with pytest.raises(LeaseLost):
            store.fan_out(claim.lease, [claim.job.child(kind="page")] * 2)
        assert len(store.list()) == 3

    def test_a_child_of_another_parent_is_refused(self, store: Store) -> None:
        other = create(store, queue="other")
        store.create(NewJob(kind="p", idem_key="k", parent_id=other.id, queue="x"))
        job = create(store)
        claim = hold(store)
        with pytest.raises(InvalidParent):
            store.fan_out(claim.lease, [other.child(kind="p")])
        with pytest.raises(InvalidParent):
            store.fan_out(claim.lease, [NewJob(kind="p", tenant="other")])
        with pytest.raises(IdempotencyConflict):
            store.fan_out(
                claim.lease, [job.child(kind="p"), job.child(kind="p", idem_key="k")]
            )
        assert store.get(job.id) == claim.job
        assert store.list_children(job.id) == []
        assert store.complete(claim.lease) is JobStatus.COMPLETED

    @pytest.mark.parametrize("policy", ["", "ignore", None, 5])
    def test_an_unknown_policy_is_refused(self, store: Store, policy: Any) -> None:
        create(store)
        claim = hold(store)
        with pytest.raises(InvalidInput):
            store.fan_out(claim.lease, [], on_child_failure=policy)
        assert store.get(claim.job.id) == claim.job
