"""
What the worker's tests share: a store that fails on demand, a worker in a thread, and
waiting for a condition.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

from jobstore.errors import JobstoreError
from jobstore.model import Job, NewJob
from jobstore.store import Store
from jobstore.worker import Worker

__all__ = ["FaultyStore", "Harness", "until"]

PATIENCE_SECONDS = 20.0

# What a worker asks of a store.
_VERBS = (
    "attempts",
    "claim",
    "fan_out",
    "get",
    "heartbeat",
    "list_children",
    "payload",
    "promote_due",
    "prune",
    "reclaim_stale",
    "repair_families",
    "set_results",
)


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """
    Wait for *condition*, looking often.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


class FaultyStore:
    """
    A store whose verbs can be made to fail, to hang, and to be watched.

    Stores that it hands out, by `dedicated`, share its faults.
    """

    def __init__(self, store: Store, shared: "FaultyStore | None" = None) -> None:
        self._store = store
        self._lock: threading.Lock = (
            threading.Lock() if shared is None else shared._lock
        )
        self._faults: dict[str, list[Any]] = {} if shared is None else shared._faults
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = (
            [] if shared is None else shared.calls
        )

    def dedicated(self) -> "FaultyStore":
        return FaultyStore(self._store.dedicated(), self)

    def fail(self, verb: str, *errors: BaseException) -> None:
        """
        Have the next calls of *verb* raise *errors*, one each, before they do anything.
        """
        with self._lock:
            self._faults.setdefault(verb, []).extend(errors)

    def fail_after(self, verb: str, *errors: BaseException) -> None:
        """
        Have the next calls of *verb* do their work, and raise *errors* all the same.
        """
        with self._lock:
            self._faults.setdefault(verb, []).extend(("after", one) for one in errors)

    @contextlib.contextmanager
    def away(self, make_error: Callable[[], JobstoreError]) -> Iterator[None]:
        """
        Have all verbs that a worker uses raise.
        """
        with self._lock:
            before = dict(self._faults)
            for verb in _VERBS:
                self._faults[verb] = [("always", make_error)]
        try:
            yield
        finally:
            with self._lock:
                self._faults.clear()
                self._faults.update(before)

    @contextlib.contextmanager
    def hanging(
        self, verb: str, *, after: bool = False, keep: bool = False
    ) -> Iterator[threading.Event]:
        """
        Have calls of *verb* wait until the end of the block, before or *after* their
        work; give an event that tells that one does.

        Args:
            keep: Leave other faults of the verb as they are.
        """
        entered, leave = threading.Event(), threading.Event()

        def hang() -> None:
            entered.set()
            leave.wait(PATIENCE_SECONDS)

        with self._lock:
            before = self._faults.get(verb)
            self._faults[verb] = [("hang after" if after else "hang", hang)]
        try:
            yield entered
        finally:
            with self._lock:
                self._faults.pop(verb, None)
                if keep and before:
                    self._faults[verb] = before
            leave.set()

    def judge(self, verb: str, judge: Callable[..., BaseException | None]) -> None:
        """
        Have *judge* say, from its arguments, what a call of *verb* is to raise.
        """
        with self._lock:
            self._faults[verb] = [("judge", judge)]

    def count(self, verb: str) -> int:
        return sum(name == verb for name, *_ in list(self.calls))

    def __getattr__(self, verb: str) -> Any:
        function = getattr(self._store, verb)
        if not callable(function):
            return function

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append((verb, args, options))
            fault = self._next_fault(verb)
            if isinstance(fault, BaseException):
                raise fault
            kind: str
            what: Any
            kind, what = fault or ("", None)
            if kind == "always":
                raise what()
            if kind == "hang":
                what()
            if kind == "judge" and (error := what(*args, **options)) is not None:
                raise error
            answer = function(*args, **options)
            if kind == "hang after":
                what()
            if kind == "after":
                raise what
            return answer

        return call

    def _next_fault(self, verb: str) -> Any:
        with self._lock:
            faults = self._faults.get(verb)
            if not faults:
                return None
            is_for_once = (
                isinstance(faults[0], BaseException) or faults[0][0] == "after"
            )
            return faults.pop(0) if is_for_once else faults[0]


class Harness:
    """
    One test's store and workers. Ends what the test leaves running.
    """

    def __init__(self, store: Store) -> None:
        self.faults = FaultyStore(store)
        self.store = cast("Store", self.faults)
        self.behind = store
        """The store itself, without faults."""
        self.running: list[RunningWorker] = []
        self._ended = contextlib.ExitStack()

    def create(self, kind: str = "k", payload: bytes = b"", **options: Any) -> str:
        new = NewJob(kind=kind, payload=payload, **options)
        return self.behind.create(new).job.id

    def job(self, job_id: str) -> Job:
        return self.behind.get(job_id)

    def worker(self, handlers: Any, **options: Any) -> "RunningWorker":
        """
        Start a worker in a thread; a function alone handles every kind.
        """
        given = handlers if hasattr(handlers, "items") else {"*": handlers}
        options.setdefault("poll_every", timedelta(milliseconds=20))
        options.setdefault("upkeep_every", timedelta(milliseconds=50))
        # Tests poll; to stop listening takes a second.
        options.setdefault("wake_ups", False)
        running = RunningWorker(Worker(self.store, given, **options))
        self.running.append(running)
        self._ended.callback(running.end)
        return running

    def ended(self, job_id: str, seconds: float = PATIENCE_SECONDS) -> Job:
        """
        Wait for the job to end, and return it.
        """
        until(lambda: self.job(job_id).finished_at, seconds)
        return self.job(job_id)

    def close(self) -> None:
        self._ended.close()


class RunningWorker:
    """
    A worker in a thread of its own.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def stop(self, *, at_once: bool = False) -> None:
        """
        Stop it, and wait until it has.
        """
        self.worker.stop(at_once=at_once)
        self.join()

    def join(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the worker does not end"

    def end(self) -> None:
        self.stop(at_once=True)
