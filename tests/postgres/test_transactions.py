"""
The verbs inside a caller's transaction: all of it commits, or none.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from jobstore import (
    AsyncPostgresStore,
    IdempotencyConflict,
    InvalidInput,
    JobNotFound,
    JobStatus,
    Lease,
    LeaseLost,
    Limits,
    NewJob,
    PostgresStore,
    StoreBusy,
    StoreFault,
)


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema)
    yield made
    made.close()


@pytest.fixture
async def async_store(dsn: str, schema: str) -> AsyncIterator[AsyncPostgresStore]:
    made = AsyncPostgresStore(dsn, schema=schema)
    yield made
    await made.close()


@pytest.fixture
def engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    """
    An engine of the caller's, and a table of the caller's to write to.
    """
    made = sqlalchemy.create_engine(dsn)
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (word text)")
    yield made
    with made.begin() as connection:
        connection.exec_driver_sql("DROP TABLE mine")
    made.dispose()


def write(connection: Any, word: str) -> None:
    connection.execute(sqlalchemy.text("INSERT INTO mine VALUES (:w)"), {"w": word})


def words(engine: sqlalchemy.Engine) -> list[str]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT word FROM mine ORDER BY word")
        return [row[0] for row in rows]


def test_a_job_and_the_callers_rows_commit_together(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    with engine.begin() as connection:
        write(connection, "a")
        job = store.within(connection).create(NewJob(kind="k", payload=b"p")).job
        with pytest.raises(JobNotFound):
            store.get(job.id)
    assert words(engine) == ["a"]
    assert store.payload(job.id).data == b"p"


def test_they_roll_back_together(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    with engine.connect() as connection:
        write(connection, "a")
        created = store.within(connection).create_many(
            [NewJob(kind="k", idem_key="k"), NewJob(kind="k")]
        )
        connection.rollback()
    assert words(engine) == []
    for one in created:
        with pytest.raises(JobNotFound):
            store.get(one.job.id)
    assert store.create(NewJob(kind="k", idem_key="k")).created, "the key is free again"


def test_an_orm_session_serves_as_well(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    with Session(engine) as session:
        write(session, "a")
        job = store.within(session).create(NewJob(kind="k")).job
        session.commit()
    assert store.get(job.id).status is JobStatus.QUEUED
    assert words(engine) == ["a"]


async def test_the_asynchronous_forms(
    dsn: str, async_store: AsyncPostgresStore, engine: sqlalchemy.Engine
) -> None:
    url = sqlalchemy.make_url(dsn)
    async_engine = create_async_engine(url)
    async with async_engine.begin() as connection:
        await connection.execute(sqlalchemy.text("INSERT INTO mine VALUES ('a')"))
        first = (await async_store.within(connection).create(NewJob(kind="k"))).job
    async with AsyncSession(async_engine) as session:
        within = async_store.within(session)
        second = (await within.create(NewJob(kind="k"))).job
        await session.rollback()
    assert (await async_store.get(first.id)).kind == "k"
    with pytest.raises(JobNotFound):
        await async_store.get(second.id)
    claim = await async_store.claim_next()
    assert claim is not None
    async with async_engine.begin() as connection:
        await async_store.within(connection).complete(claim.lease, b"r")
    assert (await async_store.get(first.id)).result == b"r"
    await async_engine.dispose()
    assert words(engine) == ["a"]


def test_a_known_key_leaves_the_transaction_usable(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    known = store.create(NewJob(kind="k", idem_key="k")).job
    with engine.begin() as connection:
        write(connection, "before")
        found = store.within(connection).create(NewJob(kind="k", idem_key="k"))
        write(connection, "after")
    assert (found.job.id, found.created) == (known.id, False)
    assert words(engine) == ["after", "before"]


def test_errors_leave_the_transaction_usable_and_nothing_half_written(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    known = store.create(NewJob(kind="k", payload=b"1", idem_key="k")).job
    with engine.begin() as connection:
        within = store.within(connection)
        with pytest.raises(IdempotencyConflict):
            within.create_many(
                [
                    NewJob(kind="new"),
                    NewJob(kind="k", payload=b"2", idem_key="k"),
                ],
                strict=True,
            )
        with pytest.raises(LeaseLost):
            within.complete(Lease(known.id, 7), b"r")
        with pytest.raises(InvalidInput):
            within.create(NewJob(kind="k", payload=b"x" * 300_000_000))
        write(connection, "after")
    assert words(engine) == ["after"]
    assert store.list(kind="new") == []


def test_the_wait_for_anothers_key_is_bounded_and_survivable(
    dsn: str, schema: str, engine: sqlalchemy.Engine
) -> None:
    limits = Limits(lock=timedelta(milliseconds=200))
    store = PostgresStore(dsn, schema=schema, limits=limits)
    new = NewJob(kind="k", idem_key="k")
    with engine.connect() as holder:
        store.within(holder).create(new)
        with pytest.raises(StoreBusy):
            store.create(new)
        assert store.create(NewJob(kind="k", idem_key="other")).created
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '7s'")
            with pytest.raises(StoreBusy):
                store.within(connection).create(new)
            timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar()
            assert timeout == "7s", "the caller's own setting is put back"
            write(connection, "after")
        holder.rollback()
    assert words(engine) == ["after"]
    store.close()


def test_a_limit_that_was_not_needed_is_put_back(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '7s'")
        store.within(connection).create(NewJob(kind="k"))
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "7s"


def test_a_workers_rows_and_the_end_of_its_job_commit_together(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    store.create(NewJob(kind="k"))
    claim = store.claim_next()
    assert claim is not None
    with engine.connect() as connection:
        write(connection, "lost")
        store.within(connection).complete(claim.lease, b"r")
        connection.rollback()
    assert store.get(claim.job.id).status is JobStatus.PROCESSING
    with engine.begin() as connection:
        write(connection, "kept")
        store.within(connection).complete(claim.lease, b"r")
    assert store.get(claim.job.id).result == b"r"
    store.reclaim_stale(timedelta(0))

    def write_as_a_zombie() -> None:
        with engine.begin() as connection:
            write(connection, "zombie")
            store.within(connection).complete(claim.lease, b"another")

    with pytest.raises(LeaseLost):
        write_as_a_zombie()
    assert words(engine) == ["kept"]


def test_a_heartbeat_does_not_wait_for_the_callers_transaction(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    store.create_many([NewJob(kind="k"), NewJob(kind="k")])
    leases = [one.lease for one in store.claim(2)]
    with engine.connect() as connection:
        store.within(connection).complete(leases[0])
        assert store.heartbeat(leases).held == set(leases)
        connection.rollback()


def test_autocommit_is_no_transaction(store: PostgresStore, dsn: str) -> None:
    engine = sqlalchemy.create_engine(dsn, isolation_level="AUTOCOMMIT")
    with (
        engine.connect() as connection,
        pytest.raises(InvalidInput, match="AUTOCOMMIT"),
    ):
        store.within(connection).create(NewJob(kind="k"))
    engine.dispose()
    assert store.list() == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_at_higher_isolation_a_conflict_is_busy_and_never_a_wrong_answer(
    store: PostgresStore, dsn: str, level: str
) -> None:
    engine = sqlalchemy.create_engine(dsn, isolation_level=level)
    new = NewJob(kind="k", idem_key="k")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        first = store.create(new)
        with pytest.raises(StoreBusy):
            store.within(connection).create(new)
        connection.rollback()
        again = store.within(connection).create(new)
        assert (again.job.id, again.created) == (first.job.id, False)
    engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_last_children_at_higher_isolation_never_strand_their_parent(
    store: PostgresStore, dsn: str, level: str
) -> None:
    engine = sqlalchemy.create_engine(dsn, isolation_level=level)
    store.create(NewJob(kind="parent"))
    parent = store.claim_next()
    assert parent is not None
    store.fan_out(parent.lease, [parent.job.child(kind="c") for _ in range(2)])
    one, two = (claim.lease for claim in store.claim(2))
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        store.complete(one)
        with pytest.raises(StoreBusy):
            store.within(connection).complete(two)
        connection.rollback()
        store.within(connection).complete(two)
        connection.commit()
    assert store.get(parent.job.id).status is JobStatus.QUEUED
    engine.dispose()


def test_fan_out_with_the_callers_rows(
    store: PostgresStore, engine: sqlalchemy.Engine
) -> None:
    store.create(NewJob(kind="parent"))
    parent = store.claim_next()
    assert parent is not None
    children = [parent.job.child(kind="c") for _ in range(3)]
    with engine.connect() as connection:
        store.within(connection).fan_out(parent.lease, children)
        connection.rollback()
    assert store.list_children(parent.job.id) == []
    assert store.get(parent.job.id).status is JobStatus.PROCESSING
    with engine.begin() as connection:
        write(connection, "a")
        store.within(connection).fan_out(parent.lease, children)
    assert len(store.list_children(parent.job.id)) == 3
    assert store.get(parent.job.id).status is JobStatus.WAITING


def test_a_long_transaction_does_not_date_a_lease_back(
    store: PostgresStore, dsn: str, engine: sqlalchemy.Engine
) -> None:
    """
    now() would stand still at the transaction's begin; a child that is created late
    in it must not look as old as the transaction.
    """
    with engine.begin() as connection:
        begun = connection.exec_driver_sql("SELECT now()").scalar_one()
        connection.exec_driver_sql("SELECT pg_sleep(0.2)")
        job = store.within(connection).create(NewJob(kind="k")).job
    assert job.created_at - begun >= timedelta(seconds=0.2)


def test_an_instant_that_cannot_be_read_back_is_no_lost_server(
    dsn: str, fresh_schema: str
) -> None:
    far = sqlalchemy.create_engine(
        dsn, connect_args={"options": "-c TimeZone=Asia/Tokyo"}
    )
    new = NewJob(kind="k", idem_key="a", available_at=datetime(2100, 1, 1, tzinfo=UTC))
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    store.create(new)
    table = f"{fresh_schema}.job"
    with far.begin() as hand:
        # The schema does not let it in; but somebody's may have lost its checks.
        hand.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT job_instants_check")
        last = "9999-12-31 23:59Z"
        hand.exec_driver_sql(f"UPDATE {table} SET available_at = '{last}'")
    with far.begin() as connection, pytest.raises(StoreFault, match="timestamp"):
        store.within(connection).create(new)
    store.close()
    far.dispose()
