"""
Which code works on which schema, and what is said where it does not.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from jobstore import (
    AsyncPostgresStore,
    NewJob,
    PostgresStore,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    migrate,
)
from jobstore.migrate import State
from jobstore.migrate.chain import scripts
from jobstore.postgres import window
from tests.migrations.releases import NextRelease
from tests.servers import connect

HEAD = migrate.head()

Use = Callable[[str, str], None]


def test_the_code_knows_its_own_revision() -> None:
    assert migrate.head() == window.HEAD
    for script in scripts():
        oldest = script.module.compatible_from
        assert oldest.isdigit()
        assert int(oldest) <= int(script.revision)


def test_the_schema_says_what_it_is_on_every_way(dsn: str, empty_schema: str) -> None:
    def said() -> tuple[str, str] | None:
        with connect(dsn) as connection:
            row = connection.execute(window.STATED, {"schema": empty_schema}).fetchone()
        assert row is not None
        return window.stated(str(row[0]))

    migrate.upgrade(dsn, schema=empty_schema, revision="0002")
    assert said() == ("0002", "0001")
    migrate.upgrade(dsn, schema=empty_schema)
    assert said() == (HEAD, "0001")
    migrate.downgrade(dsn, "0001", schema=empty_schema)
    assert said() == ("0001", "0001")
    migrate.downgrade(dsn, "base", schema=empty_schema)
    assert said() is None


def plainly(dsn: str, schema: str) -> None:
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    try:
        store.create(NewJob(kind="k"))
    finally:
        store.close()


def asynchronously(dsn: str, schema: str) -> None:
    async def use() -> None:
        store = AsyncPostgresStore(dsn, schema=schema, wake_ups=False)
        try:
            await store.create(NewJob(kind="k"))
        finally:
            await store.close()

    asyncio.run(use())


def in_a_transaction(dsn: str, schema: str) -> None:
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    engine = create_engine(dsn)
    try:
        with engine.begin() as connection:
            try:
                store.within(connection).create(NewJob(kind="k"))
            finally:
                # The transaction is still of use to the caller.
                assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    finally:
        engine.dispose()
        store.close()


def in_an_asynchronous_transaction(dsn: str, schema: str) -> None:
    async def use() -> None:
        store = AsyncPostgresStore(dsn, schema=schema, wake_ups=False)
        engine = create_async_engine(dsn)
        try:
            async with engine.begin() as connection:
                await store.within(connection).create(NewJob(kind="k"))
        finally:
            await engine.dispose()
            await store.close()

    asyncio.run(use())


WAYS = [plainly, asynchronously, in_a_transaction, in_an_asynchronous_transaction]


@pytest.mark.parametrize("use", WAYS)
def test_a_newer_schema_that_expands(
    dsn: str, fresh_schema: str, tmp_path: Path, use: Use
) -> None:
    newer = _migrated(dsn, fresh_schema, tmp_path, compatible_from=HEAD)
    use(dsn, fresh_schema)
    assert migrate.require_current(dsn, schema=fresh_schema) == newer
    assert migrate.check(dsn, schema=fresh_schema).state is State.OK
    assert migrate.wait(dsn, schema=fresh_schema) == newer
    # Old code that starts again and migrates, as its image always does.
    assert migrate.upgrade(dsn, schema=fresh_schema) == newer
    with pytest.raises(SchemaTooNew):
        migrate.downgrade(dsn, "0001", schema=fresh_schema)
    assert migrate.current(dsn, schema=fresh_schema) == newer


@pytest.mark.parametrize("use", WAYS)
def test_a_newer_schema_that_contracts(
    dsn: str, fresh_schema: str, tmp_path: Path, use: Use
) -> None:
    newer = _migrated(
        dsn, fresh_schema, tmp_path, compatible_from=f"{int(HEAD) + 1:04}"
    )
    with pytest.raises(SchemaTooNew, match=rf"at {newer}.*newer.*upgrade this process"):
        use(dsn, fresh_schema)
    for ask in (migrate.require_current, migrate.upgrade, migrate.wait):
        with pytest.raises(SchemaTooNew):
            ask(dsn, schema=fresh_schema)
    assert migrate.check(dsn, schema=fresh_schema).state is State.TOO_NEW
    with connect(dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM {fresh_schema}.job").fetchone()
    assert row == (0,)


@pytest.mark.parametrize("use", WAYS)
def test_an_older_schema_than_this_code_needs(
    dsn: str, empty_schema: str, monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    use(dsn, empty_schema)
    monkeypatch.setattr(window, "NEEDED", "0002")
    with pytest.raises(SchemaOutdated, match=r"at 0001.*needs 0002.*migrate up"):
        use(dsn, empty_schema)
    migrate.upgrade(dsn, schema=empty_schema)
    use(dsn, empty_schema)


@pytest.mark.parametrize("use", WAYS)
def test_no_schema_at_all(dsn: str, empty_schema: str, use: Use) -> None:
    with pytest.raises(SchemaMissing, match="migrate up"):
        use(dsn, empty_schema)
    migrate.upgrade(dsn, schema=empty_schema)
    migrate.downgrade(dsn, "base", schema=empty_schema)
    with pytest.raises(SchemaMissing, match="migrate up"):
        use(dsn, empty_schema)


def test_a_running_store_learns_it_from_what_no_longer_fits(
    dsn: str, fresh_schema: str, tmp_path: Path
) -> None:
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    engine = create_engine(dsn)
    store.create(NewJob(kind="k"))
    after = f"{int(HEAD) + 1:04}"
    _migrated(
        dsn,
        fresh_schema,
        tmp_path,
        compatible_from=after,
        upgrade='run("ALTER TABLE {s}.job RENAME traceparent TO trace")',
    )
    with pytest.raises(SchemaTooNew):
        store.create(NewJob(kind="k"))
    with engine.begin() as connection, pytest.raises(SchemaTooNew):
        store.within(connection).create(NewJob(kind="k"))
    engine.dispose()
    store.close()


def _migrated(
    dsn: str, schema: str, folder: Path, *, compatible_from: str, upgrade: str = "pass"
) -> str:
    release = NextRelease(folder / "next")
    newer = release.add(upgrade, "pass", compatible_from=compatible_from)
    with release.installed():
        assert migrate.upgrade(dsn, schema=schema) == newer
    return newer
