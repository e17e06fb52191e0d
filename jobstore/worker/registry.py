"""
Handlers: which function does which kind of job.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from jobstore.checks import check_callable
from jobstore.errors import InvalidInput
from jobstore.model import Completed, Failed, Outcome, check_text
from jobstore.worker.context import AsyncContext, Context, Done

__all__ = ["ANY_KIND", "Answer", "Handler", "Handlers", "check_handlers", "outcome_of"]

Answer: TypeAlias = bytes | Outcome | Done | None
"""
What a handler may return: the result's bytes, None for a job without a result, an
outcome of its own choice, or `DONE` if it ended the job itself.
"""

Handler: TypeAlias = (
    Callable[[AsyncContext], Awaitable[Answer]] | Callable[[Context], Answer]
)

ANY_KIND = "*"
"""The kind of a handler that takes every kind without one of its own."""

H = TypeVar("H", bound=Handler)


class Handlers(Mapping[str, Handler]):
    """
    A registry to fill by decorator; a plain dict serves as well.

        handlers = Handlers()

        @handlers.on("page")
        async def page(context): ...
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def on(self, *kinds: str) -> Callable[[H], H]:
        """
        Register a function, async or not, for *kinds*; ``"*"`` means every other kind.

        Raises:
            InvalidInput: There is no kind, or it has a handler already, or what is
                registered is none.
        """
        if not kinds:
            raise InvalidInput("kinds", kinds, "must name at least one")
        for kind in kinds:
            check_text("kind", kind)

        def register(handler: H) -> H:
            check_callable("handler", handler)
            for kind in kinds:
                if kind in self._handlers:
                    raise InvalidInput("kind", kind, "has a handler already")
                self._handlers[kind] = handler
            return handler

        return register

    def __getitem__(self, kind: str) -> Handler:
        return self._handlers[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def check_handlers(handlers: object) -> None:
    """
    Raise `InvalidInput` unless *handlers* maps kinds to what can be called.
    """
    if not isinstance(handlers, Mapping):
        raise InvalidInput("handlers", type(handlers), "must be a mapping of kinds")
    if not handlers:
        raise InvalidInput("handlers", handlers, "must not be empty")
    for kind, handler in handlers.items():
        check_text("kind", kind)
        check_callable(f"handlers[{kind!r}]", handler)


def outcome_of(answer: object) -> Outcome | Done:
    """
    Read what a handler returned. A value of another type is the handler's mistake.
    """
    if answer is None or isinstance(answer, (bytes, bytearray, memoryview)):
        return Completed(None if answer is None else bytes(answer))
    if isinstance(answer, (Outcome, Done)):
        return answer
    return Failed(
        "INVALID_RESULT",
        f"the handler returned {type(answer).__name__}, not bytes, None or an outcome",
        final=True,
    )
