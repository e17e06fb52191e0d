"""
The leash on commands: when their worker dies, by SIGKILL too, they are ended.

A process has one leash for all commands that it runs: a pipe to a small program, this
file, that is told each command's process group. The pipe closes when the process ends,
whichever way, and the program ends the groups that are left: SIGTERM, and SIGKILL to
those that are still there five seconds later. It imports the standard library alone,
so that it is small and starts in a moment.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

__all__ = ["Leash", "leash"]

_log = logging.getLogger("jobstore.worker")

_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class Leash:
    """
    What holds the commands of this process. Safe between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._pipe: int | None = None

    @property
    def is_ready(self) -> bool:
        """
        Whether the program runs, as far as is known.
        """
        return self._pipe is not None

    def make_ready(self) -> None:
        """
        Start the program, unless it runs. Blocks for as long as that takes.
        """
        with self._lock, self._warned():
            if self._pipe is None:
                self._start()

    @contextlib.contextmanager
    def held(self, group: int) -> Iterator[None]:
        """
        Have *group* ended if this process dies within the block.

        Without the program (it can't be started) the block runs all the same.
        """
        self._tell(group, is_there=True)
        try:
            yield
        finally:
            self._tell(group, is_there=False)

    def _tell(self, group: int, *, is_there: bool) -> None:
        with self._lock, self._warned():
            if is_there:
                self._groups.add(group)
            else:
                self._groups.discard(group)
            if self._pipe is None or not self._write(self._pipe, group, is_there):
                # It was ended by somebody; another one holds those that are left.
                self._start()

    @contextlib.contextmanager
    def _warned(self) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("commands would outlive this process: %s", error)

    def _start(self) -> None:
        self._drop()
        theirs, ours = os.pipe()  # neither is inherited by commands
        try:
            subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", __file__],
                check=True,
                cwd="/",
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # What ends this process's group by hand must leave it its time.
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        # It is never to wait for a program that was stopped.
        os.set_blocking(ours, False)
        self._pipe = ours
        for group in self._groups:
            self._write(ours, group, is_there=True)

    @staticmethod
    def _write(pipe: int, group: int, is_there: bool) -> bool:  # noqa: FBT001
        # A line is written whole or not at all: it is far below PIPE_BUF.
        line = f"{'+' if is_there else '-'}{group}\n".encode()
        try:
            os.write(pipe, line)
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _drop(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def start_over(self) -> None:
        """
        Forget the commands of the parent, in a forked child: its end is not theirs.
        """
        self._lock = threading.Lock()
        self._groups = set()
        self._drop()


leash = Leash()

os.register_at_fork(after_in_child=leash.start_over)


def main() -> None:
    """
    Hold the groups that standard input names, and end them when it closes.
    """
    # The starter waits for its child only, and must not be asked to reap this one.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while groups and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        groups = _signal(groups, 0)
    _signal(groups, signal.SIGKILL)


def _signal(groups: set[int], number: int) -> set[int]:
    """
    Send *number* to *groups*; return those that were there.
    """
    there = set()
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            there.add(group)
    return there


if __name__ == "__main__":
    main()
