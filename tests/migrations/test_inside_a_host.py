"""
Our revisions in a host's chain: its one ``alembic upgrade heads`` brings both.
"""

from pathlib import Path

import pytest

from jobstore import NewJob, PostgresStore, SchemaTooNew, migrate
from jobstore.errors import InvalidInput
from jobstore.migrate import State
from tests.migrations.host import Host, tables_of_the_host
from tests.migrations.test_migrating import catalog
from tests.postgres.test_schemas import live_a_life
from tests.servers import connect, created_role

UP = "migrate.host_upgrade({to!r}, since={since!r}, schema={schema!r})"
DOWN = "migrate.host_downgrade({since!r}, since={to!r}, schema={schema!r})"


def host_at(
    dsn: str, folder: Path, schema: str = "jobstore", *, number: str = "h"
) -> Host:
    """
    A host with a chain of four: its own, ours to 0003, its own on ours, ours to head.
    """
    host = Host(folder=folder, dsn=dsn, tables=tables_of_the_host(), jobstore=schema)
    quoted = '"' + schema.replace('"', '""') + '"'
    first = {"to": "0003", "since": "base", "schema": schema}
    second = {"to": migrate.head(), "since": "0003", "schema": schema}
    one, two, three, four = (f"{number}00{place}" for place in range(1, 5))
    host.revision(
        one,
        None,
        "op.execute('CREATE TABLE invoice (id serial PRIMARY KEY)')",
        "op.execute('DROP TABLE invoice')",
    )
    host.revision(two, one, UP.format(**first), DOWN.format(**first))
    references = f"text REFERENCES {quoted}.job".replace(":", r"\:")
    host.revision(
        three,
        two,
        f"op.execute({f'ALTER TABLE invoice ADD COLUMN job_id {references}'!r})",
        "op.execute('ALTER TABLE invoice DROP COLUMN job_id')",
    )
    host.revision(four, three, UP.format(**second), DOWN.format(**second))
    return host


def at(dsn: str) -> list[str]:
    with connect(dsn) as connection:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    return [str(name) for (name,) in rows]


# Their numbers may even be ours: the chains never meet.
@pytest.mark.parametrize("number", ["h", "0"])
@pytest.mark.parametrize("schema", ["jobstore", "Odd :x %s 'name'"])
def test_up_down_and_up_again(
    database: str, tmp_path: Path, schema: str, number: str
) -> None:
    host = host_at(database, tmp_path / "host", schema, number=number)
    host.upgrade("heads")
    assert at(database) == [f"{number}004"]
    assert migrate.check(database, schema=schema).state is State.OK
    ours = catalog(database, schema)
    store = PostgresStore(database, schema=schema, wake_ups=False)
    live_a_life(store)
    assert host.proposals() == ["modify invoice"], "its own foreign key alone"

    # Ours goes back with the host's step, and stands where it says.
    host.downgrade(f"{number}002")
    assert migrate.current(database, schema=schema) == "0003"
    job = store.create(NewJob(kind="k")).job
    with pytest.raises(RuntimeError, match="jobs"):
        host.downgrade("base")
    # The whole of it was refused: neither half is gone.
    assert at(database) == [f"{number}002"]
    assert migrate.current(database, schema=schema) == "0003"
    assert store.get(job.id) == job
    store.close()

    host.downgrade("base", allow_data_loss=True)
    assert at(database) == []
    assert migrate.current(database, schema=schema) is None
    host.upgrade("heads")
    assert catalog(database, schema) == ours
    assert migrate.check(database, schema=schema).state is State.OK


def test_jobstore_migrate_goes_on_working_beside_it(
    database: str, tmp_path: Path
) -> None:
    """
    Whoever comes first does the work, and the other finds it done.
    """
    host = host_at(database, tmp_path / "host")
    host.upgrade("h002")
    assert migrate.upgrade(database) == migrate.head()
    host.upgrade("heads")
    assert at(database) == ["h004"]
    assert migrate.check(database).state is State.OK
    migrate.downgrade(database, "0002")
    host.downgrade("h003")
    assert migrate.current(database) == "0002", "below already, and left there"


def test_a_failure_of_the_hosts_undoes_ours(database: str, tmp_path: Path) -> None:
    host = host_at(database, tmp_path / "host")
    host.revision("h005", "h004", "op.execute('SELECT 1/0')", "pass")
    with pytest.raises(Exception, match="division"):
        host.upgrade("heads")
    assert migrate.current(database) is None


def test_what_is_newer_or_unknown_is_left_alone(database: str, tmp_path: Path) -> None:
    migrate.upgrade(database)
    with connect(database) as connection:
        connection.execute("UPDATE jobstore.jobstore_version SET version_num = '9999'")
    host = host_at(database, tmp_path / "host")
    with pytest.raises(SchemaTooNew, match="9999"):
        host.upgrade("heads")


@pytest.mark.parametrize("revision", ["head", "9999", "", "base"])
def test_a_revision_must_be_named(database: str, tmp_path: Path, revision: str) -> None:
    host = Host(folder=tmp_path / "host", dsn=database, tables=tables_of_the_host())
    host.revision("h1", None, f"migrate.host_upgrade({revision!r})", "pass")
    with pytest.raises(InvalidInput, match="revision"):
        host.upgrade()


def test_the_hosts_settings_are_its_own_again(database: str, tmp_path: Path) -> None:
    host = Host(folder=tmp_path / "host", dsn=database, tables=tables_of_the_host())
    host.revision(
        "h1",
        None,
        f"""
        op.execute("SET lock_timeout = '7s'")
        op.get_context().config.attributes["schema"] = "the host's"
        migrate.host_upgrade({migrate.head()!r})
        assert op.get_context().config.attributes["schema"] == "the host's"
        op.execute("CREATE TABLE settings AS SELECT current_setting('lock_timeout')"
                   " AS timeout, current_setting('search_path') AS path")
        """,
        "pass",
    )
    host.upgrade()
    with connect(database) as connection:
        rows = connection.execute("SELECT * FROM public.settings").fetchall()
    assert rows == [("7s", "public")]


def test_an_ordinary_role_will_do(database: str, tmp_path: Path) -> None:
    with created_role(database, may_create=True) as owner:
        with connect(database) as admin:
            admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        host = host_at(owner, tmp_path / "host")
        host.upgrade("heads")
        assert migrate.check(owner).state is State.OK
        host.downgrade("base")


def test_offline_it_prints_the_same(database: str, tmp_path: Path) -> None:
    host = host_at(database, tmp_path / "host")
    up, down = host.sql("base:heads"), host.sql("h004:base", is_down=True)
    with connect(database) as connection:
        connection.execute("SET search_path = public")
        connection.execute(up.encode())
        assert at(database) == ["h004"]
        assert migrate.check(database).state is State.OK
        connection.execute(down.encode())
    assert migrate.current(database) is None
    host.upgrade("heads")
    assert migrate.check(database).state is State.OK
