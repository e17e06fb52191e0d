"""
The contract of instants: no road leaves one out.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from jobstore.lifecycle import JobStatus
from jobstore.model import ChildFailure, Claim, NewJob
from jobstore.store import Store
from jobstore.testing.contract.steps import (
    HOUR,
    Contract,
    create,
    hold,
    later,
    parked,
    run_out,
)
from jobstore.testing.harness import Harness

__all__ = ["InstantsContract"]

NOW = timedelta(0)


def _fail_for_good(harness: Harness) -> str:
    create(harness.store)
    claim = hold(harness.store)
    harness.store.fail(claim.lease, error_code="E", final=True)
    return claim.job.id


def _fail_last(harness: Harness) -> str:
    create(harness.store, max_attempts=1)
    claim = hold(harness.store)
    harness.store.fail(claim.lease, error_code="E")
    return claim.job.id


def _go_silent(harness: Harness) -> str:
    create(harness.store, max_attempts=1)
    claim = hold(harness.store)
    run_out(harness, claim)
    return claim.job.id


def _be_queued_in_vain(harness: Harness) -> str:
    job = create(harness.store, max_attempts=1)
    harness.edit(job.id, attempts=1)
    harness.store.reclaim_stale(HOUR)
    return job.id


def _lose_a_child(harness: Harness) -> str:
    claim, _ = parked(harness.store, 1, on_child_failure=ChildFailure.FAIL)
    page = hold(harness.store, queue="pages")
    harness.store.fail(page.lease, error_code="E", final=True)
    return claim.job.id


def _fail_by_hand(harness: Harness) -> str:
    create(harness.store)
    claim = hold(harness.store)
    harness.store.update_status(
        claim.job.id,
        lambda job: replace(job, status=JobStatus.FAILED, error_code="HAND"),
    )
    return claim.job.id


CHANGES: dict[str, Callable[[Store, Claim], object]] = {
    "heartbeat": lambda store, claim: store.heartbeat([claim.lease]),
    "complete": lambda store, claim: store.complete(claim.lease),
    "fail": lambda store, claim: store.fail(claim.lease, error_code="E"),
    "fail_at_once": lambda store, claim: store.fail(
        claim.lease, error_code="E", retry_in=NOW
    ),
    "release": lambda store, claim: store.release(claim.lease),
    "snooze": lambda store, claim: store.snooze(claim.lease, HOUR),
    "fan_out": lambda store, claim: store.fan_out(
        claim.lease, [NewJob(kind="page", queue="pages")]
    ),
    "create": lambda store, claim: store.create(claim.job.child(kind="page")),
    "reclaim_stale": lambda store, _: store.reclaim_stale(NOW),
    "update_status": lambda store, claim: store.update_status(
        claim.job.id, lambda job: job
    ),
    "cancel": lambda store, claim: store.cancel(claim.job.id),
}


class InstantsContract(Contract):
    """
    What every road promises of finished_at, heartbeat_at and updated_at.
    """

    @pytest.mark.parametrize(
        "road",
        [
            _fail_for_good,
            _fail_last,
            _go_silent,
            _be_queued_in_vain,
            _lose_a_child,
            _fail_by_hand,
        ],
    )
    def test_every_road_to_failed_leaves_the_same_marks(
        self, harness: Harness, road: Callable[[Harness], str]
    ) -> None:
        store = harness.store
        job = store.get(road(harness))
        assert job.status is JobStatus.FAILED
        assert job.error_code
        assert job.error_message is not None or road is _fail_by_hand
        assert job.finished_at is not None
        assert job.finished_at == job.updated_at
        assert (job.heartbeat_at, job.result) == (None, None)
        assert store.claim(5, queue=job.queue) == []
        harness.age(job.id, HOUR)
        for child in store.list_children(job.id):
            harness.age(child.id, HOUR)
        assert store.prune(timedelta(minutes=1)) >= 1, "it can be pruned"

    @pytest.mark.parametrize("name", CHANGES)
    def test_every_change_moves_updated_at(self, store: Store, name: str) -> None:
        create(store)
        claim = hold(store)
        assert claim.job.updated_at > claim.job.created_at
        CHANGES[name](store, claim)
        job = store.get(claim.job.id)
        assert job.updated_at > claim.job.updated_at
        assert job.created_at == claim.job.created_at
        assert job.started_at == claim.job.started_at
        assert (job.heartbeat_at is None) == (job.status != JobStatus.PROCESSING)
        assert (job.finished_at is None) == (
            job.status not in (JobStatus.COMPLETED, JobStatus.CANCELLED)
        )

    def test_a_childs_end_moves_its_parents_updated_at(self, store: Store) -> None:
        claim, _ = parked(store, 2)
        for _ in range(2):
            before = store.get(claim.job.id)
            store.complete(hold(store, queue="pages").lease)
            assert store.get(claim.job.id).updated_at > before.updated_at

    def test_an_instant_in_any_zone_comes_back_in_utc(self, store: Store) -> None:
        zone = timezone(timedelta(hours=-7, minutes=-30))
        at = later(100 * HOUR).astimezone(zone)
        for job in (
            create(store, available_at=at),
            store.update_status(
                create(store).id,
                lambda job: replace(job, status=JobStatus.SCHEDULED, available_at=at),
            ),
        ):
            for one in (job, store.get(job.id)):
                assert one.available_at == at
                assert one.available_at.utcoffset() == NOW

    @pytest.mark.parametrize("year", [1, 1900, 9999])
    def test_any_instant_can_be_kept(self, store: Store, year: int) -> None:
        at = datetime(year, 12, 30, 23, 59, 59, 999999, tzinfo=later().tzinfo)
        job = create(store, available_at=at)
        assert store.get(job.id).available_at == at
        assert job.status is (JobStatus.SCHEDULED if year == 9999 else JobStatus.QUEUED)
