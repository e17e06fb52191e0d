"""
A time limit that the client keeps: for servers that hang without a word.

The server's own statement_timeout ends slow statements. It can't help when the server
process is stopped, or its machine is gone behind a connection that still looks alive:
then a call would wait for ever in a read. So one thread watches all calls in flight,
and shuts down the socket of one that is overdue. The read then ends as it does when a
server goes away, in either colour, and the connection is replaced.
"""

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass

__all__ = ["Watch", "unwatch", "watch"]


@dataclass(eq=False, slots=True)
class Watch:
    """
    One call in flight.
    """

    descriptor: int
    deadline: float


class _Watchdog:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watches: set[Watch] = set()
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None

    def add(self, one: Watch) -> None:
        with self._condition:
            self._watches.add(one)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="jobstore-watchdog", daemon=True
                )
                self._thread.start()
            elif one.deadline < self._wakes_at:
                # Rare: calls come with the same limit, so the next is due later.
                self._condition.notify()

    def remove(self, one: Watch) -> None:
        with self._condition:
            self._watches.discard(one)

    def _run(self) -> None:
        with self._condition:
            while True:
                now = time.monotonic()
                for one in [one for one in self._watches if one.deadline <= now]:
                    # Under the lock: whoever owns the descriptor is still waiting to
                    # remove its watch, so the number can't belong to another file.
                    self._watches.discard(one)
                    _shut_down(one.descriptor)
                self._wakes_at = min(
                    (one.deadline for one in self._watches), default=float("inf")
                )
                self._condition.wait(self._wakes_at - now if self._watches else None)


_watchdog = _Watchdog()


def watch(descriptor: int, seconds: float) -> Watch:
    """
    Have the socket *descriptor* shut down unless `unwatch` comes within *seconds*.
    """
    one = Watch(descriptor, time.monotonic() + seconds)
    _watchdog.add(one)
    return one


def unwatch(one: Watch) -> None:
    """
    End the watch. Twice is fine.
    """
    _watchdog.remove(one)


def _shut_down(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        duplicate = socket.socket(fileno=os.dup(descriptor))
        with contextlib.closing(duplicate), contextlib.suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)


def _after_fork() -> None:
    global _watchdog  # noqa: PLW0603 - the thread did not come along; begin anew
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_after_fork)
