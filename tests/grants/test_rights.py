"""
Rights are given whole or not at all, again and again, and hold through migrations.
"""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url

from jobstore import NewJob, PostgresStore, migrate
from jobstore.doctor import explain
from jobstore.errors import InvalidInput, SchemaMissing, StoreBusy, StoreFault
from jobstore.grants import Roles, apply
from jobstore.grants.statements import FUNCTIONS, TABLES, VIEWS
from tests import servers
from tests.grants.conftest import RIGHTS, Granted, drop, hand_over
from tests.postgres.test_schemas import NAMES, live_a_life

ROOT = Path(__file__).parents[2]


def test_everything_in_the_schema_is_listed(granted: Granted) -> None:
    there = granted.ask(
        "admin",
        "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p', 'v') "
        "AND relnamespace = 'jobstore'::regnamespace ORDER BY 1",
    )
    assert [one for (one,) in there] == sorted(TABLES + VIEWS)
    listed = ", ".join(f"'jobstore.{one}'" for one in FUNCTIONS)
    assert (
        granted.ask(
            "admin",
            "SELECT oid::regprocedure::text FROM pg_proc "
            "WHERE pronamespace = 'jobstore'::regnamespace "
            f"AND oid <> ALL(ARRAY[{listed}]::regprocedure[])",
        )
        == []
    )


def test_the_migrator_owns_it_all_and_again_changes_nothing(granted: Granted) -> None:
    before = granted.ask("admin", RIGHTS)
    owners = {owner for kind, _, owner, _ in before if kind != "column"}
    assert owners == {granted.roles.migrator}
    apply(granted.admin, roles=granted.roles)
    assert granted.ask("admin", RIGHTS) == before
    # By the owner himself, who is no superuser and may create no roles.
    apply(granted.migrator, roles=granted.roles)
    assert granted.ask("admin", RIGHTS) == before


def test_what_was_given_by_hand_is_taken_back(granted: Granted) -> None:
    before = granted.ask("admin", RIGHTS)
    reader, runtime = granted.roles.reader, granted.roles.runtime
    granted.ask(
        "admin",
        f"""
        GRANT SELECT ON jobstore.payload TO "{reader}", PUBLIC;
        GRANT SELECT (result) ON jobstore.job TO "{reader}";
        GRANT ALL ON SCHEMA jobstore TO "{runtime}";
        GRANT ALL ON jobstore.audit TO "{runtime}";
        GRANT ALL ON SEQUENCE jobstore.audit_id_seq TO "{runtime}";
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA jobstore TO PUBLIC, "{reader}";
        REVOKE ALL ON jobstore.job FROM "{runtime}"
        """,
    )
    apply(granted.migrator, roles=granted.roles)
    assert granted.ask("admin", RIGHTS) == before


def test_any_number_may_apply_at_once(granted: Granted) -> None:
    before = granted.ask("admin", RIGHTS)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: apply(granted.migrator, roles=granted.roles), range(4)))
    assert granted.ask("admin", RIGHTS) == before


def test_not_while_a_migration_is_at_work(granted: Granted) -> None:
    with (
        migrate.migrating(granted.migrator, schema="jobstore"),
        pytest.raises(StoreBusy),
    ):
        apply(granted.migrator, roles=granted.roles)


def test_an_engine_will_do(granted: Granted) -> None:
    engine = create_engine(granted.migrator)
    apply(engine, roles=granted.roles)
    engine.dispose()


@pytest.mark.parametrize("name", NAMES)
def test_schemas_and_roles_of_any_legal_name(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    short = name.encode()[:40].decode("utf-8", "ignore")
    roles = Roles(
        migrator=f"m {short}",
        runtime=f"r {short}",
        operator=f"o {short}",
        reader=f"d {short}",
    )
    try:
        apply(database, schema=name, roles=roles, create_roles=True)
        with servers.connect(database) as admin:
            owners = admin.execute(
                "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class "
                "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE nspname = %s AND relkind IN ('r', 'v')",
                [name],
            ).fetchall()
    finally:
        drop(database, *roles.all())
    assert owners == [(roles.migrator,)]


def test_a_schema_that_others_share_stays_theirs(database: str) -> None:
    with servers.connect(database) as admin:
        admin.execute("CREATE TABLE public.mine AS SELECT 1 AS one")
        before = admin.execute(
            "SELECT relacl, relowner::regrole::text FROM pg_class "
            "WHERE oid = 'public.mine'::regclass"
        ).fetchall()
        migrate.upgrade(database, schema="public")
        for granted in hand_over(database, "public"):
            assert granted.ask("nobody", "SELECT current_schema()::text") == [
                ("public",)
            ]
            granted.refused("migrator", "SELECT * FROM public.mine")
            granted.refused("migrator", "DROP SCHEMA public CASCADE")
            store = PostgresStore(granted.runtime, schema="public")
            live_a_life(store)
            store.close()
            migrate.downgrade(
                granted.migrator, "0001", schema="public", allow_data_loss=True
            )
            migrate.upgrade(granted.migrator, schema="public")
            after = admin.execute(
                "SELECT relacl, relowner::regrole::text FROM pg_class "
                "WHERE oid = 'public.mine'::regclass"
            ).fetchall()
            assert after == before


def test_logins_become_members_as_the_documentation_says(fresh: Granted) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.split("\n## Roles\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    ((?:GRANT|ALTER ROLE) .+)$", section, re.MULTILINE)
    with contextlib.ExitStack() as made:
        logins = {
            name: made.enter_context(servers.created_role(fresh.admin))
            for name in ("app", "alice", "deploy")
        }
        names = {name: make_url(dsn).username for name, dsn in logins.items()}
        names |= {
            "jobstore_runtime": fresh.roles.runtime,
            "jobstore_operator": fresh.roles.operator,
            "jobstore_migrator": fresh.roles.migrator,
        }
        for line in lines:
            words = re.sub(
                r"\b(jobstore_\w+|app|alice|deploy)\b",
                lambda found: f'"{names[found[0]]}"',
                line,
            )
            fresh.ask("admin", words)
        # All of it by a login: down and up again, and the rights once more.
        rights = fresh.ask("admin", RIGHTS)
        migrate.downgrade(logins["deploy"], "base")
        migrate.upgrade(logins["deploy"])
        apply(logins["deploy"], roles=fresh.roles)
        assert fresh.ask("admin", RIGHTS) == rights
        store = PostgresStore(logins["app"])
        live_a_life(store)
        job = store.create(NewJob(kind="k")).job
        store.close()
        assert "It is ready" in explain(logins["alice"], job.id)


# -- refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "public", "none", "pg_monitor", "nul\x00", "\ud800", 7]
)
def test_what_is_no_role_is_refused_at_once(name: Any) -> None:
    with pytest.raises(InvalidInput, match="reader"):
        Roles(reader=name)


def test_a_name_for_two_is_refused() -> None:
    with pytest.raises(InvalidInput, match="operator"):
        Roles(runtime="one", operator="one")


def test_a_role_that_is_not_there_is_named(granted: Granted) -> None:
    before = granted.ask("admin", RIGHTS)
    roles = Roles(
        migrator=granted.roles.migrator,
        runtime=granted.roles.runtime,
        operator=granted.roles.operator,
        reader="nobody of that name",
    )
    with pytest.raises(InvalidInput, match="nobody of that name"):
        apply(granted.migrator, roles=roles)
    assert granted.ask("admin", RIGHTS) == before


def test_tables_come_first(database: str) -> None:
    with servers.created_role(database) as role:
        names = {
            one: str(make_url(role).username) if one == "migrator" else f"{one}-nowhere"
            for one in ("migrator", "runtime", "operator", "reader")
        }
        with pytest.raises(SchemaMissing):
            apply(database, roles=Roles(**names), create_roles=True)
    with servers.connect(database) as admin:
        # All or nothing: not even the roles.
        assert (
            admin.execute(
                "SELECT rolname FROM pg_roles WHERE rolname LIKE '%-nowhere'"
            ).fetchall()
            == []
        )


@pytest.mark.parametrize("role", ["runtime", "operator", "reader", "nobody"])
def test_nobody_else_gives_rights(granted: Granted, role: str) -> None:
    before = granted.ask("admin", RIGHTS)
    with pytest.raises(StoreFault):
        apply(getattr(granted, role), roles=granted.roles)
    assert granted.ask("admin", RIGHTS) == before
