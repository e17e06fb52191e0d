from collections.abc import Iterator

import pytest

from jobstore.testing import Harness, StoreContract
from tests.contract.postgres_harness import PostgresHarness


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def harness(self, dsn: str, schema: str) -> Iterator[Harness]:
        harness = PostgresHarness(dsn, schema)
        yield harness
        harness.close()
