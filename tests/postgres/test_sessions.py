"""
Sessions as roles and callers have them set: the verbs read and write the same in all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from jobstore import (
    AsyncPostgresStore,
    InvalidInput,
    JobStatus,
    Lease,
    NewJob,
    PostgresStore,
    StoreBusy,
    StoreUnavailable,
)
from tests.servers import connect, created_role

EVERY_BYTE = bytes(range(256))
ANY_TEXT = "é ✓ \N{CJK UNIFIED IDEOGRAPH-4E2D} \N{SNAKE}"

SETTINGS = {
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "array_nulls": "off",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "1s",
    "search_path": "",
}


@pytest.fixture(params=SETTINGS)
def odd_role(dsn: str, schema: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """
    A role whose sessions have one setting that is not the usual one; its DSN.
    """
    with created_role(dsn) as role_dsn, connect(dsn) as admin:
        role = sqlalchemy.make_url(role_dsn).username
        for statement in (
            f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"',
            f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"',
            f"ALTER ROLE \"{role}\" SET {request.param} = '{SETTINGS[request.param]}'",
        ):
            admin.execute(statement.encode())
        yield role_dsn


@contextmanager
def as_used(how: str, dsn: str, schema: str) -> Iterator[Any]:
    """
    Give what has the submitting and finishing verbs, in one of the ways to have them.
    """
    engine = sqlalchemy.create_engine(dsn)
    target = dsn if how == "own" else engine
    store = PostgresStore(target, schema=schema, wake_ups=False)
    if how == "a caller's transaction":
        with engine.begin() as connection:
            before = _settings(connection)
            yield store.within(connection)
            assert _settings(connection) == before, "the caller's own are put back"
    else:
        yield store
    store.close()
    engine.dispose()


def _settings(connection: sqlalchemy.Connection) -> dict[str, object]:
    return {
        name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in SETTINGS
    }


@pytest.mark.parametrize("how", ["own", "importer's", "a caller's transaction"])
def test_a_sessions_settings_do_not_reach_the_verbs(
    dsn: str, schema: str, odd_role: str, how: str
) -> None:
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    new = NewJob(
        kind=ANY_TEXT, payload=EVERY_BYTE, idem_key=ANY_TEXT, pages=(3, 1), tenant="t"
    )
    with as_used(how, odd_role, schema) as verbs:
        job = verbs.create(new).job
        assert verbs.create(new, strict=True).job == job
        plain = verbs.create_many([NewJob(kind="k"), NewJob(kind="k")])
    assert store.get(job.id) == job
    assert store.payload(job.id).data == EVERY_BYTE
    first, *others = [one.lease for one in store.claim(3, lease=timedelta(seconds=90))]
    assert first.job_id == job.id
    with as_used(how, odd_role, schema) as verbs:
        verbs.complete(first, EVERY_BYTE)
        verbs.fail(
            others[0],
            error_code="E",
            error_message=ANY_TEXT,
            retry_in=timedelta(days=400, seconds=1.5),
        )
        verbs.fan_out(others[1], [NewJob(kind="child", pages=(2,))])
    assert store.get(job.id).result == EVERY_BYTE
    failed, parent = (store.get(one.job.id) for one in plain)
    assert failed.error_message == ANY_TEXT
    assert failed.available_at - failed.updated_at == timedelta(days=400, seconds=1.5)
    assert parent.status is JobStatus.WAITING
    assert store.list_children(parent.id)[0].pages == (2,)
    store.close()


def test_an_importers_engine_reads_what_a_claim_grants(
    schema: str, odd_role: str
) -> None:
    engine = sqlalchemy.create_engine(odd_role)
    store = PostgresStore(engine, schema=schema, wake_ups=False)
    store.create(NewJob(kind="k", max_attempts=2))
    claim = store.claim_next(lease=timedelta(seconds=90))
    assert claim is not None
    assert claim.job == store.get(claim.job.id)
    assert claim.job.created_at.utcoffset() == timedelta(0)
    assert store.heartbeat([claim.lease]).held == {claim.lease}
    store.release(claim.lease)
    assert store.claim_next() is not None
    assert store.reclaim_stale(timedelta(0)).requeued == 1
    engine.dispose()


def test_a_transaction_that_is_lost_is_told_in_our_terms(dsn: str, schema: str) -> None:
    engine = sqlalchemy.create_engine(dsn)
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    new = NewJob(kind="k")
    with engine.connect() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        store.within(connection).create(new)
        with connect(dsn) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(StoreUnavailable, match="broke") as lost:
            store.within(connection).create(new)
        assert lost.value.outcome == "not done", "the caller has not committed"
        with pytest.raises(StoreBusy, match="roll it back"):
            store.within(connection).complete(Lease("0" * 26, 1))
        connection.rollback()
        assert store.within(connection).create(new).created
        connection.commit()
    with pytest.raises(StoreBusy):
        store.within(connection).create(new)
    with Session(engine) as session:
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            session.execute(sqlalchemy.text("SELECT 1 / 0"))
        with pytest.raises(StoreBusy, match="roll it back"):
            store.within(session).create(new)
        session.rollback()
        store.within(session).create(new)
    assert len(store.list()) == 1
    store.close()
    engine.dispose()


async def test_the_asynchronous_forms_tell_the_same(dsn: str, schema: str) -> None:
    engine = create_async_engine(dsn)
    store = AsyncPostgresStore(dsn, schema=schema, wake_ups=False)
    new = NewJob(kind="k")
    async with engine.connect() as connection:
        pid = await connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
        with connect(dsn) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(StoreUnavailable, match="broke"):
            await store.within(connection).create(new)
        with pytest.raises(StoreBusy, match="roll it back"):
            await store.within(connection).create(new)
    async with AsyncSession(engine) as session:
        await store.within(session).create(new)
        await session.commit()
    assert len(await store.list()) == 1
    engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        with pytest.raises(InvalidInput, match="AUTOCOMMIT"):
            await store.within(connection).create(new)
    await store.close()
    await engine.dispose()
