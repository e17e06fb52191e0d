"""
The command line, run in this process for speed, or as a program where that matters.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobstore import PostgresStore
from jobstore.cli import main

ROOT = Path(__file__).parents[2]


@dataclass
class Ran:
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        """
        The one JSON document that was printed; anything beside it is an error.
        """
        return json.loads(self.out)


class Cli:
    """
    Runs commands on one schema, whose DSN and name it has from the environment.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[bytes],
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capture = capture

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        self._capture.readouterr()
        given = io.TextIOWrapper(io.BytesIO(stdin))
        self._monkeypatch.setattr(sys, "stdin", given)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        sys.stdout.flush()
        out, err = self._capture.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out, err.decode())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Ran:
        ran = self(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        """
        Start it as a program of its own, with pipes unless told otherwise.
        """
        usual: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, "PYTHONPATH": str(ROOT)},
        }
        return subprocess.Popen(
            [sys.executable, "-m", "jobstore", *arguments],
            **(usual | options),
        )


@pytest.fixture
def cli(
    dsn: str,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Cli:
    monkeypatch.setenv("JOBSTORE_DSN", dsn)
    monkeypatch.setenv("JOBSTORE_SCHEMA", schema)
    monkeypatch.delenv("JOBSTORE_THROUGH_POOLER", raising=False)
    return Cli(monkeypatch, capsysbinary)


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema)
    yield made
    made.close()
