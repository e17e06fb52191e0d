"""
Handlers: which function does which kind of job.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from jobstore.errors import InvalidInput
from jobstore.model import Outcome, check_text
from jobstore.worker.context import AsyncContext, Context, Done

__all__ = ["ANY_KIND", "Answer", "AsyncHandler", "Handler", "Handlers", "SyncHandler"]

Answer: TypeAlias = bytes | bytearray | memoryview | Outcome | Done | None
"""
What a handler may return: the result's bytes, None for a job without a result, an
outcome of its own choice, or `DONE` if it ended the job itself.
"""

AsyncHandler: TypeAlias = Callable[[AsyncContext], Awaitable[Answer]]
SyncHandler: TypeAlias = Callable[[Context], Answer]
Handler: TypeAlias = AsyncHandler | SyncHandler

ANY_KIND = "*"
"""The kind of a handler that takes every kind without one of its own."""

H = TypeVar("H", bound=Callable[..., object])


class Handlers(Mapping[str, Handler]):
    """
    A registry to fill by decorator; a plain dict serves as well.

        handlers = Handlers()

        @handlers.on("page")
        async def page(context): ...
    """

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        self._handlers: dict[str, Handler] = {}
        for kind, handler in (handlers or {}).items():
            self.add(kind, handler)

    def on(self, *kinds: str) -> Callable[[H], H]:
        """
        Register a function, async or not, for *kinds*; ``"*"`` means every other kind.

        Raises:
            InvalidInput: A kind is not fit, or has a handler already.
        """
        if not kinds or callable(kinds[0]):
            raise InvalidInput("kinds", kinds, "name the kinds: @handlers.on('page')")

        def register(handler: H) -> H:
            for kind in kinds:
                self.add(kind, handler)
            return handler

        return register

    def add(self, kind: str, handler: Handler | Callable[..., object]) -> None:
        """
        Register *handler* for *kind*.
        """
        check_text("kind", kind)
        if not callable(handler):
            raise InvalidInput("handler", handler, f"for {kind!r} must be callable")
        if kind in self._handlers:
            raise InvalidInput("kind", kind, "has a handler already")
        self._handlers[kind] = handler  # type: ignore[assignment]  # known when called

    def __getitem__(self, kind: str) -> Handler:
        return self._handlers[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


@dataclass(frozen=True, slots=True)
class Chosen:
    """
    A handler, and how it is to be called.
    """

    handler: Any  # a SyncHandler or an AsyncHandler, as is_async says
    is_async: bool


class Choice:
    """
    Finds the handler for a job.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._chosen = {
            kind: Chosen(handler, _is_async(handler))
            for kind, handler in Handlers(handlers).items()
        }
        self._default = self._chosen.get(ANY_KIND)
        self.has_async = any(one.is_async for one in self._chosen.values())

    def of(self, kind: str) -> Chosen | None:
        """
        Return the handler for *kind*, or None.
        """
        return self._chosen.get(kind, self._default)


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - objects with an async one
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
