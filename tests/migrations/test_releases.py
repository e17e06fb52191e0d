"""
Expand, then contract: the previous release works on this schema, and on the next one.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobstore import migrate
from jobstore.migrate.chain import scripts
from jobstore.postgres.window import NEEDED
from tests.migrations.previous import Previous, newest_tag, unpack
from tests.migrations.releases import NextRelease

EXPAND = (
    'run("ALTER TABLE {s}.job ADD COLUMN throw_away text");'
    ' run("CREATE INDEX throw_away_idx ON {s}.job (throw_away)");'
    ' run("CREATE TABLE {s}.throw_away (id int PRIMARY KEY)")'
)
CONTRACT = 'run("ALTER TABLE {s}.job RENAME COLUMN traceparent TO trace_parent")'
TIGHTEN = 'run("ALTER TABLE {s}.job ADD CHECK (max_attempts < 3)")'


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Previous:
    return unpack(newest_tag(), tmp_path_factory.mktemp("previous") / "release")


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_previous_release_works_on_this_schema_and_an_expanded_one(
    dsn: str, empty_schema: str, tmp_path: Path, previous: Previous
) -> None:
    _migrated(dsn, empty_schema, tmp_path, EXPAND, compatible_from=previous.head())
    ran = previous.contract(dsn, empty_schema)
    assert ran.returncode == 0, f"{previous.name}: {ran.stdout[-3000:]}{ran.stderr}"
    assert _count(ran, "passed") > 500


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("change", [CONTRACT, TIGHTEN])
def test_what_contracts_and_says_it_expands_is_caught(
    dsn: str, empty_schema: str, tmp_path: Path, previous: Previous, change: str
) -> None:
    _migrated(dsn, empty_schema, tmp_path, change, compatible_from=previous.head())
    ran = previous.contract(dsn, empty_schema, "--maxfail=5")
    assert ran.returncode == 1, ran.stdout[-3000:]
    assert _count(ran, "failed") + _count(ran, "error") >= 5
    assert "SchemaTooNew" not in ran.stdout


def test_what_contracts_and_says_so_is_refused_by_the_previous_release(
    dsn: str, empty_schema: str, tmp_path: Path, previous: Previous
) -> None:
    newer = f"{int(migrate.head()) + 1:04}"
    _migrated(dsn, empty_schema, tmp_path, CONTRACT, compatible_from=newer)
    ran = previous.contract(dsn, empty_schema, "--maxfail=3")
    assert ran.returncode == 1, ran.stdout[-3000:]
    assert "SchemaTooNew" in ran.stdout


def test_no_revision_since_the_previous_release_shuts_it_out(
    previous: Previous,
) -> None:
    for script in scripts():
        assert int(script.module.compatible_from) <= int(previous.head()), (
            f"{script.revision} must wait for the release after this one"
        )


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_this_code_works_on_the_oldest_schema_that_it_needs(
    dsn: str, empty_schema: str, tmp_path: Path
) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision=NEEDED)
    this = unpack(None, tmp_path / "this")
    ran = this.contract(dsn, empty_schema, "-k", "TestPostgresStore")
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert _count(ran, "passed") > 250


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_previous_release_is_the_newest_tag(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    for part in ("jobstore/postgres", "migrations", "tests"):
        (root / part).mkdir(parents=True)
        (root / part / "x").write_text("x")
    window = root / "jobstore" / "postgres" / "window.py"
    changes = root / "CHANGELOG.md"
    changes.write_text("## [Unreleased]\n")
    assert newest_tag(root) is None
    _git(root, "init", "--quiet")
    assert newest_tag(root) is None
    # A release that the clone does not have must not pass for none.
    changes.write_text("## [Unreleased]\n\n## [0.1.0]\n")
    with pytest.raises(AssertionError, match="fetch --tags"):
        newest_tag(root)
    for number in (9, 10):
        window.write_text(f'HEAD = "{number:04}"\n')
        _git(root, "add", ".")
        _git(root, "commit", "--quiet", "--message", "x")
        _git(root, "tag", f"v0.{number}.0")
    window.write_text('HEAD = "0011"\n')
    assert newest_tag(root) == "v0.10.0"
    assert unpack("v0.10.0", tmp_path / "release", root).head() == "0010"


def _git(root: Path, *arguments: str) -> None:
    me = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", *me, *arguments], cwd=root, check=True)


def _migrated(
    dsn: str, schema: str, folder: Path, upgrade: str, *, compatible_from: str
) -> None:
    release = NextRelease(folder / "next")
    release.add(upgrade, "pass", compatible_from=compatible_from)
    with release.installed():
        migrate.upgrade(dsn, schema=schema)


def _count(ran: "subprocess.CompletedProcess[str]", word: str) -> int:
    found = re.search(rf"(\d+) {word}", ran.stdout.splitlines()[-1])
    return int(found[1]) if found else 0
