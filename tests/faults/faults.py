"""
What can go wrong. Each fault waits until it has happened, and until work goes on.
"""

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Mapping

from jobstore import JobClass, JobStatus, NewJob, PostgresStore
from tests.faults.history import Operation, Reply, read
from tests.faults.system import System, wait_until

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[System, random.Random], object]


def kill_worker(system: System, chance: random.Random) -> None:
    """
    SIGKILL a worker while it holds a job; start another.
    """
    worker = chance.choice(system.workers)
    _wait_busy(system, worker.name)
    worker.end(signal.SIGKILL)
    system.replace(worker)


def stall_worker(system: System, chance: random.Random) -> bool:
    """
    SIGSTOP a worker until another one holds its job, and let it go on meanwhile.

    The second holder keeps the job until the first has been heard, so that only the
    fence stands between them. Returns whether the first tried to write a result; it
    need not, if its heartbeat is quicker.
    """
    store = PostgresStore(system.dsn, schema="faults", wake_ups=False)
    with contextlib.closing(store):
        # Of the best class: however many others wait by now, it does not.
        new = NewJob(kind="held", max_attempts=1000, job_class=JobClass.INTERACTIVE)
        job_id = store.create(new).job.id

        def is_held(above: int = 0) -> bool:
            job = store.get(job_id)
            return job.status is JobStatus.PROCESSING and job.fence > above

        wait_until(is_held, "the job to be held")
        job = store.get(job_id)
        (worker,) = (one for one in system.workers if one.name == job.worker)

        def heard() -> list[Operation]:
            return [
                one.operation
                for one in read(system.folder)
                if (one.job_id, one.fence) == (job_id, job.fence)
                and (one.operation is Operation.FINISH or one.outcome is Reply.REFUSED)
            ]

        worker.send(signal.SIGSTOP)
        try:
            wait_until(lambda: is_held(above=job.fence), "another to hold the job")
            (system.folder / f"{job_id}.{job.fence}").touch()
        finally:
            worker.send(signal.SIGCONT)
        try:
            wait_until(lambda: bool(heard()), "the first holder to be heard")
            tried = Operation.FINISH in heard()
        finally:
            (system.folder / f"{job_id}.all").touch()
    system.progress(5)
    return tried


def end_sessions(system: System, chance: random.Random) -> None:
    """
    pg_terminate_backend for about half of the sessions.
    """
    system.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <>"
        " pg_backend_pid() AND backend_type = 'client backend' AND random() < %s",
        chance.uniform(0.3, 1.0),
    )
    system.progress(5)


def shut_down_at_once(system: System, chance: random.Random) -> None:
    """
    Immediate shutdown of PostgreSQL: no checkpoint, so that it has to recover.
    """
    system.server.embedded.kill(signal.SIGQUIT)
    system.server.embedded.start()
    system.progress(10)


def kill_postgresql(system: System, chance: random.Random) -> None:
    """
    SIGKILL for the postmaster; its sessions end when they notice.
    """
    system.server.kill()
    system.server.embedded.start()
    system.progress(10)


def cut_commits(system: System, chance: random.Random, *, times: int = 3) -> None:
    """
    Cut connections whose write is done and not answered, or sent and not done.
    """
    lock = threading.Lock()
    left = {"answer": times, "request": times}

    def take(what: str, share: float) -> bool:
        with lock:
            is_cut = left[what] > 0 and chance.random() < share
            left[what] -= is_cut
            return is_cut

    def cut(answer: bytes) -> str | None:
        # The tag of a finished command; outside a transaction it is committed by then.
        tags = (b"COMMIT\0", b"UPDATE ", b"INSERT 0 ", b"SELECT ")
        is_done = any(tag in answer for tag in tags)
        return "drop" if is_done and take("answer", 0.3) else None

    def drop(_request: bytes) -> str | None:
        if not take("request", 0.1):
            return None
        return chance.choice(["drop", "pass and cut"])

    system.proxy.on_answer, system.proxy.on_request = cut, drop
    try:
        wait_until(lambda: not any(left.values()), f"{times} cuts of each kind")
    finally:
        system.proxy.on_answer = system.proxy.on_request = lambda _: None
    system.progress(10)


def step_clocks(system: System, chance: random.Random) -> None:
    """
    Step the wall clock of every process by ten minutes, ahead or back.
    """
    for process in [*system.workers, *system.submitters]:
        process.send(chance.choice([signal.SIGUSR1, signal.SIGUSR2]))
    system.progress(20)


FAULTS: Mapping[str, Fault] = {
    "a worker killed": kill_worker,
    "a worker stalled past its lease": stall_worker,
    "sessions ended": end_sessions,
    "PostgreSQL shut down at once": shut_down_at_once,
    "PostgreSQL killed": kill_postgresql,
    "commits cut": cut_commits,
    "clocks stepped": step_clocks,
}


def _held() -> str:
    return "faults.job WHERE status = 'processing' AND worker = %s"


def _wait_busy(system: System, name: str) -> None:
    wait_until(lambda: system.count(_held(), name) > 0, f"{name} to hold a job")
