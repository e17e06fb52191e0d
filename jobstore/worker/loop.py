"""
A loop that does not give up: a thread, its pauses, and when it last did well.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from jobstore.errors import InvalidInput, JobstoreError, SchemaError
from jobstore.retry import RetryPolicy

__all__ = ["Loop"]

_log = logging.getLogger("jobstore.worker")

_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=10)
# A loop with nothing to do looks up this often, to show that it is alive.
_LONGEST_NAP_SECONDS = 5.0


class Loop:
    """
    Runs *step* again and again in a thread, until it is ended.

    *step* returns how many seconds to wait before the next one; `wake` cuts the wait
    short. When the store fails, the loop says so once, and tries again with capped,
    jittered backoff, for ever. Any other error is a fault of the worker: the loop ends,
    and *crashed* is told. So it does if there are no tables for this code at the start.

    Args:
        name: For the thread, the log and health.
        step: What to do. Raising a `JobstoreError` means that it is to be done again.
        crashed: Called with the error that ended the loop.
        allowance: How long a step may take before health calls the loop late.
        longest_pause: The backoff's cap.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        crashed: Callable[[BaseException], None],
        *,
        allowance: timedelta = timedelta(seconds=30),
        longest_pause: timedelta = _LONGEST_PAUSE,
    ) -> None:
        self.name = name
        self.allowance = allowance
        self.worked_at: float | None = None
        """When a step last went well, by the monotonic clock; None: never yet."""
        self.failure: JobstoreError | None = None
        """What it is failing with at present."""
        self.has_crashed = False
        self._step = step
        self._crashed = crashed
        self._backoff = RetryPolicy(
            initial=min(_FIRST_PAUSE, longest_pause), cap=longest_pause
        )
        self._failures = 0
        self._failing_since = 0.0
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"jobstore-{name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """
        Have the next step done now. Does not cut short a pause after a failure.
        """
        self._wake.set()

    def end(self) -> None:
        """
        Make no further step. `join` waits for the one that is under way.
        """
        self._ending.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """
        Wait for the thread to end; return whether it has.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def age(self, since: float) -> timedelta:
        """
        Return how long ago the loop last did well; *since* the start if it never did.
        """
        return timedelta(seconds=time.monotonic() - (self.worked_at or since))

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._wake.clear()
                try:
                    pause = self._step()
                except InvalidInput:
                    raise  # we asked for something that no store can do
                except JobstoreError as error:
                    if isinstance(error, SchemaError) and self.worked_at is None:
                        raise  # there is nothing to come back to
                    self._ending.wait(self._failed(error))
                    continue
                self._worked()
                self._rest(pause)
        except BaseException as error:  # noqa: BLE001 - told to whoever runs the worker
            self.has_crashed = True
            self._crashed(error)

    def _rest(self, pause: float) -> None:
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            if self._wake.wait(min(left, _LONGEST_NAP_SECONDS)):
                return
            self.worked_at = time.monotonic()

    def _failed(self, error: JobstoreError) -> float:
        if self.failure is None:
            self._failing_since = time.monotonic()
            _log.warning(
                "%s: %s (%s); trying again until it works", self.name, error, error.code
            )
        else:
            _log.debug("%s: still failing: %s (%s)", self.name, error, error.code)
        self.failure = error
        self._failures += 1
        return self._backoff.delay(self._failures).total_seconds()

    def _worked(self) -> None:
        self.worked_at = time.monotonic()
        if self.failure is not None:
            away = self.worked_at - self._failing_since
            _log.warning(
                "%s: works again after %.1f s, %d failures",
                self.name,
                away,
                self._failures,
            )
            self.failure = None
            self._failures = 0
