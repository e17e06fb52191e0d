"""
Servers that go away, come back, or turn into standbys; and processes that fork.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from jobstore import (
    AsyncPostgresStore,
    JobStatus,
    NewJob,
    PostgresStore,
    StoreUnavailable,
)
from tests.servers import connect, created_role

TELL_ROLE = 'ALTER ROLE "{role}" SET default_transaction_read_only = {word}'


@pytest.fixture
def standby(dsn: str, schema: str) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """
    A role whose new sessions take no writes while it is told so; its DSN, and how to
    tell it. To a store that is what a demoted server looks like.
    """
    with created_role(dsn) as role_dsn, connect(dsn) as admin:
        role = sqlalchemy.make_url(role_dsn).username
        admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"'.encode())
        admin.execute(
            f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"'.encode()
        )

        def tell(takes_no_writes: bool) -> None:
            word = "on" if takes_no_writes else "off"
            admin.execute(TELL_ROLE.format(role=role, word=word).encode())

        tell(True)
        yield role_dsn, tell


@pytest.mark.parametrize("whose", ["own", "importer's"])
def test_connections_to_a_demoted_server_are_replaced(
    dsn: str, schema: str, standby: tuple[str, Callable[[bool], None]], whose: str
) -> None:
    role_dsn, tell = standby
    engine = sqlalchemy.create_engine(role_dsn, pool_size=4)
    target = role_dsn if whose == "own" else engine
    store = PostgresStore(target, schema=schema, pool_size=4, wake_ups=False)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.list(), range(20)))
    with pytest.raises(StoreUnavailable, match="read-only"):
        store.create(NewJob(kind="k"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.list(), range(20)))
    tell(False)
    job = store.create(NewJob(kind="k")).job
    store.cancel(job.id)
    assert store.requeue(job.id).status is JobStatus.QUEUED
    store.close()
    engine.dispose()


def test_a_verb_that_may_not_be_repeated_is_when_a_standby_refused_it(
    schema: str, standby: tuple[str, Callable[[bool], None]]
) -> None:
    role_dsn, tell = standby
    tell(False)
    store = PostgresStore(role_dsn, schema=schema, wake_ups=False)
    job = store.create(NewJob(kind="k")).job
    store.cancel(job.id)
    store.close()
    tell(True)
    store = PostgresStore(role_dsn, schema=schema, wake_ups=False)
    store.list()
    tell(False)
    assert store.requeue(job.id).status is JobStatus.QUEUED
    store.close()


@pytest.mark.parametrize("whose", ["own", "importer's"])
async def test_the_asynchronous_store_replaces_them_too(
    schema: str, standby: tuple[str, Callable[[bool], None]], whose: str
) -> None:
    role_dsn, tell = standby
    engine = create_async_engine(role_dsn)
    target = role_dsn if whose == "own" else engine
    store = AsyncPostgresStore(target, schema=schema, wake_ups=False)
    await asyncio.gather(*(store.list() for _ in range(4)))
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.create(NewJob(kind="k"))
    await asyncio.gather(*(store.list() for _ in range(4)))
    tell(False)
    assert (await store.create(NewJob(kind="k"))).created
    await store.close()
    await engine.dispose()


def test_an_importers_own_read_only_transactions_are_left_alone(
    dsn: str, schema: str
) -> None:
    engine = sqlalchemy.create_engine(dsn, pool_size=1)
    store = PostgresStore(engine, schema=schema, wake_ups=False)
    store.list()

    def session() -> Any:
        with engine.connect() as connection:
            return connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()

    before = session()
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        with pytest.raises(sqlalchemy.exc.InternalError):
            connection.exec_driver_sql("CREATE TABLE no_such_luck ()")
    assert session() == before, "not taken for a standby"
    engine.dispose()


def test_an_importers_engine_serves_all_children_of_a_fork(
    dsn: str, schema: str
) -> None:
    """
    As the store's own: parent and child must not talk over one socket.
    """
    engine = sqlalchemy.create_engine(dsn)
    store = PostgresStore(engine, schema=schema, wake_ups=False)
    store.create_many([NewJob(kind="k") for _ in range(40)])
    children = []
    for _ in range(4):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ids = [one.job.id for _ in range(10) for one in store.claim(1)]
                os.write(writer, " ".join(ids).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        children.append((child, reader))
    claimed: list[str] = []
    for child, reader in children:
        with os.fdopen(reader, "rb") as pipe:
            claimed += pipe.read().decode().split()
        assert os.waitpid(child, 0)[1] == 0
    assert (len(claimed), len(set(claimed))) == (40, 40)
    assert store.create(NewJob(kind="k")).created, "the parent's own goes on"
    engine.dispose()
