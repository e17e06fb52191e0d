"""
The demonstration's worker processes: starting them, killing one, leaving none behind.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.handlers import PACE

__all__ = ["DemoFailed", "WorkerProcess", "running", "wait_for"]

_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 0.2
_GRACE_SECONDS = 10.0


class DemoFailed(Exception):
    """
    The demonstration did not go as it should; the message says how.
    """


@dataclass(slots=True)
class WorkerProcess:
    """
    One worker, and whether it is dead by our hand.
    """

    name: str
    process: subprocess.Popen[bytes]
    is_killed: bool = False

    def check(self) -> None:
        """
        Raise `DemoFailed` if it ended by itself.
        """
        if not self.is_killed and self.process.poll() is not None:
            code = self.process.returncode
            raise DemoFailed(f"worker {self.name} ended by itself, exit code {code}")

    def kill_if(self, holds_something: Callable[[], bool]) -> bool:
        """
        Kill it by SIGKILL if *holds_something*; else let it go on.

        It is stopped for the look, so that what is seen in its hands is still there
        when it dies.
        """
        self.check()
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise DemoFailed(f"worker {self.name} ended by itself")
        # What it had sent to the database before is through by then.
        time.sleep(_SETTLE_SECONDS)
        if not holds_something():
            self.process.send_signal(signal.SIGCONT)
            return False
        self.process.kill()
        self.process.wait()
        self.is_killed = True
        return True

    def end(self) -> None:
        """
        Ask it to end, and see to it.
        """
        if self.process.poll() is None:
            self.process.terminate()
            # Had we been interrupted just then, it would sleep on.
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


@contextlib.contextmanager
def running(
    names: Sequence[str], *, dsn: str, queue: str, pace_seconds: float
) -> Iterator[list[WorkerProcess]]:
    """
    Run a worker process for each name.
    """
    above = str(Path(__file__).parents[1])
    search = os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "JOBSTORE_DSN": dsn,
        PACE: str(pace_seconds),
        "PYTHONPATH": search,
    }
    started: list[WorkerProcess] = []
    try:
        for name in names:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "demo.worker", name, queue],
                env=environment,
                stdin=subprocess.PIPE,
                # Ctrl-C is for us; we end them.
                start_new_session=True,
            )
            started.append(WorkerProcess(name, process))
        yield started
    finally:
        for one in started:
            one.end()


def wait_for(
    what: str,
    is_so: Callable[[], bool],
    *,
    workers: Sequence[WorkerProcess],
    patience_seconds: float,
) -> None:
    """
    Look until *is_so*; raise `DemoFailed` when patience is at its end, or a worker is.
    """
    deadline = time.monotonic() + patience_seconds
    while not is_so():
        for one in workers:
            one.check()
        if time.monotonic() > deadline:
            message = f"waited {patience_seconds:.0f} s in vain for {what}"
            raise DemoFailed(message)
        time.sleep(_LOOK_SECONDS)
