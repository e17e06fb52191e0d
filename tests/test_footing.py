"""
The fixtures keep what they promise: everything else stands on them.
"""

import os

import psycopg
import pytest
from sqlalchemy import make_url

from tests import servers

Admin = psycopg.Connection[tuple[object, ...]]


def test_the_shared_database_is_utf8_and_sorts_by_bytes(admin: Admin) -> None:
    row = admin.execute(
        "SELECT pg_encoding_to_char(encoding), datcollate FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    assert row == ("UTF8", "C")


@pytest.mark.parametrize("turn", [1, 2])
def test_a_schema_has_empty_tables_each_time(
    admin: Admin, schema: str, turn: int
) -> None:
    assert admin.execute(f"SELECT count(*) FROM {schema}.job").fetchone() == (0,)
    admin.execute(f"CREATE TABLE IF NOT EXISTS {schema}.seen (turn int)")
    assert admin.execute(f"SELECT count(*) FROM {schema}.seen").fetchone() == (0,)
    admin.execute(f"INSERT INTO {schema}.seen VALUES ({turn})")


@pytest.mark.parametrize("turn", [1, 2])
def test_a_fresh_schema_has_its_tables_and_a_name_of_its_own(
    admin: Admin, fresh_schema: str, turn: int
) -> None:
    assert admin.execute(f"SELECT count(*) FROM {fresh_schema}.job").fetchone() == (0,)
    admin.execute(f"DROP TABLE {fresh_schema}.payload CASCADE")


def test_an_empty_schema_does_not_exist(admin: Admin, empty_schema: str) -> None:
    query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
    assert admin.execute(query, [empty_schema]).fetchone() == (0,)


def test_a_database_is_ones_own(dsn: str, database: str) -> None:
    assert make_url(database).database != make_url(dsn).database
    with servers.connect(database) as connection:
        connection.execute("CREATE TABLE mine ()")


def test_a_role_is_no_superuser_and_leaves_no_trace(database: str) -> None:
    with servers.created_role(database, may_create=True) as role_dsn:
        with servers.connect(role_dsn) as connection:
            connection.execute("CREATE SCHEMA its_own")
            query = "SELECT usesuper FROM pg_user WHERE usename = current_user"
            assert connection.execute(query).fetchone() == (False,)
        name = make_url(role_dsn).username
    with servers.connect(database) as connection:
        query = "SELECT count(*) FROM pg_roles WHERE rolname = %s"
        assert connection.execute(query, [name]).fetchone() == (0,)


def test_the_server_is_the_one_that_was_asked_for(
    server: servers.Server, postgres_version: int
) -> None:
    programs = os.environ.get("JOBSTORE_TEST_PG_BIN", "")
    if server.kind is servers.Kind.PROGRAMS:
        assert f"/{postgres_version}/" in f"{programs}/" or "postgresql" not in programs


def test_ones_own_server_can_be_killed_and_comes_back(
    own_server: servers.LocalServer,
) -> None:
    with servers.created_database(own_server.admin_dsn) as made:
        with servers.connect(made) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1")
            own_server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        own_server.restart()
        with servers.connect(made) as connection:
            assert connection.execute("TABLE kept").fetchone() == (1,)
