"""
What happened, kept outside the processes and outside the store's own tables.

Each process appends a line of JSON for each call, synced before it goes on: what a
file calls acknowledged was answered. The database's own part comes from a trigger,
in the order in which it changed each job, with its instants.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

__all__ = ["Change", "Final", "History", "Log", "Operation", "Record", "Reply", "read"]


class Operation(StrEnum):
    CREATE = "create"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    FINISH = "finish"
    FAN_OUT = "fan_out"


class Reply(StrEnum):
    """
    What the caller was told.
    """

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """
    One call of one process about one job.
    """

    process: str
    operation: Operation
    job_id: str
    outcome: Reply
    fence: int = 0
    instant: float | None = None
    """The database's, where the answer carried one."""
    status: str | None = None
    """What a finish asked for: completed or failed."""
    result: str | None = None

    @classmethod
    def parse(cls, line: str) -> Self:
        fields = json.loads(line)
        fields["operation"] = Operation(fields["operation"])
        fields["outcome"] = Reply(fields["outcome"])
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """
    One change of one job, as the database made it and committed it.
    """

    job_id: str
    before: str
    after: str
    fence: int
    instant: float
    """When the row was locked and written: of two changes of a job, one comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """
    A job when all is over.
    """

    status: str
    fence: int = 0
    result: str | None = None
    parent_id: str | None = None
    children_total: int = 0
    children_open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    records: tuple[Record, ...] = ()
    changes: tuple[Change, ...] = ()
    """In the database's order, at least among those of one job."""
    final: Mapping[str, Final] = field(default_factory=dict)


class Log:
    """
    The file of one process.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self._process = process
        self._file = os.open(
            folder / f"{process}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT
        )

    def write(
        self,
        operation: Operation,
        job_id: str,
        outcome: Reply,
        *,
        fence: int = 0,
        instant: float | None = None,
        status: str | None = None,
        result: str | None = None,
    ) -> None:
        record = Record(
            process=self._process,
            operation=operation,
            job_id=job_id,
            outcome=outcome,
            fence=fence,
            instant=instant,
            status=status,
            result=result,
        )
        # One write to a file opened for appending: threads do not mix their lines.
        os.write(self._file, (json.dumps(asdict(record)) + "\n").encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> tuple[Record, ...]:
    """
    Merge the files of all processes; a killed one may have left half a line.
    """
    return tuple(
        Record.parse(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in _whole_lines(path.read_text())
    )


def _whole_lines(text: str) -> Iterable[str]:
    return text.split("\n")[:-1]
