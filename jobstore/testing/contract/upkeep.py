"""
The contract of reclaim_stale and prune.
"""

from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import InvalidInput, JobNotFound, JobPruned, LeaseLost
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.model import AttemptOutcome, ChildFailure, NewJob, Reclaimed
from jobstore.store import MAX_BATCH, Store
from jobstore.testing.contract.steps import (
    HOUR,
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
    parked,
)
from jobstore.testing.harness import Harness

__all__ = ["UpkeepContract"]

MINUTE = timedelta(minutes=1)
NOTHING = Reclaimed(requeued=0, failed=0)


class UpkeepContract(Contract):
    """
    What reclaim_stale and prune promise.
    """

    def test_an_expired_lease_is_ended(self, store: Store, harness: Harness) -> None:
        first = create(store)
        create(store)
        claim = hold(store, worker="w")
        assert store.reclaim_stale(MINUTE) == NOTHING
        harness.age(first.id, HOUR)
        assert store.reclaim_stale(MINUTE) == Reclaimed(requeued=1, failed=0)
        assert store.reclaim_stale(MINUTE) == NOTHING
        job = store.get(first.id)
        assert job.status is JobStatus.QUEUED
        assert (job.attempts, job.fence, job.worker) == (1, 1, "w")
        assert job.heartbeat_at is None
        (past,) = store.attempts(job.id)
        assert past.outcome is AttemptOutcome.LEASE_EXPIRED
        assert (past.attempt, past.worker, past.error_code) == (1, "w", None)
        with pytest.raises(LeaseLost):
            store.complete(claim.lease)
        again = hold(store)
        assert (again.job.id, again.job.attempts, again.job.fence) == (first.id, 2, 2)

    def test_the_last_attempt_gone_silent_ends_the_job(
        self, store: Store, harness: Harness
    ) -> None:
        create(store, max_attempts=2)
        for left in (1, 0):
            claim = hold(store)
            harness.age(claim.job.id, HOUR)
            assert store.reclaim_stale(MINUTE) == Reclaimed(left, 1 - left)
        job = store.get(claim.job.id)
        assert job.status is JobStatus.FAILED
        assert job.error_code == "ATTEMPTS_EXHAUSTED"
        assert job.error_message
        assert (job.attempts, job.fence) == (2, 2)
        assert job.finished_at == job.updated_at
        assert [past.error_code for past in store.attempts(job.id)] == [
            None,
            "ATTEMPTS_EXHAUSTED",
        ]

    def test_a_reclaimed_job_keeps_the_error_of_its_last_failure(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store)
        store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        hold(store)
        harness.age(job.id, HOUR)
        store.reclaim_stale(MINUTE)
        assert store.get(job.id).error_code == "E"
        assert store.attempts(job.id)[1].error_code is None

    def test_no_visibility_timeout_reclaims_all(self, store: Store) -> None:
        store.create_many([NewJob(kind="work")] * 3)
        store.claim(3)
        assert store.reclaim_stale(timedelta(0)).requeued == 3

    def test_a_granted_lease_is_never_cut_short(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        claim = hold(store, lease=2 * HOUR)
        harness.age(claim.job.id, HOUR)
        assert store.reclaim_stale(timedelta(0)) == NOTHING
        store.heartbeat([claim.lease])
        harness.age(claim.job.id, HOUR)
        assert store.reclaim_stale(MINUTE) == NOTHING
        harness.age(claim.job.id, HOUR)
        assert store.reclaim_stale(3 * HOUR) == NOTHING
        assert store.reclaim_stale(MINUTE).requeued == 1

    def test_granted_leases_do_not_hide_an_expired_one(
        self, store: Store, harness: Harness
    ) -> None:
        store.create_many([NewJob(kind="work")] * 5)
        long = store.claim(4, lease=24 * HOUR)
        short = hold(store)
        for claim in long:
            harness.age(claim.job.id, 2 * HOUR)
        harness.age(short.job.id, HOUR)
        assert store.reclaim_stale(MINUTE, limit=1) == Reclaimed(1, 0)
        assert store.get(short.job.id).status is JobStatus.QUEUED
        assert all(
            store.get(claim.job.id).status is JobStatus.PROCESSING for claim in long
        )

    def test_a_granted_lease_ends_with_its_claim(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        store.release(hold(store, lease=2 * HOUR).lease)
        claim = hold(store)
        harness.age(claim.job.id, HOUR)
        assert store.reclaim_stale(MINUTE).requeued == 1

    def test_a_reclaim_works_through_all_batches(
        self, store: Store, harness: Harness
    ) -> None:
        store.create_many([NewJob(kind="work", max_attempts=n) for n in (1, 2) * 5])
        for claim in store.claim(10):
            harness.age(claim.job.id, HOUR)
        assert store.reclaim_stale(MINUTE, limit=3) == Reclaimed(5, 5)

    def test_a_queued_job_without_attempts_left_ends(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store, max_attempts=2)
        harness.edit(job.id, attempts=2)
        assert store.reclaim_stale(MINUTE) == Reclaimed(requeued=0, failed=1)
        after = store.get(job.id)
        assert (after.status, after.error_code) == (
            JobStatus.FAILED,
            "ATTEMPTS_EXHAUSTED",
        )
        assert store.requeue(job.id).attempts == 0

    @pytest.mark.parametrize("bad", [timedelta(-1), timedelta(days=3651), 5, None])
    def test_reclaim_checks_its_arguments(self, store: Store, bad: Any) -> None:
        with pytest.raises(InvalidInput):
            store.reclaim_stale(bad)
        with pytest.raises(InvalidInput):
            store.reclaim_stale(MINUTE, limit=MAX_BATCH + 1)

    # -- prune -----------------------------------------------------------------

    @pytest.mark.parametrize("status", JobStatus, ids=str)
    def test_prune_takes_what_ended_long_ago(
        self, store: Store, harness: Harness, status: JobStatus
    ) -> None:
        job = in_status(store, status, idem_key="k")
        assert store.prune(MINUTE) == 0
        harness.age(job.id, HOUR)
        assert store.prune(2 * HOUR) == 0
        assert store.prune(MINUTE) == (status in TERMINAL)
        if status not in TERMINAL:
            assert store.get(job.id).status is status
            return
        for read in (store.get, store.payload, store.attempts, store.list_children):
            with pytest.raises(JobNotFound):
                read(job.id)
        assert store.list() == []
        again, created = store.create(NewJob(kind="work", idem_key="k"))
        assert created
        assert again.id != job.id

    def test_a_key_may_outlive_its_job(self, store: Store, harness: Harness) -> None:
        job = in_status(store, JobStatus.COMPLETED, idem_key="k")
        harness.age(job.id, HOUR)
        assert store.prune(MINUTE, keep_keys_for=HOUR) == 1
        for verb in (
            store.create,
            lambda new: store.create_many([new, NewJob(kind="other")]),
        ):
            with pytest.raises(JobPruned) as pruned:
                verb(NewJob(kind="work", idem_key="k"))
            assert pruned.value.job_id == job.id
        assert store.list() == []
        assert store.create(NewJob(kind="work", idem_key="k", tenant="b")).created
        with pytest.raises(InvalidInput, match="keep_keys_for"):
            store.prune(MINUTE, keep_keys_for=-MINUTE)

    def test_prune_keeps_to_the_statuses_it_is_given(
        self, store: Store, harness: Harness
    ) -> None:
        jobs = [in_status(store, status) for status in sorted(TERMINAL)]
        for job in jobs:
            harness.age(job.id, HOUR)
        assert store.prune(MINUTE, status=[JobStatus.COMPLETED]) == 1
        assert {job.status for job in store.list()} == {"failed", "cancelled"}

    def test_only_whole_families_go(self, store: Store, harness: Harness) -> None:
        claim, children = parked(store, 2)
        family = [claim.job.id, *(one.job.id for one in children)]
        for page in store.claim(2, queue="pages"):
            store.complete(page.lease)
        harness.age(family[1], HOUR)
        assert store.prune(MINUTE) == 0
        store.complete(hold(store, queue=claim.job.queue).lease)
        harness.age(family[0], HOUR)
        assert store.prune(MINUTE) == 0
        harness.age(family[2], HOUR)
        assert store.prune(MINUTE, status=[JobStatus.FAILED]) == 0
        assert store.prune(MINUTE) == 3
        assert store.list() == []

    def test_a_family_of_three_levels_goes_as_one(
        self, store: Store, harness: Harness
    ) -> None:
        head, ((middle, _),) = parked(store, [NewJob(kind="part", queue="parts")])
        part = hold(store, queue="parts")
        store.fan_out(part.lease, [NewJob(kind="page", queue="pages")])
        for queue in ("pages", "parts", head.job.queue):
            store.complete(hold(store, queue=queue).lease)
        (page,) = store.list_children(middle.id)
        for job_id in (head.job.id, middle.id):
            harness.age(job_id, HOUR)
        assert store.prune(MINUTE) == 0
        harness.age(page.id, HOUR)
        assert store.prune(MINUTE) == 3
        assert store.list() == []

    def test_a_reopened_child_keeps_its_family(
        self, store: Store, harness: Harness
    ) -> None:
        claim, _ = parked(store, 1, on_child_failure=ChildFailure.FAIL)
        page = hold(store, queue="pages")
        store.fail(page.lease, error_code="E", final=True)
        store.requeue(page.job.id)
        for job_id in (claim.job.id, page.job.id):
            harness.age(job_id, HOUR)
        assert store.prune(MINUTE) == 0
        assert len(store.list()) == 2

    def test_a_family_that_stays_does_not_hide_others(
        self, store: Store, harness: Harness
    ) -> None:
        claim, _ = parked(store, 1, queue="parents")
        store.complete(hold(store, queue="pages").lease)
        store.complete(hold(store, queue="parents").lease)
        harness.age(claim.job.id, 2 * HOUR)
        for _ in range(5):
            job = create(store, queue="alone")
            store.cancel(job.id)
            harness.age(job.id, HOUR)
        assert store.prune(MINUTE, limit=1) == 5
        assert len(store.list()) == 2

    @pytest.mark.parametrize(
        "arguments",
        [
            {"older_than": timedelta(0)},
            {"older_than": timedelta(milliseconds=999)},
            {"older_than": -HOUR},
            {"older_than": 5},
            {"older_than": "30"},
            {"older_than": None},
            {"older_than": MINUTE, "keep_keys_for": None},
            {"older_than": MINUTE, "status": JobStatus.COMPLETED},
            {"older_than": MINUTE, "status": [JobStatus.QUEUED]},
            {"older_than": MINUTE, "status": []},
            {"older_than": MINUTE, "status": None},
            {"older_than": MINUTE, "status": 5},
            {"older_than": MINUTE, "status": ["unknown"]},
            {"older_than": MINUTE, "limit": 0},
        ],
        ids=str,
    )
    def test_prune_checks_its_arguments(
        self, store: Store, harness: Harness, arguments: dict[str, Any]
    ) -> None:
        job = in_status(store, JobStatus.COMPLETED)
        harness.age(job.id, HOUR)
        with pytest.raises(InvalidInput):
            store.prune(**arguments)
        assert len(store.list()) == 1
        with pytest.raises(JobNotFound):
            store.get(NO_ID)
