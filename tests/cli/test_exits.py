"""
Exit codes, settings, and what must never be printed.
"""

import importlib
import signal
from pathlib import Path

import pytest

import jobstore.errors
from jobstore import PostgresStore
from jobstore.cli.exits import Exit, exit_of
from tests.cli.conftest import Cli

UNKNOWN = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
NOWHERE = "postgresql://user:s3cret@127.0.0.1:1/db?connect_timeout=2"


def test_every_error_has_a_code_of_its_own_kind() -> None:
    expected = {
        "InvalidInput": Exit.INVALID,
        "JobNotFound": Exit.NOT_FOUND,
        "JobPruned": Exit.NOT_FOUND,
        "PayloadMissing": Exit.NOT_FOUND,
        "IdempotencyConflict": Exit.CONFLICT,
        "InvalidParent": Exit.CONFLICT,
        "InvalidTransition": Exit.CONFLICT,
        "LeaseLost": Exit.CONFLICT,
        "JobCancelled": Exit.CONFLICT,
        "StoreUnavailable": Exit.UNAVAILABLE,
        "StoreBusy": Exit.BUSY,
        "OutcomeUnknown": Exit.UNKNOWN,
        "StoreFault": Exit.ERROR,
        "SchemaError": Exit.SCHEMA,
        "SchemaMissing": Exit.SCHEMA,
        "SchemaOutdated": Exit.SCHEMA,
        "SchemaTooNew": Exit.SCHEMA,
        "JobstoreError": Exit.ERROR,
    }
    assert set(expected) == set(jobstore.errors.__all__)
    for name, code in expected.items():
        kind = getattr(jobstore.errors, name)
        assert exit_of(kind.__new__(kind)) is code, name


def test_the_numbers_are_stable() -> None:
    assert [int(one) for one in Exit] == [*range(10), *range(11, 16), 130, 141]


def test_without_a_database_it_says_how_to_get_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBSTORE_DSN")
    for flags in ([], ["--dsn", ""]):
        ran = cli("list", *flags)
        assert (ran.code, ran.raw) == (2, b"")
        assert "JOBSTORE_DSN" in ran.err
        assert "jobstore up" in ran.err


def test_flags_beat_the_environment(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str, schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_DSN", NOWHERE)
    monkeypatch.setenv("JOBSTORE_SCHEMA", "no_such_schema")
    assert cli("list").code == 6
    assert cli("list", "--dsn", dsn).code == 7
    assert cli("list", "--dsn", dsn, "--schema", schema).code == 0
    # Given empty is given: the environment does not come back in.
    assert cli("list", "--dsn", "").code == 2
    assert cli("list", "--dsn", dsn, "--schema", "").code == 4


@pytest.mark.parametrize(
    ("value", "flags", "expected"),
    [
        ("1", [], True),
        ("0", [], False),
        ("1", ["--no-through-pooler"], False),
        ("0", ["--through-pooler"], True),
        (None, [], False),
    ],
)
def test_a_switch_can_be_turned_both_ways(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
    flags: list[str],
    expected: bool,
) -> None:
    if value is not None:
        monkeypatch.setenv("JOBSTORE_THROUGH_POOLER", value)
    seen: list[bool] = []

    def store(*_arguments: object, through_pooler: bool, **_options: object) -> None:
        seen.append(through_pooler)
        raise jobstore.JobNotFound("x")

    options = importlib.import_module("jobstore.cli.options")
    monkeypatch.setattr(options, "PostgresStore", store)
    assert cli("list", *flags).code == 3
    assert seen == [expected]


@pytest.mark.parametrize(
    "wrong",
    [
        NOWHERE,
        "postgresql://user@127.0.0.1:1/db?password=s3cret&connect_timeout=2",
        "postgresql://user:pa@s3cret@127.0.0.1:1/db?connect_timeout=2",
        "mysql://user:s3cret@127.0.0.1/db",
        "user:s3cret",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "--json"],
        ["migrate", "up"],
        ["doctor"],
        ["explain", UNKNOWN],
        ["work", "--", "cat"],
    ],
)
def test_a_password_is_never_printed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, wrong: str, command: list[str]
) -> None:
    monkeypatch.setenv("JOBSTORE_DSN", wrong)
    ran = cli(*command)
    assert ran.code in {Exit.INVALID, Exit.UNAVAILABLE}
    assert ran.raw == b""
    assert ran.err
    assert "s3cret" not in ran.err
    assert "Traceback" not in ran.err


def test_verbose_logs_no_password_and_no_content(cli: Cli, dsn: str) -> None:
    with cli.start("--verbose", "list", "--dsn", NOWHERE) as program:
        _, said = program.communicate()
    assert program.returncode == 6
    assert b"s3cret" not in said
    submit = ["--verbose", "submit", "--kind", "k", "--key", "private-key", __file__]
    with cli.start(*submit) as program:
        _, said = program.communicate()
    assert program.returncode == 0
    assert b"private-key" not in said
    assert b"INSERT" not in said


def test_an_error_message_cannot_redraw_the_terminal(cli: Cli) -> None:
    ran = cli("show", "\x1b[2J")
    assert ran.code == 3
    assert "\x1b" not in ran.err


def test_ctrl_c(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PostgresStore, "list", interrupted)
    ran = cli("list")
    assert (ran.code, ran.raw) == (130, b"")
    assert "Traceback" not in ran.err


def test_up_serves_until_it_is_told_to_stop(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with cli.start("up", str(folder), "--schema", "jobstore") as program:
        assert program.stdout is not None
        dsn = program.stdout.readline().decode().strip()
        assert cli.ok("list", "--dsn", dsn, "--schema", "jobstore").out == ""
        program.send_signal(signal.SIGTERM)
        program.communicate()
    assert program.returncode == 0
    assert cli("list", "--dsn", dsn, "--schema", "jobstore").code == 6
