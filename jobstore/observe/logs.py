"""
Events as structured log records, with the standard library.
"""

import dataclasses
import logging
from datetime import timedelta
from enum import Enum

from jobstore.errors import InvalidInput
from jobstore.observe.events import (
    Event,
    JobLost,
    LeasesReclaimed,
    Listener,
    StoreFailed,
)

__all__ = ["logged"]

_TROUBLE = (JobLost, LeasesReclaimed, StoreFailed)


def logged(logger: logging.Logger | None = None) -> Listener:
    """
    Return a listener for `observed` that logs each event.

    A record's message is the event's name and its fields as ``name=value``; the same
    fields are on the record as the dict `jobstore`, with plain values, for a formatter
    that writes JSON. Durations are seconds. Lost leases, reclaimed ones and failures of
    the store are warnings, all else is information.

    Args:
        logger: Where to; None: ``jobstore.events``.

    Raises:
        InvalidInput: *logger* is none.
    """
    to = logging.getLogger("jobstore.events") if logger is None else logger
    if not callable(getattr(to, "log", None)):
        raise InvalidInput("logger", type(to), "must be a logger")

    def log(event: Event) -> None:
        level = logging.WARNING if isinstance(event, _TROUBLE) else logging.INFO
        if not to.isEnabledFor(level):
            return
        fields = {
            one.name: _plain(getattr(event, one.name))
            for one in dataclasses.fields(event)
        }
        name = type(event).__name__
        told = " ".join(f"{key}={_word(value)}" for key, value in fields.items())
        to.log(
            level, "%s %s", name, told, extra={"jobstore": {"event": name, **fields}}
        )

    return log


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return value.total_seconds() if isinstance(value, timedelta) else value


def _word(value: object) -> str:
    # Kinds, queues and workers are others' words: they may not break the line.
    if isinstance(value, str) and value.isascii() and value.isalnum():
        return value
    return ascii(value)
