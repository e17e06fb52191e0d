"""
The worker: claims jobs and runs their handlers, until it is told to stop.

Every loop is a thread that drives a synchronous store over connections of its own; only
coroutine handlers run on the event loop. So nothing a handler does can keep a lease
from being renewed or an outcome from being committed.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

from jobstore.async_store import AsyncStore
from jobstore.errors import InvalidInput
from jobstore.ids import process_name
from jobstore.lifecycle import JobClass
from jobstore.model import check_duration
from jobstore.store import Store
from jobstore.worker.health import WorkerHealth
from jobstore.worker.registry import Handler, check_handlers
from jobstore.worker.running import Running
from jobstore.worker.settings import WorkerSettings

__all__ = ["Worker", "WorkerCrashed"]

_log = logging.getLogger("jobstore.worker")

_SECOND = timedelta(seconds=1)

_SignalHandler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


class WorkerCrashed(Exception):
    """
    A loop of the worker ended by a fault of its own; its error is the cause.

    What was held comes back by its visibility timeout. Restart the process.
    """


class Worker:
    """
    Claims jobs and runs their handlers, until it is told to stop.

    Args:
        store: A store of either colour. The worker makes connections of its own, and
            closes only those.
        handlers: By kind; see `Handlers`. Plain functions run in threads, coroutine
            functions on the event loop.
        concurrency: Most jobs in hand at once, 1 to 10,000.
        queues: The queues to claim from, by turns.
        job_class: Only this class; None takes all, best class first.
        visibility_timeout: A lease without a heartbeat for this long is taken from its
            worker, from 1 s. The same for all workers of a queue.
        heartbeat_every: None: a quarter of *visibility_timeout*. At most half of it.
        grace: How long running handlers may go on after a stop.
        poll_every: How often an idle worker looks for work that no wake-up told of.
        upkeep_every: How often this worker sweeps; None: a quarter of
            *visibility_timeout*.
        prune_after: Delete jobs that ended this long ago; None never does.
        keep_keys_for: When pruning, how long an idempotency key is good for.
        name: For operators; None names this process start.

    Raises:
        InvalidInput: An argument does not fit.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        queues: Sequence[str] = ("default",),
        job_class: JobClass | None = None,
        visibility_timeout: timedelta = timedelta(seconds=60),
        heartbeat_every: timedelta | None = None,
        grace: timedelta = timedelta(seconds=30),
        poll_every: timedelta = _SECOND,
        upkeep_every: timedelta | None = None,
        prune_after: timedelta | None = None,
        keep_keys_for: timedelta = timedelta(0),
        name: str | None = None,
    ) -> None:
        blocking = store.blocking if isinstance(store, AsyncStore) else store
        if not callable(getattr(blocking, "dedicated", None)):
            raise InvalidInput("store", type(store), "must be a Store or an AsyncStore")
        check_handlers(handlers)
        check_duration("visibility_timeout", visibility_timeout, shortest=_SECOND)
        quarter = visibility_timeout / 4
        self._settings = WorkerSettings(
            concurrency=concurrency,
            queues=queues,
            job_class=job_class,
            visibility_timeout=visibility_timeout,
            heartbeat_every=quarter if heartbeat_every is None else heartbeat_every,
            grace=grace,
            poll_every=poll_every,
            upkeep_every=quarter if upkeep_every is None else upkeep_every,
            prune_after=prune_after,
            keep_keys_for=keep_keys_for,
            name=process_name() if name is None else name,
        )
        self._store = blocking
        self._handlers = dict(handlers)
        # Plain flags, no events: a signal handler sets them in the middle of anything.
        self._is_stopping = False
        self._is_at_once = False
        self._told: Callable[[], None] = lambda: None
        self._crash: BaseException | None = None
        self._running: Running | None = None

    @property
    def name(self) -> str:
        """
        Under which this worker claims.
        """
        return self._settings.name

    def run(self) -> None:
        """
        Work until stopped; SIGTERM and SIGINT stop it, a second one at once.

        Raises:
            WorkerCrashed: A loop of the worker failed by a fault of its own.
        """
        loop = asyncio.new_event_loop()
        before = self._take_signals()
        try:
            loop.run_until_complete(self.serve())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            _close(loop)

    async def serve(self) -> None:
        """
        Work until stopped, on the running event loop. Takes no signals.

        Cancelling it stops the worker as `stop` does. A worker that has been stopped
        stays so: it returns at once.

        Raises:
            WorkerCrashed: As `run`.
        """
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._told = lambda: _call_soon(loop, stopped.set)
        if self._is_stopping:
            return
        own = await asyncio.to_thread(self._store.dedicated)
        running = self._running = Running(
            self._settings,
            self._handlers,
            own,
            loop=loop,
            is_stopping=lambda: self._is_stopping,
            crashed=self._crashed,
        )
        try:
            running.start()
            if self._is_stopping:
                stopped.set()
            await stopped.wait()
        finally:
            # Also when this task is cancelled, and then to the end all the same.
            self._is_stopping = True
            if self._is_at_once:
                running.slots.give_up()
            await _to_the_end(asyncio.create_task(self._end(running, own)))
        if self._crash is not None:
            raise WorkerCrashed(type(self._crash).__name__) from self._crash

    def stop(self, *, at_once: bool = False) -> None:
        """
        Take no more jobs, let those in hand finish, and end.

        From any thread, from a signal handler, before the start, and any number of
        times. After *grace*, or *at_once*, what is left is released, not charged.
        """
        self._is_stopping = True
        if at_once:
            self._is_at_once = True
            if self._running is not None:
                self._running.slots.give_up()
        self._told()

    def wake(self, queue: str | None = None) -> None:
        """
        Look for work in *queue* now, None: in all. A hint, from any thread.
        """
        running = self._running
        if running is not None:
            running.claimer.wake(queue)

    def health(self) -> WorkerHealth:
        """
        Say how the worker is.
        """
        running = self._running
        if running is None:
            return WorkerHealth()
        now = time.monotonic()
        return WorkerHealth(
            is_running=not self._is_stopping,
            ages={
                one.name: timedelta(seconds=now - one.worked_at)
                for one in running.loops
            },
            dead=frozenset(one.name for one in running.loops if not one.is_alive),
            held=len(running.held),
            waiting_for_commit=running.finisher.backlog,
            completed=running.finisher.completed,
            failed=running.finisher.failed,
        )

    async def _end(self, running: Running, own: Store) -> None:
        await running.wind_down()
        self._running = None
        await asyncio.to_thread(own.close)

    def _crashed(self, error: BaseException) -> None:
        _log.error("a loop of the worker crashed", exc_info=error)
        self._crash = self._crash or error
        self.stop(at_once=True)

    def _take_signals(self) -> dict[int, _SignalHandler]:
        if threading.current_thread() is not threading.main_thread():
            return {}

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.stop(at_once=self._is_stopping)

        return {
            number: signal.signal(number, handle)
            for number in (signal.SIGTERM, signal.SIGINT)
        }


async def _to_the_end(task: asyncio.Task[None]) -> None:
    """
    Wait for *task* to end; pass a cancellation on only then.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    # A worker may be stopped again when its loop is closed already.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """
    Close *loop*, with a bound on what handlers left behind on it.
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
