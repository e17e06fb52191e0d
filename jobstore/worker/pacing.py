"""
Loops that don't give up: a thread, its pauses, and when it last did well.
"""

import logging
import random
import threading
import time
from collections.abc import Callable

from jobstore.errors import OutcomeUnknown, StoreUnavailable

__all__ = ["Backoff", "Loop"]

_log = logging.getLogger("jobstore.worker")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 15.0


class Backoff:
    """
    Growing, jittered pauses while something is away; logs when it goes and comes.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pause = _FIRST_PAUSE_SECONDS
        self._failing_since: float | None = None

    def failed(self, error: Exception) -> float:
        """
        Note a failure; return how many seconds to pause.
        """
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            _log.warning("%s: %s: %s", self._what, type(error).__name__, error)
        pause = self._pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause

    def worked(self) -> None:
        """
        Note a success.
        """
        if self._failing_since is not None:
            away = time.monotonic() - self._failing_since
            _log.warning("%s: working again after %.1f s", self._what, away)
            self._failing_since = None
        self._pause = _FIRST_PAUSE_SECONDS


class Loop:
    """
    Runs *step* again and again in a thread, until it is stopped.

    *step* returns how many seconds to wait before the next one; `poke` ends the wait.
    A database that is away is waited for, with backoff, for ever. Any other error is a
    fault of the worker: the loop ends and *crashed* is told.

    Args:
        name: For the thread and for health.
        step: What to do.
        crashed: Called with the error that ended the loop.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.worked_at = time.monotonic()
        """When a step last went well, by the monotonic clock."""
        self._step = step
        self._crashed = crashed
        self._backoff = Backoff(name)
        self._poke = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"jobstore-{name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """
        Have the next step done now.
        """
        self._poke.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout: float) -> None:
        """
        End the loop after the step it is in, and wait for that up to *timeout* seconds.
        """
        self._stop.set()
        self._poke.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    pause = self._step()
                except (StoreUnavailable, OutcomeUnknown) as error:
                    pause = self._backoff.failed(error)
                    # Not by a poke: it would hammer a server that is coming up.
                    self._stop.wait(pause)
                    continue
                self._backoff.worked()
                self.worked_at = time.monotonic()
                if self._poke.wait(pause) or pause == 0:
                    self._poke.clear()
        except BaseException as error:  # noqa: BLE001 - told to whoever runs the worker
            self._crashed(error)
