"""
Commands that look: what they print, and that their JSON keeps its shape.
"""

import os
import pty
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobstore import Completed, Failed, JobStatus, NewJob, PostgresStore
from tests.cli.conftest import Cli

EVERY_BYTE = bytes(range(256)) * 3

JOB = {
    "id": str,
    "tenant": str,
    "queue": str,
    "kind": str,
    "job_class": str,
    "status": str,
    "attempts": int,
    "max_attempts": int,
    "fence": int,
    "parent_id": str,
    "pages": list,
    "on_child_failure": str,
    "children_total": int,
    "children_open": int,
    "children_failed": int,
    "error_code": str,
    "error_message": str,
    "created_at": str,
    "updated_at": str,
    "available_at": str,
    "started_at": str,
    "heartbeat_at": str,
    "finished_at": str,
    "worker": str,
    "traceparent": str,
    "has_idem_key": bool,
    "result_bytes": int,
}
ATTEMPT = {
    "job_id": str,
    "fence": int,
    "attempt": int,
    "worker": str,
    "started_at": str,
    "ended_at": str,
    "outcome": str,
    "error_code": str,
    "error_message": str,
}
STATS = {
    "queue": str,
    "job_class": str,
    "status": str,
    "jobs": int,
    "oldest_at": str,
}


def assert_shape(data: dict[str, Any], shape: dict[str, type]) -> None:
    assert list(data) == list(shape)
    for key, value in data.items():
        assert value is None or type(value) is shape[key], key


def run_once(store: PostgresStore, outcome: Completed | Failed) -> str:
    claim = store.claim_next(worker="w")
    assert claim is not None
    if isinstance(outcome, Completed):
        store.complete(claim.lease, outcome.result)
    else:
        store.set_results([(claim.lease, outcome)])
    return claim.job.id


def test_the_shapes_of_json(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k", idem_key="secret", payload=b"pay")).job
    run_once(store, Failed("E", "why", final=True))
    shown = cli.ok("show", job.id, "--json").json
    assert list(shown) == ["job", "attempts", "children"]
    assert_shape(shown["job"], JOB)
    assert_shape(shown["attempts"][0], ATTEMPT)
    assert shown["job"]["status"] == "failed"
    assert shown["job"]["has_idem_key"] is True
    listed = cli.ok("list", "--json").json
    assert list(listed) == ["jobs", "after"]
    assert listed["after"] is None
    assert_shape(listed["jobs"][0], JOB)
    counted = cli.ok("stats", "--json").json
    assert list(counted) == ["stats"]
    assert_shape(counted["stats"][0], STATS)
    said = cli.ok("explain", job.id, "--json").json
    assert list(said) == ["id", "explanation"]


def test_nothing_is_an_empty_list(cli: Cli) -> None:
    assert cli.ok("list", "--json").json == {"jobs": [], "after": None}
    assert cli.ok("stats", "--json").json == {"stats": []}
    assert cli.ok("list").raw == b""
    assert cli.ok("stats").raw == b""


def test_keys_payloads_and_results_are_not_shown(
    cli: Cli, store: PostgresStore
) -> None:
    new = NewJob(kind="k", idem_key="secret-key", payload=b"secret-payload")
    job = store.create(new).job
    run_once(store, Completed(b"secret-result"))
    for command in (["show", job.id], ["list"], ["explain", job.id]):
        for flag in ([], ["--json"]):
            assert "secret" not in cli.ok(*command, *flag).out


def test_an_error_in_json_goes_to_stderr(cli: Cli) -> None:
    import json

    unknown = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
    ran = cli("show", unknown, "--json")
    assert (ran.code, ran.raw) == (3, b"")
    assert json.loads(ran.err) == {
        "error": {
            "code": "JOB_UNKNOWN",
            "message": f"no job {unknown}",
            "outcome": "not done",
        }
    }


def test_filters(cli: Cli, store: PostgresStore) -> None:
    one = store.create(NewJob(kind="a", tenant="t1", queue="q", idem_key="k")).job
    two = store.create(NewJob(kind="b", tenant="t2")).job

    def found(*flags: str) -> list[str]:
        return [job["id"] for job in cli.ok("list", "--json", *flags).json["jobs"]]

    assert found() == [two.id, one.id]
    assert found("--oldest-first") == [one.id, two.id]
    assert found("--tenant", "t1") == [one.id]
    assert found("--queue", "q") == [one.id]
    assert found("--kind", "b") == [two.id]
    assert found("--tenant", "t1", "--key", "k") == [one.id]
    assert found("--class", "interactive") == []
    assert found("--status", "queued", "--status", "failed") == [two.id, one.id]
    assert found("--status", "failed") == []


def test_paging_reaches_everything_once(cli: Cli, store: PostgresStore) -> None:
    made = {store.create(NewJob(kind="k")).job.id for _ in range(5)}
    seen: list[str] = []
    page = cli.ok("list", "--json", "--limit", "2").json
    while page["after"]:
        seen += [job["id"] for job in page["jobs"]]
        page = cli.ok("list", "--json", "--limit", "2", "--after", page["after"]).json
    seen += [job["id"] for job in page["jobs"]]
    assert sorted(seen) == sorted(made)


def test_bytes_come_back_as_they_were(
    cli: Cli, store: PostgresStore, tmp_path: Path
) -> None:
    job = store.create(NewJob(kind="k", payload=EVERY_BYTE)).job
    run_once(store, Completed(EVERY_BYTE[::-1]))
    assert cli.ok("payload", job.id).raw == EVERY_BYTE
    assert cli.ok("result", job.id).raw == EVERY_BYTE[::-1]
    assert cli.ok("result", job.id, "-o", "-").raw == EVERY_BYTE[::-1]
    for command, data in (("payload", EVERY_BYTE), ("result", EVERY_BYTE[::-1])):
        assert cli.ok(command, job.id, "-o", str(tmp_path / command)).raw == b""
        assert (tmp_path / command).read_bytes() == data


def test_no_result_yet(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k")).job
    ran = cli("result", job.id)
    assert (ran.code, ran.raw) == (5, b"")
    assert "queued" in ran.err


def test_a_result_that_cannot_be_written(
    cli: Cli, store: PostgresStore, tmp_path: Path
) -> None:
    job = store.create(NewJob(kind="k", payload=b"x")).job
    target = tmp_path / "missing" / "file"
    ran = cli("payload", job.id, "-o", str(target))
    assert ran.code == 1
    assert ran.err == f"jobstore: {target}: No such file or directory\n"


def test_a_terminal_is_not_given_what_it_may_obey(
    cli: Cli, store: PostgresStore
) -> None:
    job = store.create(NewJob(kind="k", payload=b"\x1b[2J")).job
    harmless = store.create(NewJob(kind="k", payload=b"text\n")).job
    for one, code, output in ((job, 1, b""), (harmless, 0, b"text\r\n")):
        ours, terminal = pty.openpty()
        program = cli.start("payload", one.id, stdout=terminal)
        os.close(terminal)
        assert program.wait(60) == code
        try:
            got = os.read(ours, 1000)
        except OSError:  # nothing was written, and the other side is closed
            got = b""
        os.close(ours)
        assert got == output
        assert program.stderr is not None
        program.stderr.close()


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "\x9b2J", "\x07", "\u202e"])
def test_control_characters_stay_out(
    cli: Cli, store: PostgresStore, hostile: str
) -> None:
    job = store.create(NewJob(kind=hostile, tenant=hostile, queue=hostile)).job
    claim = store.claim_next(queue=hostile, worker=hostile)
    assert claim is not None
    store.set_results([(claim.lease, Failed(hostile, hostile, final=True))])
    for command in (
        ["list"],
        ["list", "--json"],
        ["show", job.id],
        ["show", job.id, "--json"],
        ["stats"],
        ["stats", "--json"],
        ["explain", job.id],
        ["watch", "--times", "1"],
    ):
        ran = cli.ok(*command)
        if (hostile, command[0]) == ("a\nb", "explain"):
            continue  # its text has lines of its own
        assert hostile not in ran.out + ran.err, command
    assert len(cli.ok("list").out.splitlines()) == 1


def test_watch_looks_and_ends(cli: Cli, store: PostgresStore) -> None:
    store.create(NewJob(kind="k", queue="letters"))
    assert "letters" in cli.ok("watch", "--times", "1").out
    assert cli.ok("watch", "--times", "2", "--every", "0s").code == 0
    assert cli("watch", "--times", "0").code == 2


def test_show_tells_people_about_family_and_history(
    cli: Cli, store: PostgresStore
) -> None:
    parent = store.create(NewJob(kind="whole")).job
    claim = store.claim_next(worker="w")
    assert claim is not None
    store.fan_out(claim.lease, [claim.job.child(kind="part")])
    shown = cli.ok("show", parent.id).out
    assert "whole" in shown
    assert "part" in shown
    assert "waiting" in shown
    assert store.get(parent.id).status is JobStatus.WAITING


def test_reading_stops_quietly_when_nobody_reads(
    cli: Cli, store: PostgresStore
) -> None:
    store.create(NewJob(kind="k"))
    for command in (["list"], ["list", "--json"], ["stats"]):
        with cli.start(*command) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            assert program.stderr.read() == b""
        assert program.returncode == 141


def test_doctor_prints_json(cli: Cli) -> None:
    ran = cli("doctor", "--json")
    assert ran.code in {0, 10, 20}
    assert "findings" in ran.json


def test_instants_are_utc(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k")).job
    told = cli.ok("show", job.id, "--json").json["job"]["created_at"]
    assert told == job.created_at.isoformat()
    assert job.created_at.utcoffset() == timedelta(0)
