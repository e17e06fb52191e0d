"""
What later revisions make: rights that hold by themselves, and those a revision gives.
"""

import re
import secrets
from pathlib import Path

import pytest
from psycopg import sql
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.grants import Roles, apply, script
from tests import servers
from tests.grants.conftest import RIGHTS, Granted, drop

ROOT = Path(__file__).parents[2]
PINNED = sorted(Path(__file__).parent.glob("grants_*.sql"))
ROLES = ("migrator", "runtime", "operator", "reader")


def test_the_newest_rights_are_pinned() -> None:
    """
    If they change, pin them anew beside the old ones, as grants_<head>.sql.

    The files of released revisions stay as they are: databases have those rights.
    """
    assert PINNED[-1].read_text() == script(create_roles=True)


@pytest.mark.parametrize("pinned", PINNED, ids=lambda path: path.stem)
def test_rights_of_an_earlier_revision_become_those_of_the_newest(
    database: str, pinned: Path
) -> None:
    """
    Each revision gives what it makes the rights that `jobstore grants` would give.
    """
    revision = pinned.stem.removeprefix("grants_")
    migrate.upgrade(database, revision=revision)
    tag = secrets.token_hex(4)
    text = pinned.read_text().removeprefix("\\set ON_ERROR_STOP on\n")
    text = re.sub(rf"\bjobstore_({'|'.join(ROLES)})\b", rf"\1 {tag}", text)
    roles = Roles(**{role: f"{role} {tag}" for role in ROLES})
    with servers.connect(database) as admin:
        try:
            admin.execute(text.encode())
            migrate.upgrade(as_migrator(database, roles))
            by_itself = admin.execute(RIGHTS).fetchall()
            apply(database, roles=roles)
            assert by_itself == admin.execute(RIGHTS).fetchall()
        finally:
            drop(database, *roles.all())


def as_migrator(admin: str, roles: Roles) -> str:
    password = secrets.token_hex(8)
    with servers.connect(admin) as connection:
        connection.execute(
            sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(roles.migrator), sql.Literal(password)
            )
        )
    url = make_url(admin).set(username=roles.migrator, password=password)
    return url.render_as_string(hide_password=False)


def test_new_tables_are_the_runtimes_at_once_and_nobody_elses(fresh: Granted) -> None:
    fresh.ask("migrator", "CREATE TABLE jobstore.later (id int, secret text)")
    fresh.ask("migrator", "ALTER TABLE jobstore.job ADD COLUMN later text")
    fresh.ask("runtime", "INSERT INTO jobstore.later VALUES (1)")
    fresh.ask("runtime", "UPDATE jobstore.job SET later = 'x'")
    for role in ("operator", "reader", "nobody"):
        fresh.refused(role, "SELECT * FROM jobstore.later")
        fresh.refused(role, "SELECT later FROM jobstore.job")


def test_new_functions_are_nobodys(fresh: Granted) -> None:
    fresh.ask(
        "migrator",
        "CREATE FUNCTION jobstore.later() RETURNS text LANGUAGE sql RETURN 'x'",
    )
    for role in ("runtime", "operator", "reader", "nobody"):
        fresh.refused(role, "SELECT jobstore.later()")


@pytest.mark.parametrize("function", ["_delete_payloads", "_truncate_payloads"])
def test_nobody_hangs_our_triggers_on_a_table_of_his_own(
    fresh: Granted, function: str
) -> None:
    """
    Not even after the schema was made anew, when nobody gave or took any rights.
    """
    for _ in range(2):
        for role in ("runtime", "operator", "reader"):
            fresh.refused(
                role,
                "CREATE TEMPORARY TABLE mine (id text);"
                "CREATE TRIGGER mine AFTER TRUNCATE ON mine "
                f"EXECUTE FUNCTION jobstore.{function}()",
            )
        migrate.downgrade(fresh.migrator, "base")
        migrate.upgrade(fresh.migrator)


def test_a_revision_gives_a_view_the_rights_of_its_like(fresh: Granted) -> None:
    """
    By the statement in docs/migrations.md, also for a view that is made anew.
    """
    text = (ROOT / "docs" / "migrations.md").read_text()
    (block,) = re.findall(r"```sql\n(DO \$\$\n.*?)```", text, re.DOTALL)
    before = fresh.ask("admin", RIGHTS)
    for name in ("later", "ready"):
        (definition,) = fresh.ask(
            "admin", "SELECT pg_get_viewdef('jobstore.ready'::regclass)"
        )
        fresh.ask("migrator", f"DROP VIEW IF EXISTS jobstore.{name}")
        fresh.ask("migrator", f"CREATE VIEW jobstore.{name} AS {definition[0]}")
        like = "running" if name == "ready" else "ready"
        statement = block.replace("{s}", "jobstore").replace("new_view", name)
        fresh.ask("migrator", statement.replace("its_like", like))
        fresh.ask("reader", f"SELECT * FROM jobstore.{name}")
        fresh.refused("runtime", f"SELECT * FROM jobstore.{name}")
    fresh.ask("migrator", "DROP VIEW jobstore.later")
    assert fresh.ask("admin", RIGHTS) == before
