"""
File locks that the kernel lets go of when a process ends, however it ends.

These are ``flock`` locks. They belong to an open file, not to a process: a child that
inherits the file keeps the lock alive, and closing the last copy ends it. That is
what makes them say the truth about a server whose starter was killed.
"""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

__all__ = ["FileLock"]


class FileLock:
    """
    One open lock file. Held after `acquire`, until `close`.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        return self._file

    def acquire(
        self, kind: Literal["shared", "exclusive"], *, timeout: float = 0
    ) -> bool:
        """
        Try for *timeout* seconds; with none, try once. Return whether it is held.
        """
        operation = fcntl.LOCK_SH if kind == "shared" else fcntl.LOCK_EX
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._file, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
            else:
                return True

    def close(self) -> None:
        """
        Close this copy of the file. The lock ends with the last copy of it.
        """
        # Never LOCK_UN: it would take the lock from a child that inherited it too.
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
