"""
Rights from the shell.
"""

import shutil
import subprocess

import pytest
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.grants import script
from tests import servers
from tests.cli.conftest import Cli
from tests.grants.conftest import drop

NAMES = {role: f"test cli {role}" for role in ("runtime", "operator", "reader")}
ROLES = [word for role, name in NAMES.items() for word in (f"--{role}", name)]


def test_it_prints_without_a_database(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBSTORE_DSN")
    ran = cli.ok("grants", "--schema", "jobstore")
    assert ran.out == script()
    assert ran.out.startswith("\\set ON_ERROR_STOP on\nBEGIN;\n")
    assert ran.out.endswith("COMMIT;\n")
    assert "CREATE ROLE" not in ran.out
    assert "CREATE ROLE" in cli.ok("grants", "--create-roles").out
    assert cli("grants", "--apply").code == 2
    twice = cli("grants", "--reader", "one", "--operator", "one", "--json")
    assert (twice.code, twice.raw) == (4, b"")


def test_it_applies(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, dsn: str, fresh_schema: str
) -> None:
    monkeypatch.setenv("JOBSTORE_SCHEMA", fresh_schema)
    with servers.created_role(dsn) as owner:
        roles = [*ROLES, "--migrator", str(make_url(owner).username)]
        missing = cli("grants", "--apply", *roles)
        assert (missing.code, missing.raw) == (4, b"")
        assert NAMES["runtime"] in missing.err
        try:
            ran = cli.ok("grants", "--apply", "--create-roles", "--json", *roles)
            assert ran.json["applied"] is True
            assert ran.json["statements"]
            # From now on its new owner may do so himself.
            assert cli.ok("grants", "--apply", "--dsn", owner, *roles).raw == b""
            cli.ok("migrate", "check", "--dsn", owner)
        finally:
            drop(dsn, *NAMES.values())


@pytest.mark.skipif(shutil.which("psql") is None, reason="there is no psql here")
def test_psql_runs_what_is_printed(cli: Cli, database: str) -> None:
    migrate.upgrade(database, schema="o'clock")
    plain = make_url(database).set(drivername="postgresql")
    psql = ["psql", "--no-psqlrc", plain.render_as_string(hide_password=False)]
    roles = [*ROLES, "--migrator", "test cli migrator"]
    try:
        # Without the roles it stops, and nothing is left half done.
        refused = cli.ok("grants", "--schema", "o'clock", *roles)
        stopped = subprocess.run(
            psql, input=refused.raw, capture_output=True, check=False
        )
        assert stopped.returncode == 3
        ran = cli.ok("grants", "--schema", "o'clock", "--create-roles", *roles)
        subprocess.run(psql, input=ran.raw, capture_output=True, check=True)
        subprocess.run(psql, input=ran.raw, capture_output=True, check=True)
    finally:
        drop(database, *NAMES.values(), "test cli migrator")
