"""
What can go wrong. Each fault waits until it has happened, and until work goes on.
"""

import random
import signal
import threading
from collections.abc import Callable, Mapping

from tests.faults.system import System, wait_until

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[System, random.Random], None]


def kill_worker(system: System, chance: random.Random) -> None:
    """
    SIGKILL a worker while it holds a job; start another.
    """
    worker = chance.choice(system.workers)
    _wait_busy(system, worker.name)
    worker.end(signal.SIGKILL)
    system.replace(worker)


def stall_worker(system: System, chance: random.Random) -> None:
    """
    SIGSTOP a worker until a lease of its was reclaimed, then let it go on.
    """
    worker = chance.choice(system.workers)
    expired = "faults.attempt WHERE outcome = 'lease_expired' AND worker = %s"
    before = system.count(expired, worker.name)
    _wait_busy(system, worker.name)
    worker.send(signal.SIGSTOP)
    try:
        # It may have been stopped between two jobs: then it has to be tried again.
        while not system.count(_held(), worker.name):
            worker.send(signal.SIGCONT)
            _wait_busy(system, worker.name)
            worker.send(signal.SIGSTOP)
        wait_until(
            lambda: system.count(expired, worker.name) > before, "a reclaimed lease"
        )
    finally:
        worker.send(signal.SIGCONT)


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
