"""
What the contract suite asks for beside a store: a hand that reaches behind it.

The suite is written once, against the synchronous verbs. An asynchronous store is
driven through `Awaited`, so neither needs a plugin for pytest.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest

from jobstore.async_store import AsyncStore
from jobstore.errors import JobstoreError, StoreBusy
from jobstore.lifecycle import JobClass, JobStatus
from jobstore.memory import AsyncMemoryStore, MemoryStore
from jobstore.retry import RetryPolicy
from jobstore.store import Store

__all__ = [
    "MAX_PAYLOAD_BYTES",
    "RETRY",
    "AsyncMemoryHarness",
    "Harness",
    "MemoryHarness",
    "Verb",
    "awaited",
    "together",
]

Verb = Callable[[Any], Any]
"""A call of one verb; given the store, or its asynchronous twin."""

RETRY = RetryPolicy(
    initial=timedelta(seconds=10), factor=2, cap=timedelta(minutes=1), jitter=0
)
"""The retry policy that the store under test must be made with."""

MAX_PAYLOAD_BYTES = 100_000
"""The ``max_payload_bytes`` that the store under test must be made with."""


class Harness(ABC):
    """
    A store under test, empty, and ways to change its jobs as no verb would.

    Subclass it for a store of your own. `age` is needed; what your store cannot do of
    the others skips the few tests that ask for it.
    """

    store: Store

    @abstractmethod
    def age(self, job_id: str, by: timedelta) -> None:
        """
        Move heartbeat_at, available_at and finished_at of a job into the past.

        Tests make time go by with this; none of them sleeps.
        """

    def edit(self, job_id: str, **columns: object) -> None:
        """
        Overwrite columns of a job, as an operator with psql could.
        """
        pytest.skip(f"no hand here to set {sorted(columns)} of {job_id}")

    def remove_payload(self, job_id: str) -> None:
        """
        Delete the payload and leave the job.
        """
        pytest.skip(f"no hand here to remove the payload of {job_id}")

    def delete(self, job_id: str) -> None:
        """
        Delete the job with payload and history, and leave its key.
        """
        pytest.skip(f"no hand here to delete {job_id}")

    def at_once(self, verbs: Sequence[Verb]) -> list[Any]:
        """
        Call *verbs* at the same time; return what each answered or raised, in order.

        One that meets `StoreBusy` is repeated, as that error says. Each gets the
        store; for an asynchronous one that is the store itself, and what the call
        returns is awaited together with the others (see `together`).
        """
        gate = threading.Barrier(len(verbs))

        def call(verb: Verb) -> object:
            gate.wait()
            while True:
                try:
                    return verb(self.store)
                except StoreBusy:
                    continue
                except JobstoreError as error:
                    return error

        with ThreadPoolExecutor(len(verbs)) as threads:
            return list(threads.map(call, verbs))

    def close(self) -> None:
        """
        Close the store.
        """
        self.store.close()


class MemoryHarness(Harness):
    """
    A `MemoryStore` under test.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._memory = store or MemoryStore(
            retry=RETRY, max_payload_bytes=MAX_PAYLOAD_BYTES
        )
        self._state = self._memory._state  # noqa: SLF001 - reaching behind it
        self.store = self._memory

    def age(self, job_id: str, by: timedelta) -> None:
        job = self._state.job(job_id)
        names = ("heartbeat_at", "available_at", "finished_at")
        times = {name: getattr(job, name) for name in names}
        self.edit(job_id, **{name: at - by for name, at in times.items() if at})

    def edit(self, job_id: str, **columns: object) -> None:
        words = {"status": JobStatus, "job_class": JobClass}
        values = {
            name: words[name](str(value)) if name in words else value
            for name, value in columns.items()
        }
        with self._state.transaction() as state:
            job = state.job(job_id)
            state.change(job, **{"updated_at": job.updated_at, **values})

    def remove_payload(self, job_id: str) -> None:
        del self._state.payloads[job_id]

    def delete(self, job_id: str) -> None:
        with self._state.transaction() as state:
            state.delete_job(state.job(job_id))


class AsyncMemoryHarness(MemoryHarness):
    """
    An `AsyncMemoryStore` under test.
    """

    def __init__(self) -> None:
        twin = AsyncMemoryStore(retry=RETRY, max_payload_bytes=MAX_PAYLOAD_BYTES)
        super().__init__(twin.blocking)
        self._runner = asyncio.Runner()
        self._twin = twin
        self.store = awaited(twin, self._runner)

    def at_once(self, verbs: Sequence[Verb]) -> list[Any]:
        return together(self._twin, self._runner, verbs)

    def close(self) -> None:
        super().close()
        self._runner.close()


def together(
    store: AsyncStore, runner: asyncio.Runner, verbs: Sequence[Verb]
) -> list[Any]:
    """
    Run *verbs* of an asynchronous store at the same time, for `Harness.at_once`.
    """

    async def call(verb: Verb) -> object:
        while True:
            try:
                return await verb(store)
            except StoreBusy:
                continue
            except JobstoreError as error:
                return error

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*(call(verb) for verb in verbs))

    return runner.run(all_of_them())


def awaited(store: AsyncStore, runner: asyncio.Runner) -> Store:
    """
    Return *store* with synchronous verbs, each run to its end by *runner*.
    """
    return cast("Store", _Awaited(store, runner))


class _Awaited:
    def __init__(self, store: AsyncStore, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in {"listen", "dedicated"}:
            verb: Callable[..., Any] = getattr(self._store.blocking, name)
            return verb
        asynchronous = getattr(self._store, name)

        def synchronous(*args: object, **kwargs: object) -> object:
            return self._runner.run(asynchronous(*args, **kwargs))

        return synchronous
