"""
Trouble: databases that go away, loops that starve, workers that die.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy

from jobstore import (
    AsyncContext,
    AsyncPostgresStore,
    AttemptOutcome,
    Context,
    JobStatus,
    Lease,
    NewJob,
    PostgresStore,
    Worker,
    WorkerCrashed,
    migrate,
)
from tests.servers import LocalServer, connect
from tests.worker.conftest import Start, wait_for, wait_until

SCRIPT = """
import sys, time
from datetime import timedelta
from jobstore import PostgresStore, Worker
def slow(context):
    print("holds", context.job.id, flush=True)
    time.sleep(600)
def quick(context):
    return b"quick"
Worker(
    PostgresStore(sys.argv[1], schema=sys.argv[2]),
    {"slow": slow, "quick": quick},
    visibility_timeout=timedelta(seconds=2),
    grace=timedelta(seconds=float(sys.argv[3])),
).run()
"""


# SQLAlchemy forgets, unclosed, a connection that breaks while it sets it up.
broken_connections = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


def _process(dsn: str, schema: str, grace: float = 0.0) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), dsn, schema, str(grace)],
        stdout=subprocess.PIPE,
        text=True,
    )


def _held_by(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    word, job_id = process.stdout.readline().split()
    assert word == "holds"
    return job_id


def test_another_worker_recovers_the_job_of_a_killed_one(
    dsn: str, schema: str, store: PostgresStore, start: Start
) -> None:
    job = store.create(NewJob(kind="slow")).job
    process = _process(dsn, schema)
    assert _held_by(process) == job.id
    process.kill()
    process.communicate()
    start(
        {"slow": lambda _context: b"recovered"},
        visibility_timeout=timedelta(seconds=2),
    )
    done = wait_for(store, job.id, JobStatus.COMPLETED)
    assert (done.result, done.attempts, done.fence) == (b"recovered", 2, 2)
    outcomes = [one.outcome for one in store.attempts(job.id)]
    assert outcomes == [AttemptOutcome.LEASE_EXPIRED]


def test_a_job_that_kills_every_worker_ends_failed(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    job = store.create(NewJob(kind="slow", max_attempts=3)).job
    for _ in range(3):
        process = _process(dsn, schema)
        assert _held_by(process) == job.id
        process.kill()
        process.communicate()
        store.reclaim_stale(timedelta(0))
    ended = store.get(job.id)
    assert (ended.status, ended.attempts) == (JobStatus.FAILED, 3)
    assert ended.error_code == "ATTEMPTS_EXHAUSTED"
    assert store.claim_next() is None


def test_sigterm_gives_the_job_back_and_ends_the_process(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    job = store.create(NewJob(kind="slow")).job
    process = _process(dsn, schema)
    assert _held_by(process) == job.id
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    released = store.get(job.id)
    assert (released.status, released.attempts) == (JobStatus.QUEUED, 0)


def test_a_second_sigterm_does_not_wait_for_the_grace(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    job = store.create(NewJob(kind="slow")).job
    process = _process(dsn, schema, grace=3600)
    assert _held_by(process) == job.id
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    # Two signals may be folded into one while the first is pending.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert store.get(job.id).status is JobStatus.QUEUED


def test_a_worker_that_slept_through_its_lease_changes_nothing(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    job = store.create(NewJob(kind="slow")).job
    process = _process(dsn, schema)
    assert _held_by(process) == job.id
    process.send_signal(signal.SIGSTOP)
    try:
        store.reclaim_stale(timedelta(0))
        claim = store.claim_next()
        assert claim is not None
        assert claim.job.id == job.id
    finally:
        process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert claim.lease in store.heartbeat([claim.lease]).held
    store.complete(claim.lease, b"the second owner's")
    assert store.get(job.id).result == b"the second owner's"


def test_a_busy_loop_does_not_starve_the_heartbeat(
    store: PostgresStore, start: Start
) -> None:
    runs = []

    async def hog(_context: AsyncContext) -> bytes:
        runs.append(1)
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            pass
        return b"done"

    start({"k": hog}, visibility_timeout=timedelta(seconds=1))
    job = store.create(NewJob(kind="k")).job
    done = wait_for(store, job.id, JobStatus.COMPLETED, JobStatus.FAILED)
    assert (done.fence, len(runs), done.result) == (1, 1, b"done")


def test_handlers_that_hold_all_connections_do_not_starve_the_heartbeat(
    dsn: str, schema: str
) -> None:
    engine = sqlalchemy.create_engine(dsn, pool_size=2, max_overflow=0)
    store = PostgresStore(engine, schema=schema)
    held, go_on = threading.Barrier(3), threading.Event()

    def hold(_context: Context) -> bytes:
        with engine.connect():
            held.wait(30)
            go_on.wait(30)
        return b"done"

    jobs = [store.create(NewJob(kind="k")).job for _ in range(2)]
    worker = Worker(
        store,
        {"k": hold},
        visibility_timeout=timedelta(seconds=1),
        poll_every=timedelta(milliseconds=50),
        upkeep_every=timedelta(milliseconds=100),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    outside = PostgresStore(dsn, schema=schema)
    try:
        held.wait(30)
        first_beats = [outside.get(job.id).heartbeat_at for job in jobs]

        def beaten() -> bool:
            beats = [outside.get(job.id).heartbeat_at for job in jobs]
            return all(
                now and before and now > before + timedelta(seconds=2)
                for now, before in zip(beats, first_beats, strict=True)
            )

        wait_until(beaten, "heartbeats while the pool is used up")
    finally:
        go_on.set()
        wait_until(lambda: worker.health().completed == 2, "both to complete")
        worker.stop()
        thread.join(30)
        outside.close()
        engine.dispose()


@broken_connections
def test_a_worker_survives_the_death_of_its_server(own_server: LocalServer) -> None:
    """
    The server is killed while a handler runs; its outcome is kept and written later.
    """
    dsn = own_server.embedded.dsn
    migrate.upgrade(dsn)
    store = PostgresStore(dsn)
    began, go_on = threading.Event(), threading.Event()

    def slow(_context: Context) -> bytes:
        began.set()
        go_on.wait(60)
        return b"kept"

    job = store.create(NewJob(kind="k")).job
    worker = Worker(store, {"k": slow}, poll_every=timedelta(milliseconds=50))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert began.wait(30)
        own_server.kill()
        go_on.set()
        wait_until(
            lambda: worker.health().waiting_for_commit == 1, "the outcome to wait"
        )
        own_server.restart()
        assert wait_for(store, job.id, JobStatus.COMPLETED).result == b"kept"
        later = store.create(NewJob(kind="k")).job
        wait_for(store, later.id, JobStatus.COMPLETED)
        assert worker.health().is_healthy()
    finally:
        worker.stop()
        thread.join(60)
        store.close()
    assert not thread.is_alive()


def test_a_worker_outlives_the_termination_of_its_connections(
    dsn: str, store: PostgresStore, start: Start
) -> None:
    start({"k": lambda _context: b"x"}, concurrency=4)
    with connect(dsn) as admin:
        for _ in range(10):
            jobs = store.create_many([NewJob(kind="k") for _ in range(20)])
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'jobstore' AND datname = current_database()"
            )
            for one in jobs:
                wait_for(store, one.job.id, JobStatus.COMPLETED)


@broken_connections
def test_health_is_red_while_the_database_is_away(own_server: LocalServer) -> None:
    migrate.upgrade(own_server.embedded.dsn)
    worker = Worker(
        PostgresStore(own_server.embedded.dsn),
        {"k": lambda _context: None},
        poll_every=timedelta(milliseconds=20),
        heartbeat_every=timedelta(milliseconds=20),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    tolerance = timedelta(seconds=2)
    try:
        wait_until(lambda: worker.health().is_running, "the worker to run")
        own_server.kill()
        wait_until(lambda: worker.health().ages["claim"] > tolerance, "claims to age")
        assert not worker.health().is_healthy(tolerance=tolerance)
        assert not worker.health().dead, "its loops wait, they are not dead"
        own_server.restart()
        wait_until(lambda: worker.health().ages["claim"] < tolerance, "claims again")
    finally:
        worker.stop()
        thread.join(60)


def test_a_loop_that_breaks_takes_the_worker_down_loudly(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(PostgresStore, "reclaim_stale", broken)
    worker = Worker(store, {"k": lambda _context: None})
    with pytest.raises(WorkerCrashed) as crash:
        worker.run()
    assert isinstance(crash.value.__cause__, ZeroDivisionError)


def test_an_asynchronous_store_serves_as_well(dsn: str, schema: str) -> None:
    async def main() -> None:
        store = AsyncPostgresStore(dsn, schema=schema)
        done = asyncio.Event()

        async def handler(_context: AsyncContext) -> bytes:
            done.set()
            return b"x"

        worker = Worker(store, {"k": handler})
        serving = asyncio.create_task(worker.serve())
        job = (await store.create(NewJob(kind="k"))).job
        await asyncio.wait_for(done.wait(), 30)
        worker.stop()
        await serving
        assert (await store.get(job.id)).result == b"x"
        await store.close()

    asyncio.run(main())


def test_a_new_job_wakes_an_idle_worker(store: PostgresStore, start: Start) -> None:
    """
    The worker would poll in an hour; only a wake-up makes it look before.
    """
    worker = start({"k": lambda _context: b"x"}, poll_every=timedelta(hours=1))
    wait_until(lambda: worker.health().is_running, "the worker to run")
    for _ in range(3):
        job = store.create(NewJob(kind="k")).job
        wait_for(store, job.id, JobStatus.COMPLETED)


def test_queues_take_turns(store: PostgresStore, start: Start) -> None:
    order: list[str] = []

    def note(context: Context) -> None:
        order.append(context.job.queue)

    for queue in ("busy", "quiet"):
        store.create_many([NewJob(kind="k", queue=queue) for _ in range(20)])
    worker = start({"k": note}, queues=["busy", "quiet"], concurrency=1)
    wait_until(lambda: worker.health().completed == 40, "all to complete")
    assert set(order[:4]) == {"busy", "quiet"}


def test_a_job_is_never_in_two_hands(store: PostgresStore, start: Start) -> None:
    lock = threading.Lock()
    seen: dict[str, int] = {}

    def count(context: Context) -> None:
        with lock:
            seen[context.job.id] = seen.get(context.job.id, 0) + 1

    total = 400
    store.create_many([NewJob(kind="k") for _ in range(total)])
    workers = [start({"k": count}, concurrency=8) for _ in range(4)]
    wait_until(
        lambda: sum(worker.health().completed for worker in workers) == total,
        "all to complete",
    )
    assert (len(seen), set(seen.values())) == (total, {1})


def test_leases_that_expired_are_reclaimed_by_any_worker(
    store: PostgresStore, start: Start
) -> None:
    job = store.create(NewJob(kind="k")).job
    claim = store.claim_next(worker="gone")
    assert claim is not None
    start({"k": lambda _context: b"second"}, visibility_timeout=timedelta(seconds=1))
    assert wait_for(store, job.id, JobStatus.COMPLETED).result == b"second"
    stale = Lease(job.id, 1)
    assert stale in store.heartbeat([stale]).lost


def test_jobs_that_come_due_are_queued(store: PostgresStore, start: Start) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    job = store.create(NewJob(kind="k", available_at=soon)).job
    assert job.status is JobStatus.SCHEDULED
    start({"k": lambda _context: b"x"})
    wait_for(store, job.id, JobStatus.COMPLETED)
