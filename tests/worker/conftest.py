"""
A store on a schema of the test's own, and a worker that runs beside the test.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from jobstore import Job, JobStatus, PostgresStore, Worker

PATIENCE_SECONDS = 30.0

Start = Callable[..., Worker]


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema)
    yield made
    made.close()


@pytest.fixture
def start(store: PostgresStore) -> Iterator[Start]:
    """
    Start workers with quick settings, each in a thread; all are stopped at the end.
    """
    running: list[tuple[Worker, threading.Thread]] = []

    def start_one(handlers: Any, **settings: Any) -> Worker:
        quick: dict[str, Any] = {
            "poll_every": timedelta(milliseconds=50),
            "heartbeat_every": timedelta(milliseconds=100),
            "upkeep_every": timedelta(milliseconds=100),
            "grace": timedelta(seconds=5),
        }
        worker = Worker(store, handlers, **(quick | settings))
        thread = threading.Thread(target=_run, args=(worker,))
        thread.start()
        running.append((worker, thread))
        return worker

    yield start_one
    for worker, _ in running:
        worker.stop(at_once=True)
    for _, thread in running:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "a worker did not end"


def _run(worker: Worker) -> None:
    with contextlib.suppress(Exception):
        worker.run()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """
    Look again and again, with a limit; the wait is for the state, not for time.
    """
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.01)):
        if is_so():
            return
        pause.wait(0.01)
    pytest.fail(f"waited in vain: {what}")


def wait_for(store: PostgresStore, job_id: str, *status: JobStatus) -> Job:
    """
    Wait until the job is in one of *status*; return it.
    """
    wait_until(
        lambda: store.get(job_id).status in status,
        f"job {job_id} to be {' or '.join(status)}",
    )
    return store.get(job_id)
