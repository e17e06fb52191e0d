"""
Kinds of values on the command line.
"""

import re
from datetime import UTC, datetime, timedelta

import click

__all__ = ["DURATION", "INSTANT", "Duration", "Instant"]

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


class Duration(click.ParamType[timedelta]):
    """
    A number and a unit: ``500ms``, ``30s``, ``5m``, ``2h``, ``7d``.
    """

    name = "duration"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not like 500ms, 30s, 5m, 2h or 7d", param, ctx)
        try:
            return float(match[1]) * _UNITS[match[2]]
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class Instant(click.ParamType[datetime]):
    """
    A date and time in ISO 8601, with its offset; without one it is UTC.
    """

    name = "instant"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            instant = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not like 2026-01-31T18:00:00Z", param, ctx)
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


DURATION = Duration()
INSTANT = Instant()
