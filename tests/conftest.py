"""
What tests ask for by name: one server for all, a schema or a database for each.

    server         the PostgreSQL of this run (tests/servers.py says which)
    dsn            its database for tests that keep to a schema
    schema         a migrated schema with empty tables, cheap (about 5 ms)
    fresh_schema   one that was migrated for this test alone (about 100 ms)
    empty_schema   the name of a schema that does not exist yet
    database       the DSN of a database of the test's own
    own_server     a server of the test's own, to be killed

A test that asks for any of them bears the marker ``postgres`` by itself.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests import servers

_COUNTER = itertools.count(1)


def pytest_report_header() -> str:
    return f"postgresql: {servers.choose()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"server", "own_server"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("postgres")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """
    Start the server of this run. Workers of pytest-xdist share a local one.
    """
    base = tmp_path_factory.getbasetemp()
    is_alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = (base if is_alone else base.parent) / "postgresql"
    running = servers.start(servers.choose(), folder)
    yield running
    running.stop()
    if is_alone:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[servers.LocalServer]:
    """
    Start a server that no other test uses, from the programs of this run.
    """
    running = servers.start_local(servers.choose(), tmp_path / "postgresql")
    yield running
    running.stop()
    shutil.rmtree(tmp_path / "postgresql", ignore_errors=True)


@pytest.fixture(scope="session")
def dsn(server: servers.Server) -> Iterator[str]:
    """
    Make the database that tests share. Each keeps to a schema of its own.
    """
    with servers.created_database(server.admin_dsn) as made:
        yield made


@pytest.fixture(scope="session")
def postgres_version(dsn: str) -> int:
    """
    Tell the major version of the server.
    """
    return servers.major_version(dsn)


@pytest.fixture
def database(server: servers.Server) -> Iterator[str]:
    """
    Make a database for one test: for roles, versions, settings, connection counts.
    """
    with servers.created_database(server.admin_dsn) as made:
        yield made


@pytest.fixture(scope="session")
def admin(dsn: str) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    """
    Lend a superuser's connection to the shared database, for a look from outside.
    """
    with servers.connect(dsn) as connection:
        # Whoever left a transaction open should hear of it, and soon.
        connection.execute("SET lock_timeout = '10s'")
        yield connection


@pytest.fixture
def empty_schema(
    admin: "psycopg.Connection[tuple[object, ...]]",
) -> Iterator[str]:
    """
    Name a schema that does not exist; it is dropped if the test makes it.
    """
    name = f"test_{next(_COUNTER)}_{os.getpid()}"
    yield name
    _drop(admin, name)


@pytest.fixture
def fresh_schema(dsn: str, empty_schema: str) -> str:
    """
    Migrate a schema for this test alone: never analysed, free to be altered.
    """
    from jobstore import migrate

    migrate.upgrade(dsn, schema=empty_schema)
    return empty_schema


@pytest.fixture(scope="session")
def _migrated(
    dsn: str, admin: "psycopg.Connection[tuple[object, ...]]"
) -> Iterator[str]:
    from jobstore import migrate

    name = f"test_{os.getpid()}"
    migrate.upgrade(dsn, schema=name)
    yield name
    with contextlib.suppress(psycopg.Error):
        _drop(admin, name)


@pytest.fixture
def schema(_migrated: str, admin: "psycopg.Connection[tuple[object, ...]]") -> str:
    """
    Give a migrated schema with empty tables. Tests must not alter its structure.
    """
    tables = admin.execute(
        "SELECT tablename FROM pg_tables "
        "WHERE schemaname = %s AND tablename <> 'jobstore_version'",
        [_migrated],
    ).fetchall()
    names = [sql.Identifier(_migrated, str(table)) for (table,) in tables]
    admin.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(names)))
    return _migrated


def _drop(admin: "psycopg.Connection[tuple[object, ...]]", name: str) -> None:
    admin.execute(
        sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
    )
