"""
The contract of claim, claim_next, heartbeat and promote_due.
"""

from datetime import UTC, timedelta
from typing import Any

import pytest

from jobstore.errors import InvalidInput
from jobstore.ids import process_name
from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import Heartbeat, Lease, NewJob
from jobstore.store import MAX_BATCH, Store
from jobstore.testing.contract.steps import (
    HOUR,
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
    later,
    run_out,
)
from jobstore.testing.harness import Harness

__all__ = ["ClaimContract"]


class ClaimContract(Contract):
    """
    What claim, claim_next, heartbeat and promote_due promise.
    """

    def test_an_empty_store_has_nothing_to_claim(self, store: Store) -> None:
        assert store.claim_next() is None
        assert store.claim(10) == []

    def test_a_claim_marks_the_job(self, store: Store) -> None:
        before = create(store, payload=b"x")
        job = hold(store, worker="w1").job
        assert store.get(job.id) == job
        assert job.id == before.id
        assert job.status is JobStatus.PROCESSING
        assert (job.attempts, job.fence, job.worker) == (1, 1, "w1")
        assert job.started_at == job.heartbeat_at == job.updated_at
        assert job.started_at is not None
        assert job.started_at.tzinfo is UTC
        assert job.started_at >= job.created_at
        assert job.created_at == before.created_at
        assert job.finished_at is None
        assert store.claim_next() is None

    def test_a_claim_without_a_name_bears_that_of_the_process(
        self, store: Store
    ) -> None:
        create(store)
        assert hold(store).job.worker == process_name()

    def test_better_classes_go_first_then_older_jobs(self, store: Store) -> None:
        wanted: dict[JobClass, list[str]] = {job_class: [] for job_class in JobClass}
        for job_class in [*JobClass, *reversed(JobClass), *JobClass]:
            wanted[job_class].append(create(store, job_class=job_class).id)
        line = [job_id for job_class in JobClass for job_id in wanted[job_class]]
        assert [hold(store).job.id for _ in range(4)] == line[:4]
        assert [claim.job.id for claim in store.claim(10)] == line[4:]

    def test_age_counts_before_the_id(self, store: Store, harness: Harness) -> None:
        first, second = create(store), create(store)
        harness.edit(second.id, created_at=first.created_at - HOUR)
        assert [claim.job.id for claim in store.claim(2)] == [second.id, first.id]

    def test_equal_ages_go_by_id(self, store: Store) -> None:
        made = store.create_many([NewJob(kind="work")] * 20)
        assert len({one.job.created_at for one in made}) == 1
        taken = [claim.job.id for claim in store.claim(20)]
        assert taken == sorted(one.job.id for one in made)

    def test_a_class_reserves_the_claim(self, store: Store) -> None:
        create(store, job_class=JobClass.INTERACTIVE)
        batch = create(store, job_class=JobClass.BATCH)
        assert store.claim(5, job_class=JobClass.SYSTEM) == []
        assert hold(store, job_class=JobClass.BATCH).job.id == batch.id
        assert store.claim_next(job_class=JobClass.BATCH) is None
        assert store.claim_next() is not None

    def test_a_claim_keeps_to_its_queue(self, store: Store) -> None:
        create(store, queue="a", job_class=JobClass.INTERACTIVE)
        other = create(store, queue="b")
        assert store.claim(5) == []
        assert [claim.job.id for claim in store.claim(5, queue="b")] == [other.id]

    @pytest.mark.parametrize("limit", [1, 3, 10])
    def test_a_claim_never_takes_more_than_its_limit(
        self, store: Store, limit: int
    ) -> None:
        for job_class in JobClass:
            store.create_many([NewJob(kind="work", job_class=job_class)] * 5)
        assert len(store.claim(limit)) == limit
        assert len(store.list(status=JobStatus.PROCESSING)) == limit

    @pytest.mark.parametrize(
        "arguments",
        [
            {"limit": 0},
            {"limit": -1},
            {"limit": MAX_BATCH + 1},
            {"limit": True},
            {"limit": 1.0},
            {"limit": "1"},
            {"limit": 1, "queue": ""},
            {"limit": 1, "queue": "x" * 129},
            {"limit": 1, "queue": "a\x00"},
            {"limit": 1, "queue": "\ud800"},
            {"limit": 1, "job_class": "urgent"},
            {"limit": 1, "worker": ""},
            {"limit": 1, "worker": "x" * 256},
            {"limit": 1, "lease": timedelta(milliseconds=999)},
            {"limit": 1, "lease": timedelta(days=3651)},
            {"limit": 1, "lease": 30},
        ],
        ids=str,
    )
    def test_a_claim_that_does_not_fit_is_refused(
        self, store: Store, arguments: dict[str, Any]
    ) -> None:
        job = create(store)
        with pytest.raises(InvalidInput):
            store.claim(**arguments)
        assert store.get(job.id) == job

    def test_a_claim_counts_attempts_and_fences(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        for number in (1, 2, 3):
            claim = hold(store)
            assert (claim.job.attempts, claim.job.fence) == (number, number)
            run_out(harness, claim)

    def test_a_job_without_attempts_left_is_not_claimed(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(20):
            job = create(store, max_attempts=2, job_class=JobClass.INTERACTIVE)
            harness.edit(job.id, attempts=2)
        assert store.claim(5) == []
        behind = [create(store).id for _ in range(2)]
        assert [claim.job.id for claim in store.claim(5)] == behind

    def test_a_reclaimed_or_failed_job_keeps_class_and_place(
        self, store: Store, harness: Harness
    ) -> None:
        urgent = [create(store, job_class=JobClass.INTERACTIVE) for _ in range(2)]
        create(store)
        run_out(harness, hold(store))
        second = store.claim(2)[1]
        store.fail(second.lease, error_code="E", retry_in=timedelta(0))
        create(store, job_class=JobClass.INTERACTIVE)
        assert hold(store).job.id == urgent[1].id

    @pytest.mark.parametrize("status", sorted(set(JobStatus) - {JobStatus.QUEUED}))
    def test_only_queued_jobs_are_claimed(
        self, store: Store, status: JobStatus
    ) -> None:
        job = in_status(store, status)
        assert store.claim(10, queue=job.queue) == []

    # -- due -------------------------------------------------------------------

    def test_a_due_job_takes_its_place_in_line(
        self, store: Store, harness: Harness
    ) -> None:
        due = create(store, available_at=later())
        queued = create(store)
        harness.age(due.id, 2 * HOUR)
        assert [claim.job.id for claim in store.claim(3)] == [due.id, queued.id]

    def test_due_jobs_are_queued_oldest_first(
        self, store: Store, harness: Harness
    ) -> None:
        jobs = [create(store, available_at=later(n * HOUR)) for n in (2, 1, 3)]
        assert store.promote_due() == 0
        for job in jobs[:2]:
            harness.age(job.id, 3 * HOUR)
        assert store.promote_due(limit=1) == 1
        assert [store.get(job.id).status for job in jobs] == [
            JobStatus.SCHEDULED,
            JobStatus.QUEUED,
            JobStatus.SCHEDULED,
        ]
        assert store.promote_due() == 1
        assert store.promote_due() == 0
        assert store.get(jobs[0].id).updated_at > jobs[0].updated_at

    @pytest.mark.parametrize("limit", [0, MAX_BATCH + 1, None])
    def test_promote_due_checks_its_limit(self, store: Store, limit: Any) -> None:
        with pytest.raises(InvalidInput):
            store.promote_due(limit=limit)

    # -- heartbeat -------------------------------------------------------------

    def test_a_heartbeat_refreshes_what_is_held(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        create(store)
        claims = store.claim(2)
        for claim in claims:
            harness.age(claim.job.id, HOUR)
        leases = frozenset(claim.lease for claim in claims)
        answer = store.heartbeat(list(leases))
        assert answer == Heartbeat(leases, frozenset(), frozenset())
        for claim in claims:
            job = store.get(claim.job.id)
            assert job.heartbeat_at is not None
            assert claim.job.heartbeat_at is not None
            assert job.heartbeat_at > claim.job.heartbeat_at
            assert job.heartbeat_at == job.updated_at
            assert job.started_at == claim.job.started_at
            assert (job.attempts, job.fence) == (1, 1)
        assert store.reclaim_stale(timedelta(minutes=1)).requeued == 0

    def test_a_heartbeat_tells_held_lost_and_cancelled_apart(
        self, store: Store, harness: Harness
    ) -> None:
        held = hold(store, queue=create(store, queue="a").queue).lease
        ended = hold(store, queue=create(store, queue="b").queue).lease
        store.complete(ended)
        create(store, queue="c")
        taken_away = hold(store, queue="c")
        run_out(harness, taken_away)
        new_holder = hold(store, queue="c").lease
        cancelled = hold(store, queue=create(store, queue="d").queue).lease
        store.cancel(cancelled.job_id)
        unknown = Lease(NO_ID, 1)
        future = Lease(held.job_id, held.fence + 1)
        before = store.get(ended.job_id)
        answer = store.heartbeat(
            [held, ended, taken_away.lease, new_holder, cancelled, unknown, future]
        )
        assert answer.held == {held, new_holder}
        assert answer.lost == {ended, taken_away.lease, unknown, future}
        assert answer.cancelled == {cancelled}
        assert store.get(ended.job_id) == before

    def test_a_stale_lease_does_not_refresh_its_successor(
        self, store: Store, harness: Harness
    ) -> None:
        create(store)
        old = hold(store)
        run_out(harness, old)
        new = hold(store)
        assert store.heartbeat([old.lease]).lost == {old.lease}
        assert store.get(new.job.id) == new.job

    def test_a_heartbeat_of_nothing_is_fine(self, store: Store) -> None:
        answer = store.heartbeat([])
        assert answer == Heartbeat(frozenset(), frozenset(), frozenset())

    def test_a_lease_named_twice_is_answered_once(self, store: Store) -> None:
        create(store)
        lease = hold(store).lease
        assert store.heartbeat([lease, lease]).held == {lease}

    @pytest.mark.parametrize("bad", [None, "x", [None], [("id", 1)], 5])
    def test_a_heartbeat_takes_leases_only(self, store: Store, bad: Any) -> None:
        with pytest.raises(InvalidInput):
            store.heartbeat(bad)
