"""
Running async handlers on an event loop, a batch at a time.

Per job there is one task and nothing else: no hop between threads, no timer, no lock.
Claims come in by one call for each batch; outcomes go out by one for each turn of the
loop, so that what was finished together is also written together.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from jobstore.worker.context import Desk
from jobstore.worker.held import Ending, Held, HeldJobs
from jobstore.worker.registry import AsyncHandler
from jobstore.worker.run import call_async

__all__ = ["Tasks"]

_log = logging.getLogger("jobstore.worker")

_TICK_SECONDS = 1.0
# A handler that keeps the event loop to itself for so long is worth a word.
_BLOCKED_SECONDS = 5.0


class Tasks:
    """
    The tasks of a worker's async handlers.

    Args:
        loop: Where they run; every method but `_on_loop` ones is for other threads.
        crashed: Told what went wrong in here.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        desk: Desk,
        jobs: HeldJobs,
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._desk = desk
        self._jobs = jobs
        self._crashed = crashed
        self._endings: list[Ending] = []
        self._ticker: asyncio.TimerHandle | None = None
        self.worked_at = time.monotonic()
        """When the event loop last came round."""

    def start(self) -> None:
        """
        Begin to watch the event loop.
        """
        self._call_soon(self._tick)

    def submit(self, batch: list[tuple[AsyncHandler, Held]]) -> None:
        """
        Start handlers, in the given order.
        """
        self._loop.call_soon_threadsafe(self._start, batch)

    def cancel(self, jobs: list[Held]) -> None:
        """
        Cancel the tasks of *jobs*, as far as they are still at work.
        """
        self._call_soon(self._cancel, jobs)

    def close(self) -> None:
        """
        Stop watching. What still runs is left to itself.
        """
        self._call_soon(self._untick)

    def _start(self, batch: list[tuple[AsyncHandler, Held]]) -> None:
        handlers = dict(zip((held for _, held in batch), batch, strict=True))
        for held in self._jobs.begin(handlers):
            held.task = self._loop.create_task(self._run(handlers[held][0], held))

    async def _run(self, handler: AsyncHandler, held: Held) -> None:
        ending = await call_async(handler, self._desk, held)
        held.task = None
        if not self._endings:
            self._loop.call_soon(self._hand_over)
        self._endings.append((held, ending))

    def _hand_over(self) -> None:
        endings, self._endings = self._endings, []
        try:
            self._jobs.end(endings)
        except BaseException as error:
            self._crashed(error)
            raise

    def _cancel(self, jobs: list[Held]) -> None:
        for held in jobs:
            if held.task is not None:
                held.task.cancel()

    def _tick(self) -> None:
        now = time.monotonic()
        blocked = now - self.worked_at - _TICK_SECONDS
        if blocked > _BLOCKED_SECONDS:
            _log.warning(
                "the event loop stood still for %.1f s: a handler blocks it; "
                "make it a plain function, or await",
                blocked,
            )
        self.worked_at = now
        self._ticker = self._loop.call_later(_TICK_SECONDS, self._tick)

    def _untick(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()

    def _call_soon(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left
            self._loop.call_soon_threadsafe(function, *args)
