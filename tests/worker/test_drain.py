"""
Stopping: whatever handlers do, it ends in time, and every job is settled.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobstore.lifecycle import JobStatus
from jobstore.model import AttemptOutcome
from jobstore.worker import AsyncContext, Context, Worker, WorkerState
from tests.worker.tools import PATIENCE_SECONDS, Harness, RunningWorker, until

LONG = timedelta(hours=1)
NONE = timedelta(0)


class Crowd:
    """
    Handlers that wait until they are let go, and count who came.
    """

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = 0

    def function(self, context: Context) -> bytes:
        self.entered += 1
        while not self.open.wait(0.01):
            context.check()
        return b"done"

    def stubborn(self, _: Context) -> bytes:
        self.entered += 1
        self.open.wait(PATIENCE_SECONDS * 2)
        return b"done"

    async def coroutine(self, _: AsyncContext) -> bytes:
        self.entered += 1
        while not self.open.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)
        return b"done"

    async def swallowing(self, _: AsyncContext) -> bytes:
        self.entered += 1
        while not self.open.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return b"done"

    async def blocking(self, _: AsyncContext) -> bytes:
        self.entered += 1
        self.open.wait(PATIENCE_SECONDS * 2)
        return b"done"

    async def wrapping(self, _: AsyncContext) -> bytes:
        self.entered += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as error:
            raise RuntimeError("connection closed") from error
        return b""


def _has_moved(at: Harness, job_id: str, beat: datetime | None) -> bool:
    return at.job(job_id).heartbeat_at != beat


def _released(at: Harness, job_id: str) -> None:
    job = at.job(job_id)
    assert (job.status, job.attempts) == (JobStatus.QUEUED, 0)
    attempts = at.behind.attempts(job_id)
    assert [one.outcome for one in attempts] == [AttemptOutcome.RELEASED], attempts


@pytest.mark.parametrize("name", ["function", "coroutine"])
def test_running_handlers_may_finish_in_the_grace_time(at: Harness, name: str) -> None:
    """
    SH-01: what is at work is completed, and nothing more is taken.
    """
    crowd = Crowd()
    ids = [at.create() for _ in range(3)]
    worker = at.worker(getattr(crowd, name), grace=LONG)
    until(lambda: crowd.entered == 3)
    worker.worker.stop()
    until(lambda: worker.worker.health().state is WorkerState.STOPPING)
    late = at.create()
    crowd.open.set()
    worker.join()
    assert {at.job(one).result for one in ids} == {b"done"}
    assert at.job(late).status is JobStatus.QUEUED
    assert at.job(late).attempts == 0


@pytest.mark.parametrize("name", ["function", "coroutine", "wrapping"])
def test_after_the_grace_time_jobs_are_released_uncharged(
    at: Harness, name: str
) -> None:
    crowd = Crowd()
    job_id = at.create()
    worker = at.worker(getattr(crowd, name), grace=timedelta(milliseconds=50))
    until(lambda: crowd.entered == 1)
    started = time.monotonic()
    worker.stop()
    assert time.monotonic() - started < 3
    _released(at, job_id)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stubborn", "swallowing", "blocking"])
def test_a_handler_that_will_not_end_does_not_hold_the_worker(
    at: Harness, name: str
) -> None:
    """
    SH-02, SH-04: a thread that can't be interrupted, a coroutine that swallows its
    cancellation, and one that never gives the event loop back.
    """
    crowd = Crowd()
    job_id = at.create()
    worker = at.worker(getattr(crowd, name), grace=NONE)
    until(lambda: crowd.entered == 1)
    worker.worker.stop()
    worker.join(15)
    _released(at, job_id)
    crowd.open.set()
    # What it returns after all is not taken.
    assert at.job(job_id).status is JobStatus.QUEUED


def test_the_lease_is_kept_until_the_job_is_given_back(at: Harness) -> None:
    """
    SH-07: a long drain does not lose its leases.
    """
    crowd = Crowd()
    job_id = at.create()
    worker = at.worker(
        crowd.function,
        grace=LONG,
        visibility_timeout=timedelta(seconds=1),
        heartbeat_every=timedelta(milliseconds=50),
    )
    until(lambda: crowd.entered == 1)
    worker.worker.stop()
    for _ in range(2):
        beat = at.job(job_id).heartbeat_at
        until(partial(_has_moved, at, job_id, beat))
    crowd.open.set()
    worker.join()
    assert at.job(job_id).result == b"done"


def test_jobs_that_have_not_started_are_handed_back_at_once(at: Harness) -> None:
    """
    SH-03: two at work, eighteen in front of a blocked event loop.
    """
    crowd = Crowd()
    first = at.create()
    worker = at.worker(crowd.blocking, concurrency=20, grace=LONG)
    until(lambda: crowd.entered == 1)
    ids = [at.create() for _ in range(18)]
    until(lambda: worker.worker.health().busy == 19)
    worker.worker.stop()
    until(lambda: all(at.job(one).status is JobStatus.QUEUED for one in ids))
    for one in ids:
        _released(at, one)
    crowd.open.set()
    worker.join()
    assert at.job(first).result == b"done"
    # Their order is what it was.
    again = at.behind.claim(20)
    assert [claim.job.id for claim in again] == ids


def test_claims_that_arrive_after_the_stop_are_handed_back(at: Harness) -> None:
    job_id = at.create()
    with at.faults.hanging("claim") as hangs:
        worker = at.worker(lambda _: b"never", grace=LONG)
        assert hangs.wait(PATIENCE_SECONDS)
        worker.worker.stop()
        until(lambda: worker.worker.health().state is WorkerState.STOPPING)
    worker.join()
    _released(at, job_id)


def test_a_second_stop_at_once_ends_the_grace_time(at: Harness) -> None:
    crowd = Crowd()
    job_id = at.create()
    worker = at.worker(crowd.coroutine, grace=LONG)
    until(lambda: crowd.entered == 1)
    worker.worker.stop()
    until(lambda: worker.worker.health().state is WorkerState.STOPPING)
    worker.stop(at_once=True)
    _released(at, job_id)


def test_handlers_see_that_the_worker_stops(at: Harness) -> None:
    entered = threading.Event()

    def handler(context: Context) -> bytes:
        entered.set()
        until(lambda: context.is_stopping)
        return b"cut short"

    job_id = at.create()
    worker = at.worker(handler, grace=LONG)
    assert entered.wait(PATIENCE_SECONDS)
    worker.stop()
    assert at.job(job_id).result == b"cut short"


def test_stop_before_the_start_counts(at: Harness) -> None:
    job_id = at.create()
    worker = Worker(at.store, {"k": lambda _: None})
    worker.stop()
    worker.stop()
    worker.run()
    assert worker.health().state is WorkerState.STOPPED
    assert at.job(job_id).status is JobStatus.QUEUED
    worker.stop()


def test_a_worker_is_used_once(at: Harness) -> None:
    worker = Worker(at.store, {"k": lambda _: None})
    worker.stop()
    worker.run()
    with pytest.raises(RuntimeError, match="used once"):
        worker.run()


def test_stop_from_many_threads_at_any_moment_of_the_start(at: Harness) -> None:
    """
    SH-04: no stop is lost, however early.
    """
    for moment in range(20):
        worker = RunningWorker(
            Worker(at.store, {"k": lambda _: None}, wake_ups=False, grace=LONG)
        )
        threading.Event().wait(moment * 0.001)
        for _ in range(3):
            threading.Thread(target=worker.worker.stop).start()
        worker.join()
        assert worker.error is None


def test_an_outcome_that_cannot_be_committed_does_not_hold_the_stop(
    at: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobstore.errors import StoreUnavailable
    from jobstore.worker import running

    monkeypatch.setattr(running, "_COMMIT_SECONDS", 0.5)
    job_id = at.create()
    done = threading.Event()
    started = threading.Event()

    def handler(_: Context) -> None:
        started.set()
        assert done.wait(PATIENCE_SECONDS)

    worker = at.worker(handler)
    assert started.wait(PATIENCE_SECONDS)
    with at.faults.away(lambda: StoreUnavailable("away")):
        done.set()
        worker.stop()
    assert "1 outcomes could not be committed" in caplog.text
    assert at.job(job_id).status is JobStatus.PROCESSING


# -- serve ---------------------------------------------------------------------


async def test_serve_runs_handlers_on_the_callers_loop(at: Harness) -> None:
    loops: list[object] = []

    async def handler(_: AsyncContext) -> None:
        loops.append(asyncio.get_running_loop())

    job_id = at.create()
    worker = Worker(
        at.store, {"k": handler}, wake_ups=False, poll_every=timedelta(milliseconds=20)
    )
    serving = asyncio.create_task(worker.serve())
    await asyncio.to_thread(at.ended, job_id)
    worker.stop()
    await asyncio.wait_for(serving, PATIENCE_SECONDS)
    assert loops == [asyncio.get_running_loop()]


async def test_cancelling_serve_stops_at_once_and_settles_everything(
    at: Harness,
) -> None:
    crowd = Crowd()
    job_id = at.create()
    worker = Worker(at.store, {"k": crowd.coroutine}, grace=LONG, wake_ups=False)
    serving = asyncio.create_task(worker.serve())
    await asyncio.to_thread(until, lambda: crowd.entered)
    serving.cancel()
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, PATIENCE_SECONDS)
    _released(at, job_id)


# -- signals -------------------------------------------------------------------


def _main_thread_worker(at: Harness, handler: Any, **options: Any) -> Worker:
    """
    Run a worker in this, the main, thread; `after` is done from another one.
    """
    return Worker(
        at.store,
        {"*": handler},
        wake_ups=False,
        poll_every=timedelta(milliseconds=20),
        **options,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_handlers_are_put_back(
    at: Harness, number: signal.Signals
) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    job_id = at.create()

    def handler(context: Context) -> bytes:
        os.kill(os.getpid(), number)
        until(lambda: context.is_stopping)
        return b"drained"

    _main_thread_worker(at, handler).run()
    assert at.job(job_id).result == b"drained"
    assert before == {
        one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)
    }


def test_a_second_signal_stops_at_once(at: Harness) -> None:
    job_id = at.create()

    def handler(context: Context) -> bytes:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: context.is_stopping)
        os.kill(os.getpid(), signal.SIGTERM)
        context.wait(PATIENCE_SECONDS)
        return b"never"

    # What the first signal leaves in force must not end the tests.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        _main_thread_worker(at, handler, grace=LONG).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    _released(at, job_id)


# -- crashes -------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["claim", "set_results", "heartbeat", "promote_due"])
def test_a_loop_that_dies_takes_the_worker_down_with_its_error(
    at: Harness, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    OP-07: never silently.
    """
    from jobstore.worker import WorkerCrashed

    caplog.set_level(logging.CRITICAL)
    at.create()
    at.faults.fail(verb, ZeroDivisionError("a fault"))
    worker = at.worker(
        lambda context: context.wait(0.5) if verb == "heartbeat" else None,
        heartbeat_every=timedelta(milliseconds=50),
    )
    worker.join()
    assert isinstance(worker.error, WorkerCrashed)
    assert isinstance(worker.error.__cause__, ZeroDivisionError)
    assert worker.worker.health().state is WorkerState.CRASHED
    assert not worker.worker.health().is_healthy()


def test_a_database_without_tables_ends_the_worker_with_its_own_error(
    at: Harness,
) -> None:
    from jobstore.errors import SchemaMissing

    at.faults.fail("claim", SchemaMissing("run the migrations"))
    worker = at.worker(lambda _: None)
    worker.join()
    assert isinstance(worker.error, SchemaMissing)
