"""
From values to HTML: the templates and how they write numbers, times and text.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

__all__ = ["Renderer", "duration", "shown", "size"]


_ID = re.compile(r"\b([0-7][0-9A-HJKMNP-TV-Z]{25})\b")


class Renderer:
    """
    Renders the templates of this package; everything in them is escaped.
    """

    def __init__(self, **always: Any) -> None:
        self._environment = Environment(
            loader=PackageLoader("jobstore.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "duration": duration,
            "exactly": exactly,
            "iso": iso,
            "number": number,
            "shown": shown,
            "size": size,
            "utc": utc,
            "words_and_ids": words_and_ids,
        }
        self._environment.globals |= always

    def page(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> HTMLResponse:
        base = request.scope.get("root_path", "")

        def link(*path: str, **query: object) -> str:
            kept = {name: value for name, value in query.items() if value}
            parts = "/".join(quote(part, safe="", errors="replace") for part in path)
            told = urlencode(kept, errors="replace")
            return f"{base}/{parts}" + (f"?{told}" if told else "")

        text = self._environment.get_template(template).render(link=link, **values)
        # What a database holds has no surrogates; what a query string holds may.
        return HTMLResponse(
            text.encode(errors="replace"), status_code=status, headers=headers
        )


def shown(text: object) -> str:
    """
    Write text so that all of it is seen: no invisible or direction-changing letters.
    """
    return "".join(
        one if one.isprintable() or one == "\n" else f"\\u{ord(one):04x}"
        for one in str(text)
    )


def duration(length: timedelta) -> str:
    """
    Write a length of time in its two largest units.
    """
    seconds = round(length.total_seconds())
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    for unit, part, word, small in (
        (86_400, 3_600, "d", "h"),
        (3_600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if seconds >= unit:
            return f"{sign}{seconds // unit} {word} {seconds % unit // part} {small}"
    return f"{sign}{seconds} s"


def exactly(length: timedelta) -> str:
    """
    Write a length of time, short ones to the millisecond.
    """
    seconds = length.total_seconds()
    return f"{seconds:.3f} s" if 0 <= seconds < 10 else duration(length)


def words_and_ids(text: str) -> list[tuple[str, bool]]:
    """
    Cut text at the ids of jobs in it; say of each part whether it is one.
    """
    return [(part, bool(_ID.fullmatch(part))) for part in _ID.split(text) if part]


def utc(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds")


def number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def size(value: int) -> str:
    """
    Write a number of bytes.
    """
    amount = float(value)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{value} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
