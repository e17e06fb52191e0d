"""
What a worker was told to do. Orders may come from any thread and from signal handlers.

A signal handler interrupts its thread at any point, also inside a lock it would need
itself. So there is no lock here: two flags, and a queue whose `put` is reentrant.
"""

import contextlib
import queue
import time
from collections.abc import Callable

__all__ = ["Orders"]

# The system may deliver a signal to another thread than the main one (a process that
# was just continued does). Python then runs its handler only when the main thread next
# comes to run anything at all.
_LONGEST_NAP_SECONDS = 0.5


class Orders:
    """
    Stop, stop at once, and the news that somebody waits for.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self.is_at_once = False
        self.crash: BaseException | None = None
        """The error that ended a loop of the worker; it stops the rest."""
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def stop(self, *, at_once: bool = False) -> None:
        self.is_stopping = True
        self.is_at_once = self.is_at_once or at_once
        self.ring()

    def crashed(self, error: BaseException) -> None:
        self.crash = self.crash or error
        self.stop(at_once=True)

    def ring(self) -> None:
        """
        Have whoever waits look again.
        """
        self._bell.put(None)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float | None = None
    ) -> bool:
        """
        Wait until *condition* holds, looking at each ring; False if time ran out.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not condition():
            nap = _LONGEST_NAP_SECONDS
            if until is not None:
                nap = min(nap, until - time.monotonic())
            if nap <= 0:
                return False
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=nap)
        return True
