"""
Threads for plain functions. They do not keep a process from ending.

`concurrent.futures` joins its threads when the interpreter exits; a handler that never
comes back would then hold a stopped worker for ever. These are daemons.
"""

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Threads"]

T = TypeVar("T")

Work = Callable[[], object]


class Threads:
    """
    Up to *limit* threads, made when needed, which do work in the order it came.

    Args:
        name: What the threads are called.
        limit: Most threads.
        crashed: Told what work raised; work deals with its own errors.
    """

    def __init__(
        self, name: str, limit: int, crashed: Callable[[BaseException], None]
    ) -> None:
        self._name = name
        self._limit = limit
        self._crashed = crashed
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._numbers = itertools.count(1)

    def submit(self, work: Work) -> None:
        """
        Have *work* done by an idle thread, a new one, or the next that is free.
        """
        self._work.put(work)
        if self._idle.acquire(blocking=False):
            return
        with self._lock:
            if self._started == self._limit:
                return
            self._started += 1
        threading.Thread(
            target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True
        ).start()

    async def call(self, function: Callable[[], T]) -> T:
        """
        Return what *function* returns in one of the threads.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return  # whoever waited has been cancelled
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]  # then it is a T
            else:
                answer.set_exception(error)

        def work() -> None:
            result, failure = None, None
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, result, failure)

        self.submit(work)
        return await answer

    def close(self) -> None:
        """
        Let idle threads end; those at work end after it.
        """
        with self._lock:
            started, self._started = self._started, self._limit
        for _ in range(started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - a fault of the worker
                self._crashed(error)
            del work
            self._idle.release()
