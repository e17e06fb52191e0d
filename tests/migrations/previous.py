"""
The previous release: its code, and its contract suite, run on a schema of today's.

That is the newest tag v*. Before the first release there is none, and the present code
stands in for it: the window is then tried with revisions that do not exist.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("jobstore", "migrations", "tests")

_SUITE = """
import os
from collections.abc import Iterator
from pathlib import Path

import jobstore
import pytest
from jobstore.testing import Harness, StoreContract
from psycopg import sql
from tests import servers
from tests.contract.postgres_harness import AsyncPostgresHarness, PostgresHarness

DSN, SCHEMA = os.environ["DSN"], os.environ["SCHEMA"]
assert Path(jobstore.__file__).is_relative_to(Path(__file__).parent), jobstore.__file__


@pytest.fixture(scope="module")
def admin():
    with servers.connect(DSN) as connection:
        yield connection


@pytest.fixture(autouse=True)
def emptied(admin):
    tables = admin.execute(
        "SELECT tablename FROM pg_tables"
        " WHERE schemaname = %s AND tablename <> 'jobstore_version'",
        [SCHEMA],
    )
    names = [sql.Identifier(SCHEMA, table) for (table,) in tables.fetchall()]
    admin.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(names)))


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = PostgresHarness(DSN, SCHEMA)
        yield harness
        harness.close()


class TestAsyncPostgresStore(StoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        harness = AsyncPostgresHarness(DSN, SCHEMA)
        yield harness
        harness.close()
"""


@dataclass(frozen=True)
class Previous:
    """
    A release in a folder of its own.
    """

    name: str
    folder: Path

    def head(self) -> str:
        """
        Return the newest revision that it knows.
        """
        text = (self.folder / "jobstore" / "postgres" / "window.py").read_text()
        found = re.search(r'^HEAD = "(\w+)"$', text, re.MULTILINE)
        assert found is not None
        return found[1]

    def contract(
        self, dsn: str, schema: str, *arguments: str
    ) -> "subprocess.CompletedProcess[str]":
        """
        Run its contract suite, sync and async, on *schema* as it is.
        """
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini"),
                *("-p", "no:cacheprovider", "--import-mode=importlib"),
                *("suite.py", *arguments),
            ],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.folder),
                "PYTHONDONTWRITEBYTECODE": "1",
                "DSN": dsn,
                "SCHEMA": schema,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


def newest_tag(root: Path = ROOT) -> str | None:
    """
    Return the tag of the previous release; None if there was none.
    """
    released = re.search(
        r"^## \[\d", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    if not (root / ".git").exists():
        assert not released, "the previous release is only to be had from a clone"
        return None
    tags = subprocess.run(
        ["git", "tag", "--list", "v*", "--sort=-version:refname"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    # A shallow clone has no tags, and would let everything pass.
    assert tags or not released, "there was a release: git fetch --tags"
    return tags[0] if tags else None


def unpack(tag: str | None, folder: Path, root: Path = ROOT) -> Previous:
    """
    Put the release's files into *folder*.
    """
    folder.mkdir()
    if tag is None:
        for part in _PARTS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(root / part, folder / part, ignore=ignored)
    else:
        archive = subprocess.run(
            ["git", "archive", "--format=tar", tag, *_PARTS],
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
    (folder / "suite.py").write_text(_SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return Previous(tag or "the present code, before the first release", folder)
