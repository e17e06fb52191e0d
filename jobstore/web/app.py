"""
The application: pages behind their guards.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable
from importlib.resources import files

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from jobstore.errors import (
    InvalidInput,
    JobNotFound,
    JobstoreError,
    OutcomeUnknown,
    SchemaError,
    StoreFault,
    StoreUnavailable,
)
from jobstore.postgres import PostgresStore
from jobstore.web.forms import Forms
from jobstore.web.guards import LOCAL_HOSTS, Gate, SafeHeaders, Token, TrustedHosts
from jobstore.web.login import Login
from jobstore.web.operate import Foreseer, Operating, Operator
from jobstore.web.pages import Pages
from jobstore.web.reading import NOT_ALLOWED, Reader
from jobstore.web.render import Renderer

__all__ = ["create_app"]

STATIC = ("page.css", "refresh.js", "icon.svg")


def create_app(
    dsn: str,
    *,
    schema: str = "jobstore",
    operate: bool = False,
    token: str | None = None,
    hosts: Iterable[str] = LOCAL_HOSTS,
    through_pooler: bool = False,
) -> Starlette:
    """
    Make the page as an ASGI application, to be served alone or mounted in yours.

    Args:
        dsn: The database. A role that may only read will do.
        schema: Where the tables are.
        operate: Also requeue and cancel jobs, by forms that ask for a reason. Without,
            nothing here can change anything.
        token: What a visitor must know, at least 16 characters. None lets everybody
            in who reaches it: serve it on this machine only.
        hosts: Names it answers to, in the Host header, ports aside.
        through_pooler: The DSN leads to a pooler in transaction mode.

    Raises:
        InvalidInput: An argument does not fit. No connection is made here.
    """
    key = None if token is None else Token(token)
    reader = Reader(dsn, schema=schema, through_pooler=through_pooler)
    renderer = Renderer(schema=schema, has_token=key is not None, operate=operate)
    forms = Forms()
    stores: list[PostgresStore] = [reader]
    routes: list[Route | Mount] = [*Pages(reader, renderer).routes()]
    guards = [Middleware(SafeHeaders), Middleware(TrustedHosts, hosts=hosts)]
    if operate:
        operator = Operator(dsn, schema=schema, through_pooler=through_pooler)
        foreseer = Foreseer(dsn, schema=schema, through_pooler=through_pooler)
        stores += [operator, foreseer]
        routes += Operating(foreseer, operator, forms, renderer).routes()
    if key is not None:
        routes += Login(key, forms, renderer).routes()
        open_paths = ["/login", *(f"/static/{name}" for name in STATIC)]
        guards.append(Middleware(Gate, token=key, open_paths=open_paths))
    folder = str(files("jobstore.web") / "static")
    routes.append(Mount("/static", StaticFiles(directory=folder)))

    async def failed(request: Request, error: Exception) -> Response:
        return _told(renderer, request, error)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for store in stores:
                await run_in_threadpool(store.close)

    return Starlette(
        routes=routes,
        middleware=guards,
        exception_handlers={HTTPException: failed, JobstoreError: failed},
        lifespan=lifespan,
    )


# The first that fits counts.
_STATUS: tuple[tuple[type[JobstoreError], int], ...] = (
    (InvalidInput, 400),
    (JobNotFound, 404),
    (StoreUnavailable, 503),
    (SchemaError, 503),
    (OutcomeUnknown, 503),
)


def _told(renderer: Renderer, request: Request, error: Exception) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        status, said = error.status_code, error.detail
        headers = dict(error.headers or {})
    elif isinstance(error, StoreFault) and error.sqlstate == NOT_ALLOWED:
        status, said = 403, f"The role that this page uses may not do that: {error}"
    else:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        said = str(error)
    if status == 503:
        headers["Retry-After"] = "5"
    return renderer.page(
        request,
        "error.html",
        status=status,
        headers=headers,
        here="",
        said=said,
        code=getattr(error, "code", ""),
        status_code=status,
    )
