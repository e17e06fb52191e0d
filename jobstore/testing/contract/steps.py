"""
The steps that the tests of the contract are told in.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobstore.lifecycle import JobStatus
from jobstore.model import ChildFailure, Claim, Created, Job, NewJob
from jobstore.store import Store
from jobstore.testing.harness import Harness

__all__ = [
    "HOUR",
    "NO_ID",
    "Contract",
    "create",
    "hold",
    "in_status",
    "later",
    "parked",
    "run_out",
]

HOUR = timedelta(hours=1)

NO_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
"""A well-formed id that no job has."""


class Contract:
    """
    Base of the suite's parts: the fixtures.
    """

    @pytest.fixture
    def harness(self) -> Harness:
        """
        Give a fresh harness around an empty store. To be overridden.
        """
        raise NotImplementedError

    @pytest.fixture
    def store(self, harness: Harness) -> Store:
        return harness.store


def later(by: timedelta = HOUR) -> datetime:
    return datetime.now(UTC) + by


def create(store: Store, **fields: Any) -> Job:
    """
    Create a job and return it.
    """
    return store.create(NewJob(**{"kind": "work", **fields})).job


def hold(store: Store, **arguments: Any) -> Claim:
    """
    Claim one job; there must be one.
    """
    claim = store.claim_next(**arguments)
    assert claim is not None, "there is a job to claim"
    return claim


def parked(
    store: Store,
    children: Sequence[NewJob] | int = 2,
    *,
    on_child_failure: ChildFailure = ChildFailure.RESUME,
    **fields: Any,
) -> tuple[Claim, list[Created]]:
    """
    Create a job of its own queue, and fan it out; children go to queue "pages".
    """
    job = create(store, **{"queue": f"parents-{len(store.list())}", **fields})
    claim = hold(store, queue=job.queue)
    assert claim.job.id == job.id
    if isinstance(children, int):
        children = [
            replace(job.child(kind="page", pages=[page]), queue="pages")
            for page in range(children)
        ]
    return claim, store.fan_out(
        claim.lease, children, on_child_failure=on_child_failure
    )


def in_status(store: Store, status: JobStatus, **fields: Any) -> Job:
    """
    Bring a new job, in a queue of its own, into *status* by the verbs.
    """
    fields = {"queue": f"only-{status}", **fields}
    if status is JobStatus.SCHEDULED:
        return create(store, **{"available_at": later(), **fields})
    job = create(store, **fields)
    if status is JobStatus.QUEUED:
        return job
    if status is JobStatus.CANCELLED:
        return store.cancel(job.id)
    claim = hold(store, queue=job.queue)
    if status is JobStatus.WAITING:
        store.fan_out(claim.lease, [replace(job.child(kind="page"), queue="pages")])
    elif status is JobStatus.COMPLETED:
        store.complete(claim.lease, b"done")
    elif status is JobStatus.FAILED:
        store.fail(claim.lease, error_code="BROKEN", final=True)
    return store.get(job.id)


def run_out(harness: Harness, claim: Claim) -> None:
    """
    Let the lease of *claim* expire and be reclaimed.
    """
    harness.age(claim.job.id, HOUR)
    harness.store.reclaim_stale(timedelta(minutes=1))
