"""
A host's Alembic and ours in one database: neither proposes anything for the other.
"""

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
)

from jobstore import migrate
from jobstore.errors import InvalidInput
from tests.migrations.host import Host, tables_of_the_host
from tests.servers import connect

# Where jobstore is, and the host's search path. In public both share a schema.
PLACES = [
    ("jobstore", "public"),
    ("jobstore", "public,jobstore"),
    ("jobstore", "jobstore,public"),
    ("public", "public"),
    ("Job's store", "public"),
]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]} seen along {place[1]}")
def host(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Host:
    """
    A host whose tables and revisions are there, in a database with jobstore in it.
    """
    schema, search_path = request.param
    migrate.upgrade(database, schema=schema)
    made = Host(
        folder=tmp_path / "host",
        dsn=database,
        tables=tables_of_the_host(),
        search_path=search_path,
        jobstore=schema,
    )
    made.revision(
        "h1",
        None,
        "op.execute('CREATE TABLE public.invoice (id serial PRIMARY KEY)')",
        "op.execute('DROP TABLE public.invoice')",
    )
    made.upgrade()
    return made


@pytest.mark.parametrize("include_schemas", [True, False])
def test_the_host_proposes_nothing_for_our_tables(
    host: Host, include_schemas: bool
) -> None:
    if include_schemas and host.search_path.startswith("jobstore"):
        pytest.skip("then Alembic sees the host's own tables twice, with or without us")
    host.include_schemas = include_schemas
    assert host.proposals() == []
    # And it still sees its own.
    with connect(host.dsn) as connection:
        connection.execute("DROP TABLE public.invoice")
        connection.execute("CREATE TABLE public.old_invoice (id int)")
    assert [one.split("(")[0] for one in host.proposals()] == [
        "add_table invoice",
        "remove_table old_invoice",
    ]


def test_without_the_helper_it_would_drop_them(host: Host) -> None:
    host.with_helper = False
    assert [one for one in host.proposals() if one.startswith("remove_table")]


def test_we_propose_nothing_for_the_hosts(host: Host) -> None:
    with migrate.migrating(host.dsn, schema=host.jobstore) as connection:
        options = migrate.comparison(host.jobstore)
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, options["target_metadata"]) == []


def test_a_table_of_the_hosts_may_have_a_name_of_ours(
    database: str, tmp_path: Path
) -> None:
    migrate.upgrade(database)
    host = Host(
        folder=tmp_path / "host",
        dsn=database,
        tables=MetaData(),
        search_path="public,jobstore",
    )
    with connect(database) as connection:
        connection.execute("CREATE TABLE public.job (id int)")
    # It hides ours, and is nobody's but the host's.
    assert [one.split("(")[0] for one in host.proposals()] == ["remove_table job"]


def test_what_a_newer_release_made_is_not_the_hosts_either(
    database: str, tmp_path: Path
) -> None:
    migrate.upgrade(database)
    with connect(database) as connection:
        connection.execute("CREATE TABLE jobstore.later (id int)")
    for path in ("public", "public,jobstore"):
        host = Host(
            folder=tmp_path / "host",
            dsn=database,
            tables=MetaData(),
            search_path=path,
        )
        assert host.proposals() == []


def test_foreign_keys_of_the_hosts_may_point_at_ours(
    database: str, tmp_path: Path
) -> None:
    migrate.upgrade(database)
    tables = MetaData()
    Table("job", tables, Column("id", Text, primary_key=True), schema="jobstore")
    Table(
        "invoice",
        tables,
        Column("id", Integer, primary_key=True),
        Column("job_id", Text, ForeignKey("jobstore.job.id")),
    )
    host = Host(folder=tmp_path / "host", dsn=database, tables=tables)
    assert [one.split()[:2] for one in host.proposals()] == [["add_table", "invoice"]]
    with connect(database) as connection:
        connection.execute(
            "CREATE TABLE invoice (id serial PRIMARY KEY,"
            " job_id text REFERENCES jobstore.job)"
        )
    assert host.proposals() == []


def test_the_hosts_own_filters_are_asked_about_all_else(
    database: str, tmp_path: Path
) -> None:
    migrate.upgrade(database)
    host = Host(
        folder=tmp_path / "host",
        dsn=database,
        tables=tables_of_the_host(),
        search_path="public,jobstore",
    )
    with connect(database) as connection:
        connection.execute("CREATE TABLE spatial_ref_sys (id int); CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.thing (id int)")
    asked: list[tuple[Any, ...]] = []

    def include_name(name: str | None, kind: str, _parents: Any) -> bool:
        asked.append((kind, name))
        return name not in {"other", "spatial_ref_sys"}

    def include_object(*thing: Any) -> bool:
        asked.append(thing[1:3])
        return bool(thing[1] != "invoice")

    host.own_filters = {"include_name": include_name, "include_object": include_object}
    assert host.proposals() == []
    assert ("schema", "other") in asked
    assert ("invoice", "table") in asked
    assert not {("schema", "jobstore"), ("table", "job"), ("table", "payload")} & set(
        asked
    )


def test_comparing_leaves_the_hosts_transaction_to_the_host(
    database: str, tmp_path: Path
) -> None:
    """
    Had the helper begun one, Alembic would take it for the host's and never commit.
    """
    migrate.upgrade(database)
    engine = create_engine(database)
    with engine.connect() as connection:
        migrate.without_jobstore(connection)
        assert not connection.in_transaction()
        with pytest.raises(InvalidInput, match="schema"):
            migrate.without_jobstore(connection, schema="pg_mine")
    engine.dispose()
