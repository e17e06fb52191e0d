"""
The contract of verbs that meet: of several at once, what one may win and how often.

Each story is short and told a few times; a store needs longer ones of its own.
"""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import InvalidTransition, JobCancelled, JobstoreError, LeaseLost
from jobstore.lifecycle import JobStatus
from jobstore.model import Claim, Created, NewJob
from jobstore.store import Store
from jobstore.testing.contract.steps import Contract, create, hold, in_status, parked
from jobstore.testing.harness import Harness, Verb

__all__ = ["RacesContract"]

ROUNDS = 5
CALLERS = 4


def good(answers: list[Any]) -> list[Any]:
    """
    Return the answers, of which none may be an error.
    """
    assert not [one for one in answers if isinstance(one, JobstoreError)]
    return answers


class RacesContract(Contract):
    """
    What is promised to callers that come at the same moment.
    """

    def test_one_job_is_never_claimed_twice(
        self, store: Store, harness: Harness
    ) -> None:
        store.create_many([NewJob(kind="work")] * 60)
        taken: list[Claim] = []
        while store.list(status=JobStatus.QUEUED):
            answers = good(harness.at_once([lambda store: store.claim(4)] * CALLERS))
            taken += itertools.chain(*answers)
        assert len(taken) == len({claim.job.id for claim in taken}) == 60
        assert {claim.job.fence for claim in taken} == {1}

    def test_one_key_makes_one_job(self, store: Store, harness: Harness) -> None:
        for number in range(ROUNDS):
            new = [
                NewJob(kind="work", idem_key=f"k{number}", payload=b"%d" % caller)
                for caller in range(CALLERS)
            ]
            made: list[Created] = good(harness.at_once([_create(one) for one in new]))
            (job_id,) = {one.job.id for one in made}
            (winner,) = [n for n, one in enumerate(made) if one.created]
            assert store.payload(job_id).data == new[winner].payload
            assert [one.payload_matches for one in made] == [
                caller == winner for caller in range(CALLERS)
            ]
        assert len(store.list()) == ROUNDS

    def test_keys_in_opposite_order_make_each_one_job(
        self, store: Store, harness: Harness
    ) -> None:
        for number in range(ROUNDS):
            new = [NewJob(kind="work", idem_key=f"{number}/{key}") for key in range(8)]
            answers = good(
                harness.at_once(
                    [_create_many(new), _create_many(new[::-1])] * (CALLERS // 2)
                )
            )
            assert sum(one.created for made in answers for one in made) == len(new)
        assert len(store.list()) == 8 * ROUNDS

    def test_the_last_children_resume_their_parent_once(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(ROUNDS):
            claim, _ = parked(store, CALLERS)
            pages = store.claim(CALLERS, queue="pages")
            good(harness.at_once([_complete(page) for page in pages]))
            parent = store.get(claim.job.id)
            assert (parent.status, parent.children_open) == (JobStatus.QUEUED, 0)
            assert hold(store, queue=parent.queue).job.fence == 2
            assert store.claim_next(queue=parent.queue) is None

    def test_of_finish_and_cancel_one_wins(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(ROUNDS):
            job = create(store)
            claim = hold(store)
            done, cancelled = harness.at_once([_complete(claim), _cancel(job.id)])
            status = store.get(job.id).status
            if status is JobStatus.COMPLETED:
                assert done is JobStatus.COMPLETED
                assert isinstance(cancelled, InvalidTransition)
            else:
                assert status is JobStatus.CANCELLED
                assert isinstance(done, JobCancelled)
                assert cancelled.status is JobStatus.CANCELLED

    def test_of_two_outcomes_one_wins(self, store: Store, harness: Harness) -> None:
        for _ in range(ROUNDS):
            job = create(store)
            claim = hold(store)
            results = [b"one", b"other"]
            answers = harness.at_once([_complete(claim, one) for one in results])
            (winner,) = [
                n for n, one in enumerate(answers) if one is JobStatus.COMPLETED
            ]
            assert isinstance(answers[1 - winner], LeaseLost)
            assert store.get(job.id).result == results[winner]

    def test_one_outcome_twice_at_once_succeeds_twice(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(ROUNDS):
            claim, _ = parked(store, 2)
            page = hold(store, queue="pages")
            good(harness.at_once([_complete(page)] * CALLERS))
            assert store.get(claim.job.id).children_open == 1
            store.cancel(claim.job.id)

    def test_a_family_that_ends_while_it_is_cancelled_adds_up(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(ROUNDS):
            claim, _ = parked(store, CALLERS)
            pages = store.claim(CALLERS, queue="pages")
            *_, cancelled = harness.at_once(
                [*(_complete(page) for page in pages), _cancel(claim.job.id)]
            )
            parent = store.get(claim.job.id)
            children = store.list_children(parent.id)
            assert all(child.finished_at for child in children)
            assert parent.children_open == 0
            assert parent.children_failed == sum(
                child.status is JobStatus.CANCELLED for child in children
            )
            assert not isinstance(cancelled, JobstoreError)
            assert parent.status is JobStatus.CANCELLED

    def test_of_two_requeues_one_reopens_the_job(
        self, store: Store, harness: Harness
    ) -> None:
        for number in range(ROUNDS):
            claim, _ = parked(store, 1)
            page = hold(store, queue="pages")
            store.fail(page.lease, error_code="E", final=True)
            answers = harness.at_once([_requeue(page.job.id)] * 2)
            assert len([a for a in answers if isinstance(a, InvalidTransition)]) == 1
            assert store.get(claim.job.id).children_open == 1, number
            store.cancel(page.job.id)

    def test_changes_by_hand_do_not_overwrite_each_other(
        self, store: Store, harness: Harness
    ) -> None:
        job = in_status(store, JobStatus.QUEUED, max_attempts=1)
        for _ in range(ROUNDS):
            good(harness.at_once([_count_up(job.id)] * CALLERS))
        assert store.get(job.id).max_attempts == 1 + ROUNDS * CALLERS

    @pytest.mark.parametrize("limit", [1, 1000])
    def test_sweeps_at_once_reclaim_each_job_once(
        self, store: Store, harness: Harness, limit: int
    ) -> None:
        store.create_many([NewJob(kind="work")] * 12)
        store.claim(12)
        sweeps = good(
            harness.at_once(
                [lambda store: store.reclaim_stale(timedelta(0), limit=limit)] * CALLERS
            )
        )
        assert sum(one.requeued for one in sweeps) == 12
        assert all(len(store.attempts(job.id)) == 1 for job in store.list())


def _create(new: NewJob) -> Verb:
    return lambda store: store.create(new)


def _create_many(new: list[NewJob]) -> Verb:
    return lambda store: store.create_many(new)


def _complete(claim: Claim, result: bytes = b"r") -> Verb:
    return lambda store: store.complete(claim.lease, result)


def _cancel(job_id: str) -> Verb:
    return lambda store: store.cancel(job_id)


def _requeue(job_id: str) -> Verb:
    return lambda store: store.requeue(job_id)


def _count_up(job_id: str) -> Verb:
    return lambda store: store.update_status(
        job_id, lambda job: replace(job, max_attempts=job.max_attempts + 1)
    )
