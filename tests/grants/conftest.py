"""
A database with a schema handed over to four roles, each with a login of its own.
"""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.grants import Roles, apply
from tests import servers

# What one role may has no order; the catalog keeps that of the GRANTs.
RIGHTS = """
SELECT kind, name, owner, CASE WHEN acl IS NOT NULL THEN
    ARRAY(SELECT item::text FROM unnest(acl) AS item ORDER BY 1) END
FROM (
    SELECT 'schema', nspname::text, pg_get_userbyid(nspowner), nspacl
    FROM pg_namespace WHERE nspname = 'jobstore'
    UNION ALL
    SELECT 'relation', relname, pg_get_userbyid(relowner), relacl
    FROM pg_class WHERE relnamespace = 'jobstore'::regnamespace
        AND relkind IN ('r', 'v', 'S')
    UNION ALL
    SELECT 'column', attrelid::regclass || '.' || attname, NULL, attacl
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = 'jobstore'::regnamespace AND attacl <> '{}'
    UNION ALL
    SELECT 'function', oid::regprocedure::text, pg_get_userbyid(proowner), proacl
    FROM pg_proc WHERE pronamespace = 'jobstore'::regnamespace
    UNION ALL
    SELECT 'default', concat(defaclobjtype, ' ', nspname),
        pg_get_userbyid(defaclrole), defaclacl
    FROM pg_default_acl LEFT JOIN pg_namespace ON pg_namespace.oid = defaclnamespace
) AS rights (kind, name, owner, acl)
ORDER BY kind, name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """
    DSNs on a schema whose rights were given by `jobstore.grants`.
    """

    admin: str
    migrator: str
    runtime: str
    operator: str
    reader: str
    nobody: str
    """A login that was given nothing at all."""
    roles: Roles

    @contextlib.contextmanager
    def login(self, role: str) -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
        with servers.connect(getattr(self, role)) as connection:
            yield connection

    def refused(self, role: str, statement: str) -> None:
        """
        Expect that *role* lacks the right for *statement*; nothing else will do.
        """
        with (
            self.login(role) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement.encode())

    def ask(self, role: str, statement: str) -> list[tuple[Any, ...]]:
        with self.login(role) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="package")
def granted(server: servers.Server) -> Iterator[Granted]:
    """
    One for all tests here: each leaves the rights and the structure as they were.
    """
    with servers.created_database(server.admin_dsn) as admin:
        yield from hand_over(admin)


def hand_over(admin: str, schema: str = "jobstore") -> Iterator[Granted]:
    """
    Migrate *schema* as a superuser, and give the rights in it to new logins.
    """
    migrate.upgrade(admin, schema=schema)
    tag = secrets.token_hex(4)
    names = {one.name: f"Test-{one.name}-{tag}" for one in fields(Roles)}
    roles = Roles(**names)
    logins = {**names, "nobody": f"Test-nobody-{tag}"}
    apply(admin, schema=schema, roles=roles, create_roles=True)
    password = secrets.token_hex(8)
    with servers.connect(admin) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {}").format(sql.Identifier(logins["nobody"]))
        )
        for name in logins.values():
            connection.execute(
                sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(name), sql.Literal(password)
                )
            )
    try:
        url = make_url(admin)
        yield Granted(
            admin=admin,
            roles=roles,
            **{
                role: url.set(username=name, password=password).render_as_string(
                    hide_password=False
                )
                for role, name in logins.items()
            },
        )
    finally:
        drop(admin, *logins.values())


def drop(admin: str, *names: str) -> None:
    """
    Drop roles with all that they own in the database of *admin*.
    """
    with servers.connect(admin) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE usename = ANY(%s)",
            [list(names)],
        )
        for name in names:
            role = sql.Identifier(name)
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def clean(granted: Granted) -> Granted:
    """
    The same, with empty tables.
    """
    granted.ask(
        "admin",
        "TRUNCATE jobstore.job, jobstore.payload, jobstore.idempotency_key, "
        "jobstore.attempt, jobstore.audit",
    )
    return granted


@pytest.fixture
def fresh(database: str) -> Iterator[Granted]:
    """
    A database of the test's own, for what changes its structure.
    """
    yield from hand_over(database)
