"""
The worker: claims jobs, runs their handlers, commits what comes of it.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from jobstore.async_store import AsyncStore
from jobstore.errors import InvalidInput, JobstoreError
from jobstore.ids import process_name
from jobstore.lifecycle import JobClass
from jobstore.store import Store
from jobstore.worker.event_loop import EventLoopThread
from jobstore.worker.health import LoopHealth, WorkerHealth, WorkerState
from jobstore.worker.orders import Orders
from jobstore.worker.registry import Choice, Handler
from jobstore.worker.running import Running
from jobstore.worker.settings import Settings
from jobstore.worker.signals import stopped_by_signals

__all__ = ["Worker", "WorkerCrashed"]

_JOIN_SECONDS = 2.0


class WorkerCrashed(Exception):
    """
    A loop of the worker ended by a fault of its own; that error is the cause.

    The worker has stopped: what it held was given back, or comes back by its
    visibility timeout. Restart the process.
    """


class Worker:
    """
    Claims jobs and runs their handlers, until it is told to stop. To be used once.

    Args:
        store: A store of either colour. The worker makes connections of its own for its
            loops, and closes only those; handlers use *store* through their context.
        handlers: By kind; a dict or `Handlers`. Plain functions run in threads,
            coroutine functions on an event loop. ``"*"`` takes every other kind.
        concurrency: Most handlers at once, 1 to 10,000.
        queues: The queues to claim from, by turns.
        job_class: Only this class; None takes all, best class first.
        visibility_timeout: A lease without a heartbeat for this long is taken from its
            worker, whichever worker that is; from 1 s. Give all workers the same.
        heartbeat_every: None: a quarter of *visibility_timeout*, at most 15 s. It may
            be up to half of it.
        grace: How long running handlers may go on after a stop.
        poll_every: How often an idle worker looks for work that no wake-up told of;
            jittered by a quarter.
        prune_after: Delete jobs that ended this long ago; None never does.
        keep_keys_for: When pruning, how long an idempotency key is good for.
        upkeep_every: How often this worker queues due jobs and ends stale leases, of
            whichever worker. None: a quarter of *visibility_timeout*, at most 5 s.
        wake_ups: Listen for wake-ups, where the store has them.
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
        poll_every: timedelta = timedelta(seconds=1),
        prune_after: timedelta | None = None,
        keep_keys_for: timedelta = timedelta(0),
        upkeep_every: timedelta | None = None,
        wake_ups: bool = True,
        name: str | None = None,
    ) -> None:
        self._settings = Settings(
            concurrency=concurrency,
            queues=queues,
            job_class=job_class,
            visibility_timeout=visibility_timeout,
            heartbeat_every=heartbeat_every,
            grace=grace,
            poll_every=poll_every,
            prune_after=prune_after,
            keep_keys_for=keep_keys_for,
            upkeep_every=upkeep_every,
            wake_ups=wake_ups,
            name=process_name() if name is None else name,
        )
        if not handlers:
            raise InvalidInput("handlers", handlers, "must not be empty")
        self._handlers = Choice(handlers)
        self._store = store.blocking if isinstance(store, AsyncStore) else store
        self._orders = Orders()
        self._state = WorkerState.NEW
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._started_at = 0.0

    @property
    def name(self) -> str:
        """
        Who claims, for operators.
        """
        return self._settings.name

    def run(self) -> None:
        """
        Work until stopped. In the main thread SIGTERM and SIGINT stop it, and a second
        one stops it at once.

        Raises:
            SchemaError: The database has no tables for this code.
            WorkerCrashed: A loop of the worker failed by a fault of its own.
        """
        self._begin()
        with stopped_by_signals(self._on_signal):
            thread = EventLoopThread() if self._handlers.has_async else None
            try:
                self._work(thread.loop if thread is not None else None)
            finally:
                if thread is not None:
                    thread.stop(_JOIN_SECONDS)
        self._raise_crash()

    async def serve(self) -> None:
        """
        Work until stopped, with async handlers on the running event loop.

        Takes no signals: use ``loop.add_signal_handler(signal.SIGTERM, worker.stop)``.
        When the awaiting task is cancelled, the worker stops at once, and the
        cancellation goes on when it has.

        Raises:
            SchemaError: As `run`.
            WorkerCrashed: As `run`.
        """
        self._begin()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def work() -> None:
            try:
                self._work(loop)
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                self._orders.crashed(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=work, name="jobstore-worker", daemon=True).start()
        cancelled: asyncio.CancelledError | None = None
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError as error:
                # A stop has a bound; leaving now would leave its threads behind.
                cancelled = error
                self.stop(at_once=True)
        if cancelled is not None:
            raise cancelled
        self._raise_crash()

    def stop(self, *, at_once: bool = False) -> None:
        """
        Take no more jobs, let those in hand finish, and end.

        From any thread, from a signal handler, before the start, and any number of
        times. After the grace time, or *at_once*, handlers are told to break off, and
        what is left is given back, not charged.
        """
        self._orders.stop(at_once=at_once)

    def wake(self, queue: str | None = None) -> None:
        """
        Look for work in *queue* now, None: in all. A hint, from any thread.
        """
        running = self._running
        if running is not None:
            running.claimer.wake(queue)

    def health(self) -> WorkerHealth:
        """
        Say how the worker is. Cheap, and from any thread.
        """
        running = self._running
        state = self._state
        if state is WorkerState.RUNNING and self._orders.is_stopping:
            state = WorkerState.STOPPING
        if running is None:
            return WorkerHealth(state=state)
        loops = {
            name: LoopHealth(
                age=loop.age(self._started_at),
                allowance=loop.allowance,
                is_alive=loop.is_alive,
                failure=loop.failure.code if loop.failure is not None else None,
            )
            for name, loop in running.loops.items()
        }
        if running.tasks is not None:
            age = timedelta(seconds=time.monotonic() - running.tasks.worked_at)
            loops["handlers"] = LoopHealth(
                age=age, allowance=timedelta(seconds=30), is_alive=True, failure=None
            )
        counts = running.finisher.counts
        return WorkerHealth(
            state=state,
            loops=loops,
            held=len(running.jobs),
            busy=running.jobs.busy,
            waiting_for_commit=running.finisher.backlog,
            claimed=running.claimer.claimed,
            completed=counts.completed,
            failed=counts.failed,
            released=counts.released,
            snoozed=counts.snoozed,
            dropped=counts.dropped,
            reclaimed=running.upkeep.reclaimed,
            pruned=running.upkeep.pruned,
        )

    def _begin(self) -> None:
        with self._lock:
            if self._state is not WorkerState.NEW:
                raise RuntimeError("a worker is used once; make another")
            self._state = WorkerState.RUNNING
        self._started_at = time.monotonic()

    def _work(self, event_loop: asyncio.AbstractEventLoop | None) -> None:
        try:
            if not self._orders.is_stopping:
                self._running = Running(
                    self._settings,
                    self._handlers,
                    self._store,
                    self._orders,
                    event_loop if self._handlers.has_async else None,
                )
                self._running.work()
        finally:
            self._state = (
                WorkerState.STOPPED
                if self._orders.crash is None
                else WorkerState.CRASHED
            )

    def _on_signal(self, is_second: bool) -> None:  # noqa: FBT001 - a callback
        self.stop(at_once=is_second)

    def _raise_crash(self) -> None:
        crash = self._orders.crash
        if isinstance(crash, JobstoreError):
            raise crash
        if crash is not None:
            raise WorkerCrashed(f"{type(crash).__name__}: {crash}") from crash
