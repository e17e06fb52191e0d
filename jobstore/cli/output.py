"""
Printing: data on stdout, everything else on stderr.

The JSON shapes are an interface: keys are added, never renamed or removed. Bytes do not
appear in them, only their number; instants are ISO 8601 in UTC.

No text from the database, a file name or a message reaches a terminal with its control
characters in it: they could redraw it.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jobstore.model import Attempt, Job, QueueStats

__all__ = [
    "age",
    "attempt_data",
    "job_data",
    "one_line",
    "print_json",
    "print_line",
    "print_table",
    "stats_data",
    "stats_table",
    "tell",
    "tell_error",
    "warnings",
]

warnings = Console(stderr=True, soft_wrap=True, highlight=False)
"""For people: progress, notes, errors. Text that is not ours goes through `tell`."""

_JOB_COLUMNS = ("id", "status", "class", "kind", "tenant", "attempts", "age", "note")


def job_data(job: Job) -> dict[str, Any]:
    """
    The job as JSON shows it. Its key is left out: it may be a secret of the caller's.
    """
    data = _data(job)
    data["has_idem_key"] = data.pop("idem_key") is not None
    result = data.pop("result")
    data["result_bytes"] = None if result is None else len(result)
    return data


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """
    The attempt as JSON shows it.
    """
    return _data(attempt)


def stats_data(line: QueueStats) -> dict[str, Any]:
    """
    The line as JSON shows it.
    """
    return _data(line)


def print_json(data: object) -> None:
    """
    Print one JSON document on a line of its own.
    """
    # In ASCII, so that it is the same in every locale and harmless on every terminal.
    sys.stdout.write(json.dumps(data, default=_plain) + "\n")


def print_line(*cells: str) -> None:
    """
    Print a line to stdout, whatever characters it has; tabs between the cells.
    """
    text = "\t".join(one_line(cell) for cell in cells)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def tell(text: str, *, style: str | None = None) -> None:
    """
    Say something to people, on stderr.
    """
    for line in text.splitlines():
        warnings.print(one_line(line), style=style, markup=False)


def tell_error(
    code: str, message: str, *, as_json: bool, outcome: str = "not done"
) -> None:
    """
    Say on stderr what went wrong: one line, or one JSON document.
    """
    if as_json:
        facts = {"code": code, "message": message, "outcome": outcome}
        sys.stderr.write(json.dumps({"error": facts}) + "\n")
    else:
        tell(f"jobstore: {message}", style="red")


def one_line(text: str) -> str:
    """
    Replace what could redraw a terminal, or make two rows of one.
    """
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def print_table(jobs: Sequence[Job]) -> None:
    """
    Print jobs for people: as a table on a terminal, tab-separated into a pipe.
    """
    rows = [_row(job) for job in jobs]
    if not sys.stdout.isatty():
        for row in rows:
            print_line(*row)
        return
    table = Table(*_JOB_COLUMNS, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_escaped(cell) for cell in row))
    Console().print(table)


def stats_table(lines: Sequence[QueueStats]) -> Table:
    """
    Make a table of the queues.
    """
    table = Table("queue", "class", "status", "jobs", "oldest", box=None)
    table.columns[3].justify = "right"
    for line in lines:
        table.add_row(
            _escaped(line.queue),
            str(line.job_class),
            str(line.status),
            f"{line.jobs:,}",
            age(line.oldest_at),
        )
    return table


def age(instant: datetime | None) -> str:
    """
    Say roughly how long ago *instant* was, by this machine's clock.
    """
    if instant is None:
        return ""
    seconds = (datetime.now(UTC) - instant).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _row(job: Job) -> list[str]:
    note = job.error_code or ""
    if job.children_total:
        note = f"{job.children_open} of {job.children_total} children open {note}"
    return [
        job.id,
        str(job.status),
        str(job.job_class),
        job.kind,
        job.tenant,
        f"{job.attempts}/{job.max_attempts}",
        age(job.created_at),
        note.strip(),
    ]


def _escaped(text: str) -> str:
    return escape(one_line(text))


def _data(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    raise TypeError(type(value).__name__)
