"""
The page on a store of the test's own, asked without a network.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from jobstore.web.app import create_app
from tests.operators.support import Place, open_place

TOKEN = "correct horse battery staple"  # noqa: S105 - of the tests
BASE = "http://localhost:8080"

Open = Callable[..., httpx.AsyncClient]


@pytest.fixture
def place(dsn: str, schema: str) -> Iterator[Place]:
    yield from open_place(dsn, schema)


@pytest.fixture
async def opened(dsn: str, schema: str) -> AsyncIterator[Open]:
    """
    Open a browser, of a kind, on the page made with the options given.
    """
    made: list[tuple[Starlette, httpx.AsyncClient]] = []

    def make(base: str = BASE, **options: Any) -> httpx.AsyncClient:
        app = create_app(dsn, schema=schema, **options)
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url=base,
            headers={"Accept": "text/html"},
        )
        made.append((app, client))
        return client

    yield make
    for app, client in made:
        await client.aclose()
        async with app.router.lifespan_context(app):
            """Its end closes the store."""


@pytest.fixture
def page(opened: Open) -> httpx.AsyncClient:
    return opened()
