"""
Connections as importers have them, and as networks and servers break them.
"""

import contextlib
import os
import re
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import sqlalchemy

from jobstore import (
    AsyncPostgresStore,
    JobClass,
    JobStatus,
    JobstoreError,
    LeaseLost,
    Limits,
    NewJob,
    OutcomeUnknown,
    PostgresStore,
    StoreBusy,
    StoreFault,
    StoreUnavailable,
)
from jobstore.postgres.engine import engine, own_connection
from tests.proxy import Proxy
from tests.servers import connect, created_role

SECRET = "s3cr3t-m4rk3r"  # noqa: S105 - to be looked for


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema, wake_ups=False)
    yield made
    made.close()


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    if "host" in query:
        port = query.get("port", ["5432"])[0]
        made = Proxy(f"{query['host'][0]}/.s.PGSQL.{port}")
    else:
        made = Proxy((parts.hostname or "localhost", parts.port or 5432))
    yield made
    made.close()


@pytest.fixture
def through_proxy(dsn: str, schema: str, proxy: Proxy) -> Iterator[PostgresStore]:
    url = sqlalchemy.make_url(dsn)
    url = url.set(host="127.0.0.1", port=proxy.port, query={})
    made = PostgresStore(url, schema=schema, pool_size=2, wake_ups=False)
    yield made
    made.close()


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ", "SERIALIZABLE"])
def test_an_importers_engine_of_any_isolation(
    dsn: str, schema: str, level: Any
) -> None:
    engine = sqlalchemy.create_engine(dsn, isolation_level=level)
    store = PostgresStore(engine, schema=schema, wake_ups=False)
    store.create_many([NewJob(kind="k", idem_key=str(n)) for n in range(400)])
    seen: list[str] = []

    def drain() -> None:
        while claims := store.claim(3):
            seen.extend(one.job.id for one in claims)
            for one in claims:
                store.complete(one.lease)

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(drain) for _ in range(5)]:
            done.result(60)
    assert (len(seen), len(set(seen))) == (400, 400)
    assert not store.create(NewJob(kind="k", idem_key="7")).created
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        assert driver.autocommit is (level == "AUTOCOMMIT"), "handed back as it was"
    store.close()
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1, "left open"
    engine.dispose()


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'serializable'",
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "TimeZone = 'Asia/Kathmandu'",
        "DateStyle = 'German'",
        "plan_cache_mode = 'force_generic_plan'",
        "default_text_search_config = 'simple'",
    ],
)
def test_a_roles_settings_do_not_reach_the_verbs(
    dsn: str, schema: str, setting: str
) -> None:
    with created_role(dsn) as role_dsn:
        role = sqlalchemy.make_url(role_dsn).username
        with connect(dsn) as admin:
            admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"'.encode())
            admin.execute(
                f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"'.encode()
            )
            admin.execute(f'ALTER ROLE "{role}" SET {setting}'.encode())
        store = PostgresStore(role_dsn, schema=schema, wake_ups=False)
        job = store.create(NewJob(kind="k", idem_key="k")).job
        assert job.created_at.utcoffset() == timedelta(0)
        assert store.get(job.id) == job
        claim = store.claim_next()
        assert claim is not None
        assert claim.job == store.get(job.id)
        store.complete(claim.lease, b"r")
        store.close()


def test_a_read_only_role_is_told_so(dsn: str, schema: str) -> None:
    with created_role(dsn) as role_dsn:
        role = sqlalchemy.make_url(role_dsn).username
        with connect(dsn) as admin:
            admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"'.encode())
            admin.execute(
                f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"'.encode()
            )
            admin.execute(
                f'ALTER ROLE "{role}" SET default_transaction_read_only = on'.encode()
            )
        store = PostgresStore(role_dsn, schema=schema, wake_ups=False)
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.create(NewJob(kind="k"))
        with connect(dsn) as admin:
            admin.execute(
                f'ALTER ROLE "{role}" SET default_transaction_read_only = off'.encode()
            )
        store.close()


def test_a_missing_grant_is_a_fault_and_not_retried(dsn: str, schema: str) -> None:
    with created_role(dsn) as role_dsn:
        store = PostgresStore(role_dsn, schema=schema, wake_ups=False)
        with pytest.raises(StoreFault) as refused:
            store.create(NewJob(kind="k"))
        assert refused.value.sqlstate == "42501"
        store.close()


def test_a_full_pool_is_busy_and_not_for_ever(dsn: str, schema: str) -> None:
    engine = sqlalchemy.create_engine(
        dsn, pool_size=1, max_overflow=0, pool_timeout=0.2
    )
    store = PostgresStore(engine, schema=schema, wake_ups=False)
    with engine.connect(), pytest.raises(StoreBusy, match="pool"):
        store.list()
    assert store.list() == []
    engine.dispose()


def test_a_store_made_before_a_fork_serves_all_children(
    store: PostgresStore,
) -> None:
    store.create_many([NewJob(kind="k") for _ in range(40)])
    store.list()
    children = []
    for _ in range(4):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ids = [one.job.id for one in store.claim(10)]
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


def test_terminated_connections_are_replaced_unnoticed(
    dsn: str, store: PostgresStore
) -> None:
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: store.list(), range(20)))
    with connect(dsn) as admin:
        for number in range(5):
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'jobstore' AND datname = current_database()"
            )
            created = store.create(NewJob(kind="k", idem_key=str(number)))
            assert created.created, "the create itself, not a stranger's"
    assert len(store.list()) == 5


async def test_the_asynchronous_store_replaces_them_too(dsn: str, schema: str) -> None:
    store = AsyncPostgresStore(dsn, schema=schema, wake_ups=False)
    await store.list()
    with connect(dsn) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'jobstore' AND datname = current_database()"
        )
    assert (await store.create(NewJob(kind="k"))).created
    await store.close()


class CutOnce:
    """
    Cuts the connection once, at the first chunk that has *mark* in it.
    """

    def __init__(self, mark: bytes, how: str) -> None:
        self.mark = mark
        self.how = how
        self.done = 0

    def __call__(self, chunk: bytes) -> str | None:
        if not self.done and re.search(self.mark, chunk):
            self.done += 1
            return self.how
        return None


@pytest.mark.parametrize("how", ["drop", "pass and cut"])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_create_that_is_cut_makes_one_job(
    store: PostgresStore,
    through_proxy: PostgresStore,
    proxy: Proxy,
    how: str,
    key: str | None,
) -> None:
    """
    The insert is lost on its way, or it is done and its answer is lost.
    """
    through_proxy.list()
    cut = proxy.on_request = CutOnce(b"INSERT INTO", how)
    created = through_proxy.create(NewJob(kind="k", payload=b"p", idem_key=key))
    assert cut.done == 1
    assert created.created
    assert [one.id for one in store.list()] == [created.job.id]
    assert store.payload(created.job.id).data == b"p"


@pytest.mark.parametrize("verb", ["requeue", "create_many"])
def test_a_pooled_connection_that_was_dead_already_is_replaced(
    store: PostgresStore, through_proxy: PostgresStore, proxy: Proxy, verb: str
) -> None:
    """
    Verbs in a transaction notice at its BEGIN: nothing was sent, so any may repeat.
    """
    job = store.create(NewJob(kind="k")).job
    store.cancel(job.id)
    through_proxy.list()
    cut = proxy.on_request = CutOnce(b"BEGIN", "drop")
    if verb == "requeue":
        assert through_proxy.requeue(job.id).status is JobStatus.QUEUED
    else:
        new = [NewJob(kind="k", idem_key="k")]
        assert through_proxy.create_many(new, strict=True)[0].created
    assert cut.done == 1


@pytest.mark.parametrize("how", ["drop", "pass and cut"])
def test_a_batch_that_is_cut_is_stored_once(
    store: PostgresStore, through_proxy: PostgresStore, proxy: Proxy, how: str
) -> None:
    parent = store.create(NewJob(kind="parent")).job
    through_proxy.list()
    cut = proxy.on_request = CutOnce(b"COMMIT\x00", how)
    new = [NewJob(kind="k", parent_id=parent.id) for _ in range(5)]
    created = through_proxy.create_many(new)
    assert cut.done == 1
    assert all(one.created for one in created)
    children = store.list_children(parent.id)
    assert [one.id for one in children] == [one.job.id for one in created]
    assert store.get(parent.id).children_open == 5


@pytest.mark.parametrize("how", ["drop", "pass and cut"])
@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_an_outcome_that_is_cut_is_written_once(
    store: PostgresStore,
    through_proxy: PostgresStore,
    proxy: Proxy,
    verb: str,
    how: str,
) -> None:
    store.create(NewJob(kind="k"))
    claim = store.claim_next()
    assert claim is not None
    through_proxy.list()
    cut = proxy.on_request = CutOnce(
        b"UPDATE" if verb == "complete" else b"COMMIT\x00", how
    )
    if verb == "complete":
        through_proxy.complete(claim.lease, b"r")
    elif verb == "fail":
        through_proxy.fail(claim.lease, error_code="E")
    else:
        through_proxy.release(claim.lease)
    assert cut.done == 1
    now = store.get(claim.job.id)
    expected = {
        "complete": (JobStatus.COMPLETED, 1),
        "fail": (JobStatus.SCHEDULED, 1),
        "release": (JobStatus.QUEUED, 0),
    }
    assert (now.status, now.attempts) == expected[verb]
    assert len(store.attempts(claim.job.id)) == (0 if verb == "complete" else 1)


def test_a_claim_whose_answer_is_lost_comes_back_by_the_timeout(
    store: PostgresStore, through_proxy: PostgresStore, proxy: Proxy
) -> None:
    jobs = [one.job.id for one in store.create_many([NewJob(kind="k")] * 2)]
    through_proxy.list()
    proxy.on_request = CutOnce(b"WITH interactive AS", "pass and cut")
    claim = through_proxy.claim_next()
    assert claim is not None
    (other,) = set(jobs) - {claim.job.id}
    pause = threading.Event()
    while store.get(other).status is not JobStatus.PROCESSING:
        pause.wait(0.01)  # the server finishes what was cut off, in its own time
    store.reclaim_stale(timedelta(0))
    again = store.claim(2)
    assert {one.job.id for one in again} == set(jobs)


def test_a_fan_out_that_is_cut_is_unknown_and_says_so(
    store: PostgresStore, through_proxy: PostgresStore, proxy: Proxy
) -> None:
    store.create(NewJob(kind="parent"))
    claim = store.claim_next()
    assert claim is not None
    children = [claim.job.child(kind="c", idem_key=str(n)) for n in range(3)]
    through_proxy.list()
    proxy.on_request = CutOnce(b"COMMIT\x00", "pass and cut")
    with pytest.raises(OutcomeUnknown) as unknown:
        through_proxy.fan_out(claim.lease, children)
    assert unknown.value.outcome == "unknown"
    again = store.fan_out(claim.lease, children)
    assert [one.created for one in again] == [False] * 3
    assert len(store.list_children(claim.job.id)) == 3


def test_when_the_server_stays_away_the_outcome_is_unknown_with_its_id(
    store: PostgresStore, through_proxy: PostgresStore, proxy: Proxy
) -> None:
    through_proxy.list()

    def cut_for_good(chunk: bytes) -> str | None:
        if b"INSERT" not in chunk:
            return None
        proxy.refuse()
        return "pass and cut"

    proxy.on_request = cut_for_good
    new = NewJob(kind="k", payload=b"p")
    with pytest.raises(OutcomeUnknown) as unknown:
        through_proxy.create(new)
    job_id = unknown.value.job_id
    assert job_id is not None
    again = store.create(new, job_id=job_id)
    assert again.job.id == job_id
    assert len(store.list()) == 1


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_server_that_hangs_is_given_up(
    dsn: str, schema: str, proxy: Proxy, colour: str
) -> None:
    import asyncio

    url = sqlalchemy.make_url(dsn)
    url = url.set(host="127.0.0.1", port=proxy.port, query={})
    limits = Limits(call=timedelta(seconds=1), connect=timedelta(seconds=2))
    hang = CutOnce(b"UPDATE", "hang")

    async def main() -> None:
        store = AsyncPostgresStore(url, schema=schema, limits=limits, wake_ups=False)
        await store.list()
        proxy.on_request = hang
        assert await store.claim_next() is None, "the second try gets an answer"
        await store.close()

    if colour == "async":
        asyncio.run(main())
    else:
        store = PostgresStore(url, schema=schema, limits=limits, wake_ups=False)
        store.list()
        proxy.on_request = hang
        assert store.claim_next() is None
        store.close()
    assert hang.done == 1


def test_threads_share_a_store(store: PostgresStore) -> None:
    def submit(number: int) -> str:
        job_class = list(JobClass)[number % 3]
        return store.create(NewJob(kind="k", job_class=job_class)).job.id

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(submit, range(300)))
    assert len(set(ids)) == 300
    assert len(store.list(limit=1000)) == 300


def _texts(error: BaseException) -> str:
    chain: list[BaseException | None] = [error, error.__cause__, error.__context__]
    return "\n".join(
        [repr(one) + str(one) for one in chain]
        + traceback.format_exception(error, chain=True)
    )


def test_no_secret_is_in_an_error(
    dsn: str, fresh_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    with connect(dsn) as admin:
        admin.execute(
            f'ALTER TABLE "{fresh_schema}".payload ADD CONSTRAINT never'
            " CHECK (length(data) < 5)"
        )
        admin.execute(
            f'ALTER TABLE "{fresh_schema}".job ADD CONSTRAINT never_either'
            " CHECK (result IS NULL)"
        )
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    engine = sqlalchemy.create_engine(dsn)
    failures: list[JobstoreError] = []
    secret = SECRET.encode()
    new = NewJob(kind="k", payload=secret, idem_key=SECRET)

    def fails(call: Any, *arguments: Any, **named: Any) -> None:
        with pytest.raises(JobstoreError) as caught:
            call(*arguments, **named)
        failures.append(caught.value)

    fails(store.create, new)
    fails(store.create_many, [new, new])
    fails(PostgresStore(engine, schema=fresh_schema, wake_ups=False).create, new)
    with engine.connect() as connection:
        fails(store.within(connection).create, new)
    store.create(NewJob(kind="k", payload=b"p", idem_key=SECRET))
    fails(store.create, NewJob(kind="k", payload=b"q", idem_key=SECRET), strict=True)
    claim = store.claim_next()
    assert claim is not None
    fails(store.complete, claim.lease, secret)
    store.release(claim.lease)
    fails(store.complete, claim.lease, secret)
    assert isinstance(failures[-1], LeaseLost)
    dead = f"postgresql://user:{SECRET}@127.0.0.1:1/db"
    fails(PostgresStore(dead).list)
    fails(PostgresStore, f"mysql://user:{SECRET}@host/db")
    for failure in failures:
        assert SECRET not in _texts(failure), type(failure)
    assert SECRET not in caplog.text
    for value in (new, claim, claim.job, store.get(claim.job.id), store):
        assert SECRET not in repr(value)
    engine.dispose()
    store.close()


def test_a_create_behind_a_forgotten_transaction_holds_up_nobody_else(
    dsn: str, schema: str
) -> None:
    limits = Limits(lock=timedelta(milliseconds=300))
    store = PostgresStore(dsn, schema=schema, limits=limits, wake_ups=False)
    engine = sqlalchemy.create_engine(dsn)
    new = NewJob(kind="k", idem_key="k")
    with engine.connect() as forgotten:
        store.within(forgotten).create(new)
        answers: list[object] = []

        def wait() -> None:
            try:
                answers.append(store.create(new))
            except StoreBusy as error:
                answers.append(error)

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert store.create(NewJob(kind="k", idem_key="another")).created
        for thread in threads:
            thread.join(30)
        assert [type(answer) for answer in answers] == [StoreBusy] * 8
    engine.dispose()
    store.close()


def test_a_connection_that_comes_back_to_a_dropped_pool_is_closed(dsn: str) -> None:
    """
    One that is found dead has the pool dropped, while others are still out of it.
    """
    limits = Limits()
    made = engine(dsn, limits=limits, pool_size=2, through_pooler=False)
    try:
        with own_connection(made) as healthy:
            with contextlib.suppress(psycopg.Error), own_connection(made) as broken:
                broken.close()
                broken.execute("SELECT 1")
            assert not healthy.closed
            healthy.execute("SELECT 1")
        assert healthy.closed
        with own_connection(made) as fresh:
            fresh.execute("SELECT 1")
        assert not fresh.closed, "a pooled one is kept"
    finally:
        made.dispose()
