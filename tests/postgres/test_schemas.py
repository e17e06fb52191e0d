"""
Schemas of any legal name, several in one database, and roles that may do little.
"""

from datetime import timedelta

import pytest
import sqlalchemy

from jobstore import (
    InvalidInput,
    JobStatus,
    NewJob,
    PostgresStore,
    SchemaMissing,
    migrate,
)
from tests.servers import connect, created_role

NAMES = [
    "select",
    "user",
    "Jobs-Prod",
    "with space",
    'quo"te',
    "o'brien",
    "per%cent %s %(x)s",
    "co:lon :x",
    "back\\slash",
    "Ünïcødé-✓",
    "semi; DROP TABLE x; --",
    "{s}",
    "x" * 63,
    "é" * 31,
]


def live_a_life(store: PostgresStore) -> None:
    """
    Use every verb once.
    """
    parent = store.create(NewJob(kind="p", payload=b"p", idem_key="k")).job
    assert not store.create(NewJob(kind="p", payload=b"p", idem_key="k")).created
    claim = store.claim_next()
    assert claim is not None
    assert store.heartbeat([claim.lease]).held == {claim.lease}
    store.fan_out(claim.lease, [claim.job.child(kind="c") for _ in range(4)])
    one, two, three, four = (child.lease for child in store.claim(4))
    store.complete(one, b"r")
    store.fail(two, error_code="E", final=True)
    store.snooze(three, timedelta(0))
    store.release(four)
    store.cancel(three.job_id)
    store.requeue(two.job_id)
    store.cancel(two.job_id)
    store.update_status(four.job_id, lambda job: job)
    store.cancel(four.job_id)
    resumed = store.claim_next()
    assert resumed is not None
    assert resumed.job.id == parent.id
    store.reclaim_stale(timedelta(0))
    store.promote_due()
    store.repair_families()
    assert store.payload(parent.id).data == b"p"
    assert len(store.list_children(parent.id)) == 4
    assert store.attempts(parent.id)
    assert store.stats()
    assert store.list(status=JobStatus.QUEUED)[0].id == parent.id
    store.cancel(parent.id)
    assert store.prune(timedelta(days=1)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_of_any_legal_name(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    store = PostgresStore(database, schema=name)
    live_a_life(store)
    store.close()
    assert migrate.current(database, schema=name) == migrate.head()
    with connect(database) as admin:
        rows = admin.execute(
            "SELECT nspname FROM pg_namespace"
            " WHERE nspname !~ '^(pg_|information|public)'"
        ).fetchall()
    assert rows == [(name,)], "one schema, of just that name"


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "é" * 32, "pg_mine", "nul\x00", "\ud800", None, 7]
)
def test_other_names_are_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        PostgresStore("postgresql://nowhere", schema=name)
    with pytest.raises(InvalidInput, match="schema"):
        migrate.upgrade("postgresql://nowhere", schema=name)


def test_two_installs_in_one_database_do_not_mix(database: str) -> None:
    stores = []
    for name in ("one", "One"):
        migrate.upgrade(database, schema=name)
        stores.append(PostgresStore(database, schema=name, wake_ups=name == "one"))
    first, second = stores
    job = first.create(NewJob(kind="k", idem_key="k")).job
    assert second.create(NewJob(kind="k", idem_key="k")).created
    assert second.list()[0].id != job.id
    heard: list[str | None] = []
    listening = second.listen(heard.append)
    first.wake("default")
    first.close()
    second.close()
    listening.close()
    assert "default" not in heard


def test_a_missing_schema_says_what_to_do(database: str) -> None:
    store = PostgresStore(database)
    with pytest.raises(SchemaMissing, match="jobstore migrate up"):
        store.list()
    store.close()


def test_an_ordinary_role_migrates_and_works(database: str) -> None:
    with created_role(database, may_create=True) as owner:
        migrate.upgrade(owner)
        store = PostgresStore(owner)
        live_a_life(store)
        store.close()
        migrate.downgrade(owner, "base", allow_data_loss=True)
        with connect(database) as admin:
            admin.execute("DROP SCHEMA jobstore CASCADE")


def test_a_schema_made_beforehand_needs_no_right_to_create_one(database: str) -> None:
    with created_role(database) as owner:
        role = sqlalchemy.make_url(owner).username
        with connect(database) as admin:
            admin.execute(f'CREATE SCHEMA jobstore AUTHORIZATION "{role}"'.encode())
            admin.execute("CREATE SCHEMA private")
        migrate.upgrade(owner)
        store = PostgresStore(owner)
        live_a_life(store)
        store.close()
        with connect(database) as admin:
            admin.execute("DROP SCHEMA jobstore CASCADE")


def test_a_runtime_role_needs_no_more_than_usage_and_rows(database: str) -> None:
    migrate.upgrade(database)
    with created_role(database) as runtime:
        role = sqlalchemy.make_url(runtime).username
        with connect(database) as admin:
            admin.execute(
                f"""
                GRANT USAGE ON SCHEMA jobstore TO "{role}";
                GRANT SELECT, INSERT, UPDATE, DELETE
                ON jobstore.job, jobstore.payload, jobstore.idempotency_key,
                   jobstore.attempt TO "{role}"
                """.encode()
            )
        store = PostgresStore(runtime)
        live_a_life(store)
        store.close()
        with connect(database) as admin:
            admin.execute(f'DROP OWNED BY "{role}"'.encode())


def test_a_host_that_shares_the_search_path_is_not_confused(database: str) -> None:
    """
    The host has tables of the same names, first in the search path.
    """
    migrate.upgrade(database)
    with connect(database) as admin:
        admin.execute("CREATE TABLE public.job (id int); CREATE TABLE payload (x int)")
        admin.execute(
            "CREATE FUNCTION public.statement_timestamp() RETURNS int"
            " LANGUAGE sql RETURN 1"
        )
    store = PostgresStore(database)
    live_a_life(store)
    store.close()
