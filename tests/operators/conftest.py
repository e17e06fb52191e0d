from collections.abc import Iterator

import pytest

from tests.operators.support import Place, open_place


@pytest.fixture
def place(dsn: str, schema: str) -> Iterator[Place]:
    yield from open_place(dsn, schema)


@pytest.fixture
def fresh_place(dsn: str, fresh_schema: str) -> Iterator[Place]:
    """
    A place whose structure the test may alter.
    """
    yield from open_place(dsn, fresh_schema)
