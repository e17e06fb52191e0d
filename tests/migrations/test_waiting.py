"""
Waiting for whoever migrates.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest

from jobstore import (
    InvalidInput,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StoreUnavailable,
    migrate,
)
from jobstore.migrate import require_current, waiting
from tests.servers import LocalServer, connect

NOW = timedelta(0)
SOON = timedelta(milliseconds=10)


def test_it_returns_when_the_last_revision_is_there(
    dsn: str, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        future = _started(monkeypatch, pool, dsn, empty_schema)
        migrate.upgrade(dsn, schema=empty_schema, revision="0001")
        assert not future.done()
        migrate.upgrade(dsn, schema=empty_schema)
        assert future.result(60) == migrate.head()


def test_it_waits_for_a_database_that_is_not_up(
    own_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(own_server.admin_dsn)
    own_server.kill()
    with ThreadPoolExecutor(1) as pool:
        future = _started(monkeypatch, pool, own_server.admin_dsn, "jobstore")
        own_server.restart()
        assert future.result(60) == migrate.head()


def test_the_end_of_its_patience(dsn: str, empty_schema: str) -> None:
    with pytest.raises(SchemaMissing):
        migrate.wait(dsn, schema=empty_schema, timeout=NOW)
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    with pytest.raises(SchemaOutdated):
        migrate.wait(dsn, schema=empty_schema, timeout=SOON, poll=SOON)
    with pytest.raises(StoreUnavailable):
        migrate.wait("postgresql://u@127.0.0.1:1/db", timeout=NOW)
    for wrong in ({"timeout": -SOON}, {"poll": NOW}, {"timeout": 3}):
        with pytest.raises(InvalidInput):
            migrate.wait(dsn, schema=empty_schema, **wrong)


def test_waiting_will_not_help_against_a_newer_schema(
    dsn: str, fresh_schema: str
) -> None:
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {fresh_schema}.jobstore_version SET version_num = '9999'".encode()
        )
    with pytest.raises(SchemaTooNew):
        migrate.wait(dsn, schema=fresh_schema)


def _started(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor, dsn: str, schema: str
) -> "Future[str]":
    """
    Start to wait, and come back when it has looked in vain.
    """
    looked = threading.Event()
    look = require_current

    def looking(target: str, *, schema: str) -> str:
        try:
            return look(target, schema=schema)
        finally:
            looked.set()

    monkeypatch.setattr(waiting, "require_current", looking)
    future = pool.submit(
        migrate.wait, dsn, schema=schema, timeout=timedelta(minutes=1), poll=SOON
    )
    assert looked.wait(60)
    return future
