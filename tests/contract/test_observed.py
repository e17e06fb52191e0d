from collections.abc import Iterator

import pytest

from jobstore.observe import Event, observed
from jobstore.testing import (
    AsyncMemoryHarness,
    Harness,
    MemoryHarness,
    StoreContract,
    awaited,
)


class ObservedHarness(MemoryHarness):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[Event] = []
        self.store = observed(self._memory, self.told.append, fails)


class AsyncObservedHarness(AsyncMemoryHarness):
    def __init__(self) -> None:
        super().__init__()
        self._twin = observed(self._twin, fails)  # type: ignore[assignment]
        self.store = awaited(self._twin, self._runner)


def fails(_event: Event) -> None:
    raise RuntimeError("a listener at fault")


class TestObservedStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = ObservedHarness()
        yield harness
        harness.close()


class TestAsyncObservedStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = AsyncObservedHarness()
        yield harness
        harness.close()
