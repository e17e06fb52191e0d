"""
Migrating from the shell.
"""

import json
from pathlib import Path

import pytest

from jobstore import migrate
from tests.cli.conftest import Cli
from tests.migrations.releases import NextRelease
from tests.servers import connect


def test_there_and_back(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, empty_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", empty_schema)
    head = migrate.head()
    assert cli.ok("migrate", "current").out == "none\n"
    assert cli.ok("migrate", "current", "--json").json == {
        "revision": None,
        "head": head,
    }
    assert cli("migrate", "check").code == 11
    assert cli("list").code == 7
    assert cli.ok("migrate", "up", "--to", "0001").out.endswith(" is at 0001\n")
    assert cli("migrate", "check").code == 12
    assert cli.ok("migrate", "up").out == f"{empty_schema} is at {head}\n"
    checked = cli.ok("migrate", "check").out
    assert checked == f"{empty_schema} is at {head}: as it should be\n"
    assert cli.ok("migrate", "down", "base").out.endswith(" is at nothing\n")


def test_the_history_says_what_is_applied(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, empty_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", empty_schema)
    cli.ok("migrate", "up", "--to", "0002")
    lines = cli.ok("migrate", "history").out.splitlines()
    assert [line.split("\t")[:2] for line in lines[:3]] == [
        ["0001", "applied"],
        ["0002", "current"],
        ["0003", ""],
    ]
    assert lines[0].endswith(
        "Create the job store: jobs, payloads, idempotency keys, history of attempts."
    )
    steps = cli.ok("migrate", "history", "--json").json["revisions"]
    assert [step["revision"] for step in steps if step["is_applied"]] == [
        "0001",
        "0002",
    ]


def test_jobs_are_not_dropped_by_accident(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, fresh_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", fresh_schema)
    cli.ok("submit", "--kind", "k", "-")
    refused = cli("migrate", "down", "base")
    assert (refused.code, refused.raw) == (7, b"")
    cli.ok("migrate", "down", "base", "--allow-data-loss")


def test_a_revision_that_does_not_exist(cli: Cli) -> None:
    for command in (["up", "--to", "nonsense"], ["down", "nonsense"]):
        ran = cli("migrate", *command)
        assert (ran.code, ran.raw) == (4, b"")
        assert "nonsense" in ran.err
        assert "Traceback" not in ran.err


def test_the_script_needs_no_database(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBSTORE_DSN")
    monkeypatch.setenv("JOBSTORE_SCHEMA", "other")
    script = cli.ok("migrate", "sql", "--from", "0001", "--to", "0002").out
    assert script == migrate.sql(
        schema="other", from_revision="0001", to_revision="0002"
    )
    assert cli.ok("migrate", "sql", "--from", "head").out == ""
    assert cli("migrate", "sql", "--to", "nonsense").code == 4


def test_waiting(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str, empty_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", empty_schema)
    assert cli("migrate", "wait", "--timeout", "0s").code == 11
    with cli.start("migrate", "wait", "--timeout", "5m") as program:
        cli.ok("migrate", "up", "--to", "0001")
        assert cli("migrate", "wait", "--timeout", "10ms").code == 12
        cli.ok("migrate", "up")
        assert program.wait(60) == 0
    assert cli.ok("migrate", "wait", "--json").json == {
        "revision": migrate.head(),
        "head": migrate.head(),
    }
    away = ["--dsn", "postgresql://u@127.0.0.1:1/db"]
    assert cli("migrate", "wait", "--timeout", "0s", *away).code == 6
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {empty_schema}.jobstore_version SET version_num = '9999'".encode()
        )
    newer = cli("migrate", "wait", "--json")
    assert newer.code == 13
    assert json.loads(newer.err)["error"]["code"] == "SCHEMA_TOO_NEW"


def test_a_schema_that_this_code_is_too_old_for(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    dsn: str,
    fresh_schema: str,
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", fresh_schema)
    release = NextRelease(tmp_path / "next")
    expanding = release.add("pass", "pass", compatible_from=migrate.head())
    with release.installed():
        migrate.upgrade(dsn, schema=fresh_schema)
    cli.ok("list")
    assert cli.ok("migrate", "up").out == f"{fresh_schema} is at {expanding}\n"
    cli.ok("migrate", "check")
    contracting = release.add("pass", "pass", compatible_from=expanding)
    with release.installed():
        migrate.upgrade(dsn, schema=fresh_schema)
    for command in (["list"], ["migrate", "up"], ["submit", "-", "--kind", "k"]):
        ran = cli(*command)
        assert (ran.code, ran.raw) == (7, b"")
        assert f"needs code of {expanding} or later" in ran.err
    assert cli("migrate", "check").code == 13
    assert contracting in cli("migrate", "history").out
