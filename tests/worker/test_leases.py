"""
Heartbeats, and what happens when a lease is gone.
"""

import asyncio
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import JobCancelled, LeaseLost, StoreUnavailable
from jobstore.lifecycle import JobStatus
from jobstore.worker import AsyncContext, Context
from tests.worker.tools import PATIENCE_SECONDS, Harness, until

QUICK = {
    "visibility_timeout": timedelta(seconds=2),
    "heartbeat_every": timedelta(milliseconds=50),
}
# Workers with these never reclaim by themselves within a test.
NO_UPKEEP = {"upkeep_every": timedelta(hours=1)}


class Gate:
    """
    A place where handlers wait until they are let through.
    """

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.entered.set()
        assert self.open.wait(PATIENCE_SECONDS)


def test_the_lease_is_kept_while_a_plain_function_is_busy(at: Harness) -> None:
    job_id = at.create()
    gate = Gate()
    at.worker(lambda _: gate.wait(), **QUICK)
    assert gate.entered.wait(PATIENCE_SECONDS)
    first = at.job(job_id).heartbeat_at
    until(lambda: at.job(job_id).heartbeat_at != first)
    gate.open.set()
    assert at.ended(job_id).attempts == 1


def test_a_coroutine_that_blocks_the_event_loop_keeps_its_lease(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """
    LE-07: the loop is busy for longer than the visibility timeout; others reclaim.
    """
    runs: list[int] = []

    async def handler(context: AsyncContext) -> None:
        runs.append(context.job.attempts)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            sum(range(1000))

    job_id = at.create()
    short = {
        "visibility_timeout": timedelta(seconds=1),
        "heartbeat_every": timedelta(milliseconds=100),
    }
    at.worker(handler, **short)
    until(lambda: runs)
    at.worker(handler, **short)
    assert at.ended(job_id).status is JobStatus.COMPLETED
    assert runs == [1]


def test_short_jobs_cost_no_heartbeat(at: Harness) -> None:
    at.worker(lambda _: None, heartbeat_every=timedelta(milliseconds=500))
    for _ in range(5):
        at.ended(at.create())
    assert at.faults.count("heartbeat") == 0


def test_one_statement_refreshes_all_leases(at: Harness) -> None:
    gate = Gate()
    for _ in range(5):
        at.create()
    at.worker(lambda _: gate.wait(), **QUICK)
    until(
        lambda: (
            [args for verb, args, _ in at.faults.calls if verb == "heartbeat"]
            and len(
                [args for verb, args, _ in at.faults.calls if verb == "heartbeat"][-1][
                    0
                ]
            )
            == 5
        )
    )
    gate.open.set()


def _lose(at: Harness, job_id: str) -> None:
    """
    Take the lease away, as the visibility timeout of another worker would.
    """
    from dataclasses import replace

    at.behind.update_status(
        job_id, lambda job: replace(job, status=JobStatus.QUEUED, queue="elsewhere")
    )


def test_a_lost_lease_cancels_a_coroutine(at: Harness) -> None:
    entered, seen = threading.Event(), threading.Event()

    async def handler(context: AsyncContext) -> None:
        entered.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            assert context.is_lost
            seen.set()
            raise

    job_id = at.create()
    worker = at.worker(handler, **QUICK, **NO_UPKEEP)
    assert entered.wait(PATIENCE_SECONDS)
    _lose(at, job_id)
    assert seen.wait(PATIENCE_SECONDS)
    until(lambda: worker.worker.health().busy == 0)
    assert at.job(job_id).status is JobStatus.QUEUED
    assert at.faults.count("set_results") == 0


@pytest.mark.parametrize("how", ["check", "wait", "payload"])
def test_a_lost_lease_is_told_to_a_plain_function(at: Harness, how: str) -> None:
    entered = threading.Event()
    raised: list[LeaseLost] = []

    def handler(context: Context) -> None:
        entered.set()
        try:
            if how == "wait":
                context.wait(PATIENCE_SECONDS)
            until(lambda: context.is_lost)
            if how == "check":
                context.check()
            context.payload()
        except LeaseLost as error:
            raised.append(error)
            raise

    job_id = at.create()
    worker = at.worker(handler, **QUICK, **NO_UPKEEP)
    assert entered.wait(PATIENCE_SECONDS)
    _lose(at, job_id)
    until(lambda: raised)
    assert not isinstance(raised[0], JobCancelled)
    assert raised[0].job_id == job_id
    until(lambda: worker.worker.health().busy == 0)


def test_a_cancelled_job_stops_its_handlers(at: Harness) -> None:
    entered = threading.Barrier(3)
    raised: list[BaseException] = []

    async def coroutine(context: AsyncContext) -> None:
        await asyncio.to_thread(entered.wait, PATIENCE_SECONDS)
        try:
            await asyncio.sleep(3600)
        finally:
            with pytest.raises(JobCancelled):
                context.check()
            raised.append(JobCancelled("", 0, ""))

    def function(context: Context) -> None:
        entered.wait(PATIENCE_SECONDS)
        try:
            context.wait(PATIENCE_SECONDS)
        except JobCancelled as error:
            raised.append(error)

    ids = [at.create("async"), at.create("sync")]
    worker = at.worker({"async": coroutine, "sync": function}, **QUICK)
    entered.wait(PATIENCE_SECONDS)
    for job_id in ids:
        at.behind.cancel(job_id)
    until(lambda: len(raised) == 2 and worker.worker.health().busy == 0)
    assert {at.job(job_id).status for job_id in ids} == {JobStatus.CANCELLED}


def test_a_handler_that_swallows_its_cancellation_changes_nothing(
    at: Harness,
) -> None:
    """
    SH-02, LC-01: what it returns after the job was cancelled is dropped.
    """
    entered = threading.Event()

    async def handler(_: AsyncContext) -> bytes:
        entered.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return b"all the same"

    job_id = at.create()
    at.worker({"k": handler, "next": lambda _: None}, concurrency=1, **QUICK)
    assert entered.wait(PATIENCE_SECONDS)
    at.behind.cancel(job_id)
    # Its hand gets free, and takes another job.
    at.ended(at.create("next"))
    assert at.job(job_id).status is JobStatus.CANCELLED
    assert at.job(job_id).result is None


def test_an_outcome_for_a_lost_lease_is_dropped(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """
    LE-01: the handler finished before anybody told it.
    """
    gate = Gate()

    def handler(_: Context) -> bytes:
        gate.wait()
        return b"old"

    job_id = at.create()
    worker = at.worker(handler, **NO_UPKEEP)
    assert gate.entered.wait(PATIENCE_SECONDS)
    _lose(at, job_id)
    gate.open.set()
    until(lambda: worker.worker.health().dropped == 1)
    assert at.job(job_id).status is JobStatus.QUEUED
    assert "dropped" in caplog.text


def test_a_job_is_beaten_for_until_its_outcome_is_committed(at: Harness) -> None:
    job_id = at.create()
    with at.faults.hanging("set_results") as hangs:
        at.worker(lambda _: b"x", **QUICK)
        assert hangs.wait(PATIENCE_SECONDS)
        first = at.job(job_id).heartbeat_at
        until(lambda: at.job(job_id).heartbeat_at != first)
    assert at.ended(job_id).result == b"x"


def test_a_heartbeat_that_hangs_does_not_hold_up_the_next(at: Harness) -> None:
    """
    LE-08, CN-10: a beat has a deadline, and the next one another connection.
    """
    gate = Gate()
    job_id = at.create()
    with at.faults.hanging("heartbeat") as hangs:
        worker = at.worker(lambda _: gate.wait(), **QUICK)
        assert hangs.wait(PATIENCE_SECONDS)
        until(lambda: worker.worker.health().loops["heartbeat"].failure == "STORE_BUSY")
        at.faults._faults.pop("heartbeat")
        first = at.job(job_id).heartbeat_at
        until(lambda: at.job(job_id).heartbeat_at != first)
    gate.open.set()
    assert at.ended(job_id).attempts == 1


def test_late_heartbeats_are_told_and_no_more_jobs_taken(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    at.create()
    options: dict[str, Any] = {
        "visibility_timeout": timedelta(seconds=1),
        "heartbeat_every": timedelta(milliseconds=50),
        **NO_UPKEEP,
    }
    worker = at.worker(lambda _: gate.wait(), concurrency=10, **options)
    assert gate.entered.wait(PATIENCE_SECONDS)
    with at.faults._lock:
        at.faults._faults["heartbeat"] = [("always", lambda: StoreUnavailable("away"))]
    until(lambda: "the last heartbeat was" in caplog.text)
    waiting = at.create()
    claims = at.faults.count("claim")
    until(lambda: not worker.worker.health().is_healthy())
    assert at.job(waiting).status is JobStatus.QUEUED
    assert at.faults.count("claim") <= claims + 1
    with at.faults._lock:
        at.faults._faults.pop("heartbeat")
    gate.open.set()
    assert at.ended(waiting).status is JobStatus.COMPLETED
    assert caplog.text.count("the last heartbeat was") == 1


def test_a_handler_that_ended_its_job_is_not_taken_for_one_that_lost_it(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Between its own commit and its return a heartbeat finds the lease gone.
    """
    from jobstore.worker import DONE

    beaten: list[bool] = []

    async def handler(context: AsyncContext) -> Any:
        await asyncio.to_thread(at.behind.complete, context.lease, b"mine")
        await asyncio.to_thread(until, lambda: context._held.own_ending)
        beaten.append(context.is_lost)
        return DONE

    caplog.set_level(logging.INFO, "jobstore.worker")
    job_id = at.create()
    worker = at.worker(handler, **QUICK)
    until(lambda: beaten and worker.worker.health().busy == 0)
    worker.stop()
    assert at.job(job_id).result == b"mine"
    assert beaten == [False]
    assert "lease lost" not in caplog.text
