"""
Running one job: call its handler, and turn whatever happens into an outcome.
"""

import asyncio
import inspect
import logging
import random
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from jobstore.errors import JobstoreError, LeaseLost
from jobstore.model import Failed, Lease, Outcome, Released, Snoozed, recordable
from jobstore.store import Store
from jobstore.worker.context import AsyncContext, Context, Done, JobFailed
from jobstore.worker.held import Held
from jobstore.worker.registry import ANY_KIND, Handler, outcome_of

__all__ = ["Runner", "failure_of"]

_log = logging.getLogger("jobstore.worker")

# A kind that nobody here knows is offered again after about this time: by then it has
# met another worker, or this one was replaced by a newer.
_UNKNOWN_KIND_SECONDS = 30.0


class Runner:
    """
    Starts handlers: coroutine functions on the event loop, others in threads.

    Args:
        handlers: By kind.
        store: For what handlers ask of it.
        loop: The event loop; `start` is to be called on it.
        finished: Called, from any thread, once for each job: with the outcome to
            commit, or None if there is none to commit. The job's hand is free then.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        store: Store,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Held, Outcome | None], None],
    ) -> None:
        self._handlers = handlers
        self._store = store
        self._loop = loop
        self._finished = finished
        self._is_async = {
            kind: _is_async(handler) for kind, handler in handlers.items()
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown: set[str] = set()
        self.is_stopping = False

    def start(self, held: Held) -> None:
        """
        Begin work on *held*.
        """
        kind = held.job.kind
        if kind not in self._handlers:
            if ANY_KIND not in self._handlers:
                self._refuse(held)
                return
            kind = ANY_KIND
        handler = self._handlers[kind]
        if self._is_async[kind]:
            task = self._loop.create_task(self._run_async(handler, held))
            held.interrupt = lambda: _call_soon(self._loop, task.cancel)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            # Daemons: a handler that does not come back must not keep the process.
            threading.Thread(
                target=self._run_sync,
                args=(handler, held),
                name=f"jobstore-{held.lease.job_id}",
                daemon=True,
            ).start()

    def settle(self, held: Held, outcome: Outcome | None) -> None:
        """
        Pass on *outcome* if it is the first word on this job.
        """
        if held.settle():
            self._finished(held, outcome)
        else:
            self._finished(held, None)

    async def cancel_all(self, seconds: float) -> None:
        """
        Interrupt the coroutines that still run, and wait for them, *seconds* at most.
        """
        self.is_stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _refuse(self, held: Held) -> None:
        kind = held.job.kind
        if kind not in self._unknown:
            self._unknown.add(kind)
            _log.warning("no handler for kind %r: its jobs are given back", kind)
        seconds = _UNKNOWN_KIND_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311
        self.settle(held, Snoozed(timedelta(seconds=seconds)))

    async def _run_async(self, handler: Handler, held: Held) -> None:
        outcome: Outcome | None
        try:
            context = AsyncContext(self._store, held)
            answer = outcome_of(await handler(context))  # type: ignore[arg-type, misc]
            outcome = None if isinstance(answer, Done) else answer
        except asyncio.CancelledError:
            outcome = self._interrupted(held)
        except BaseException as error:  # noqa: BLE001 - a job's outcome, whatever it is
            outcome = failure_of(error, held.lease)
        self.settle(held, outcome)

    def _run_sync(self, handler: Handler, held: Held) -> None:
        outcome: Outcome | None
        try:
            context = Context(self._store, held)
            answer = outcome_of(handler(context))  # type: ignore[arg-type]
            outcome = None if isinstance(answer, Done) else answer
        except BaseException as error:  # noqa: BLE001 - as above
            outcome = failure_of(error, held.lease)
        self.settle(held, outcome)

    def _interrupted(self, held: Held) -> Outcome | None:
        if held.is_lost:
            return None
        if self.is_stopping:
            return Released()
        return Failed("CANCELLED_ERROR", "the handler was cancelled by something else")


def failure_of(error: BaseException, lease: Lease) -> Outcome | None:
    """
    Turn what a handler raised into an outcome; None where its *lease* is gone anyway.

    The code is the name of the exception's class: short, stable, and countable.
    """
    try:
        if isinstance(error, LeaseLost) and (error.job_id, error.fence) == lease.token:
            return None
        if isinstance(error, JobFailed):
            return Failed(
                error.error_code,
                error.error_message,
                final=error.final,
                retry_in=error.retry_in,
            )
        code = error.code if isinstance(error, JobstoreError) else type(error).__name__
    except Exception:  # noqa: BLE001 - a class made from ours, without its attributes
        code = type(error).__name__
    return Failed(code, recordable(error))


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", handler)  # noqa: B004 - objects with one
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        _log.debug("the event loop is closed already")
