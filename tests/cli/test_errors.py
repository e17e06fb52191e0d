"""
Errors: told in the form that was asked for, and none holds up what it is not about.
"""

import json
import signal
from pathlib import Path

import psycopg
import pytest

from jobstore import JobStatus, NewJob, PostgresStore, migrate
from tests.cli.conftest import Cli
from tests.servers import LocalServer, connect

UNKNOWN = "01HZZZZZZZZZZZZZZZZZZZZZZZ"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (["list", "--json", "--status", "bogus"], 2, "USAGE"),
        (["list", "--json", "--no-such-flag"], 2, "USAGE"),
        (["list", "--json", "--dsn", ""], 2, "USAGE"),
        (["list", "--json", "--limit", "0"], 4, "INVALID_INPUT"),
        (["list", "--json", "--schema", "nowhere"], 7, "SCHEMA_MISSING"),
        (["explain", "--json", "x"], 3, "JOB_UNKNOWN"),
        (["explain", "--json", "\udcff"], 3, "JOB_UNKNOWN"),
        pytest.param(
            ["submit", "--json", "--kind", "k", "/proc/self/mem"],
            1,
            "SYSTEM_ERROR",
            marks=pytest.mark.skipif(
                not Path("/proc/self/mem").exists(),
                reason="needs a file that opens and cannot be read",
            ),
        ),
        (["doctor", "--json", "--silence", "soon"], 2, "USAGE"),
    ],
)
def test_with_json_every_error_is_one_document(
    cli: Cli, arguments: list[str], exit_code: int, code: str
) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.raw) == (exit_code, b"")
    error = json.loads(ran.err)["error"]
    assert list(error) == ["code", "message", "outcome"]
    assert (error["code"], error["outcome"]) == (code, "not done")


@pytest.mark.parametrize("command", ["cancel", "requeue"])
def test_one_job_that_cannot_be_changed_holds_up_no_other(
    cli: Cli, store: PostgresStore, command: str
) -> None:
    wanted = {"cancel": JobStatus.CANCELLED, "requeue": JobStatus.QUEUED}[command]
    done, *others = [store.create(NewJob(kind="k")).job.id for _ in range(3)]
    claim = store.claim_next(worker="w")
    assert claim is not None
    assert claim.job.id == done
    store.complete(claim.lease)
    if command == "requeue":
        for one in others:
            store.cancel(one)
    ran = cli(command, "--json", others[0], UNKNOWN, done, others[1])
    assert ran.code == 3  # that of the first
    told = [json.loads(line)["id"] for line in ran.out.splitlines()]
    assert told == others
    codes = [json.loads(line)["error"]["code"] for line in ran.err.splitlines()]
    assert codes == ["JOB_UNKNOWN", "INVALID_TRANSITION"]
    assert [store.get(one).status for one in others] == [wanted, wanted]


def test_a_schema_of_a_newer_release_is_left_alone(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str, fresh_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", fresh_schema)
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {fresh_schema}.jobstore_version SET version_num = '9999'"
        )
    checked = cli("migrate", "check")
    assert checked.code == 13
    assert "newer than this code knows" in checked.out
    for command in (["up"], ["down", "0001"]):
        ran = cli("migrate", *command)
        assert (ran.code, ran.raw) == (7, b"")
        assert "newer than this code knows" in ran.err
    assert cli.ok("migrate", "current").out == "9999\n"


def test_check_tells_what_is_off(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str, empty_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", empty_schema)
    cli.ok("migrate", "up", "--to", "0001")
    behind = cli("migrate", "check", "--json")
    assert (behind.code, behind.json["state"]) == (12, "outdated")
    cli.ok("migrate", "up")
    head = migrate.head()
    assert cli.ok("migrate", "check", "--json").json == {
        "schema": empty_schema,
        "state": "ok",
        "revision": head,
        "head": head,
        "differences": [],
    }
    with connect(dsn) as connection:
        connection.execute(f"DROP INDEX {empty_schema}.job_ready_idx".encode())
    drift = cli("migrate", "check", "--json")
    assert (drift.code, drift.json["state"]) == (14, "drift")
    (difference,) = drift.json["differences"]
    assert difference["name"] == "job_ready_idx"
    assert difference["problem"] == "missing"
    assert "index job_ready_idx is missing" in cli("migrate", "check").out
    with connect(dsn) as connection:
        connection.execute(f"SET search_path = {empty_schema}".encode())
        connection.execute("INSERT INTO job (kind) VALUES ('k'), ('k')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY x ON job (kind)")
    invalid = cli("migrate", "check", "--json")
    assert (invalid.code, invalid.json["state"]) == (15, "invalid_index")


def test_watching_goes_on_while_the_database_is_away(
    cli: Cli, own_server: LocalServer
) -> None:
    migrate.upgrade(own_server.admin_dsn)
    flags = ["--dsn", own_server.admin_dsn, "--schema", "jobstore", "--json"]
    with cli.start("watch", *flags, "--every", "100ms") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert json.loads(program.stdout.readline()) == {"stats": []}
        own_server.kill()
        error = json.loads(program.stderr.readline())["error"]
        assert error["code"] == "STORE_UNAVAILABLE"
        own_server.restart()
        # What was looked at before the end may still be in the pipe; then come
        # looks at a server that is back, for as long as one likes.
        for _ in range(50):
            assert json.loads(program.stdout.readline()) == {"stats": []}
        program.send_signal(signal.SIGINT)
        program.communicate()
    assert program.returncode == 130


def test_watch_ends_at_once_if_there_is_nothing_to_watch(
    cli: Cli, tmp_path: Path
) -> None:
    nowhere = f"postgresql:///x?host={tmp_path}"
    ran = cli("watch", "--json", "--dsn", nowhere)
    assert (ran.code, ran.raw) == (6, b"")
