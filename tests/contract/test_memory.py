from collections.abc import Iterator

import pytest

from jobstore.testing import Harness, MemoryHarness, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = MemoryHarness()
        yield harness
        harness.close()
