"""
Stopping: nothing is left processing, nothing is charged, and it always ends.
"""

import asyncio
import threading
from datetime import timedelta

import pytest

from jobstore import (
    AsyncContext,
    AttemptOutcome,
    Context,
    JobStatus,
    NewJob,
    PostgresStore,
    Worker,
)
from tests.worker.conftest import Start, wait_until


def _one_worker(store: PostgresStore, handlers: object, **settings: object) -> Worker:
    return Worker(
        store,
        handlers,  # type: ignore[arg-type]
        poll_every=timedelta(milliseconds=20),
        **settings,  # type: ignore[arg-type]
    )


def test_what_runs_may_finish_within_the_grace(store: PostgresStore) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(_context: Context) -> bytes:
        began.set()
        assert go_on.wait(30)
        return b"done"

    job = store.create(NewJob(kind="k")).job
    worker = _one_worker(store, {"k": slow})
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(30)
    worker.stop()
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
    assert store.get(job.id).result == b"done"


@pytest.mark.parametrize("swallows", [False, True])
def test_a_coroutine_that_takes_too_long_is_released_uncharged(
    store: PostgresStore, swallows: bool
) -> None:
    began = threading.Event()

    async def endless(_context: AsyncContext) -> None:
        began.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not swallows:
                    raise

    job = store.create(NewJob(kind="k")).job
    worker = _one_worker(store, {"k": endless}, grace=timedelta(0))
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()
    released = store.get(job.id)
    assert (released.status, released.attempts) == (JobStatus.QUEUED, 0)
    assert [one.outcome for one in store.attempts(job.id)] == [AttemptOutcome.RELEASED]


def test_a_thread_that_takes_too_long_is_left_behind_and_not_heard(
    store: PostgresStore,
) -> None:
    began, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    def endless(_context: Context) -> bytes:
        began.set()
        go_on.wait(30)
        returned.set()
        return b"too late"

    job = store.create(NewJob(kind="k")).job
    worker = _one_worker(store, {"k": endless}, grace=timedelta(0))
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert store.get(job.id).status is JobStatus.QUEUED
    go_on.set()
    assert returned.wait(30)
    assert store.get(job.id).status is JobStatus.QUEUED


def test_a_second_stop_does_not_wait_for_the_grace(store: PostgresStore) -> None:
    began = threading.Event()

    async def endless(_context: AsyncContext) -> None:
        began.set()
        await asyncio.Event().wait()

    store.create(NewJob(kind="k"))
    worker = _one_worker(store, {"k": endless}, grace=timedelta(hours=1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(30)
    worker.stop()
    worker.stop(at_once=True)
    thread.join(30)
    assert not thread.is_alive()


def test_a_stop_before_the_start_is_not_lost(store: PostgresStore) -> None:
    worker = _one_worker(store, {"k": lambda _context: None})
    worker.stop()
    worker.stop()
    worker.run()


def test_stopping_at_any_moment_of_the_start_ends_it(store: PostgresStore) -> None:
    for delay in range(0, 50, 5):
        worker = _one_worker(store, {"k": lambda _context: None})
        thread = threading.Thread(target=worker.run)
        thread.start()
        threading.Timer(delay / 1000, worker.stop).start()
        thread.join(30)
        assert not thread.is_alive()


async def test_cancelling_serve_winds_down(store: PostgresStore) -> None:
    began = asyncio.Event()

    async def endless(_context: AsyncContext) -> None:
        began.set()
        await asyncio.Event().wait()

    job = store.create(NewJob(kind="k")).job
    worker = _one_worker(store, {"k": endless}, grace=timedelta(0))
    serving = asyncio.create_task(worker.serve())
    await asyncio.wait_for(began.wait(), 30)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert store.get(job.id).status is JobStatus.QUEUED


def test_the_heartbeat_goes_on_through_a_long_drain(
    store: PostgresStore, start: Start
) -> None:
    """
    The drain takes longer than the visibility timeout; another worker reclaims.
    """
    began, go_on = threading.Event(), threading.Event()
    runs = []

    def slow(_context: Context) -> bytes:
        runs.append(1)
        began.set()
        go_on.wait(30)
        return b"mine"

    settings = {"visibility_timeout": timedelta(seconds=1)}
    first = start({"k": slow}, **settings, grace=timedelta(seconds=30))
    job = store.create(NewJob(kind="k")).job
    assert began.wait(30)
    first.stop()
    start({"k": slow}, **settings)
    held_since = store.get(job.id).heartbeat_at
    assert held_since is not None

    def outlived() -> bool:
        beaten_at = store.get(job.id).heartbeat_at
        return beaten_at is not None and beaten_at > held_since + timedelta(seconds=2)

    wait_until(outlived, "heartbeats for twice the visibility timeout")
    go_on.set()
    wait_until(
        lambda: store.get(job.id).status is JobStatus.COMPLETED, "the job to complete"
    )
    assert (len(runs), store.get(job.id).fence) == (1, 1)
