from collections.abc import Iterator

import pytest

from jobstore.testing import AsyncMemoryHarness, Harness, StoreContract


class TestAsyncMemoryStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = AsyncMemoryHarness()
        yield harness
        harness.close()
