"""
The schema defends itself, and the code tolerates what hands can do to it.
"""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy

from jobstore import (
    JobClass,
    JobNotFound,
    JobPruned,
    JobStatus,
    NewJob,
    PayloadMissing,
    PostgresStore,
)
from tests.servers import connect

Admin = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema, wake_ups=False)
    yield made
    made.close()


@pytest.fixture
def hand(dsn: str, schema: str) -> Iterator[Admin]:
    """
    An operator's session, with the schema in its search path.
    """
    with connect(dsn) as connection:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        yield connection


IMPOSSIBLE = {
    "queued with a lease": (
        "UPDATE job SET status = 'queued' WHERE heartbeat_at IS NOT NULL"
    ),
    "running without one": (
        "UPDATE job SET status = 'processing' WHERE status = 'queued'"
    ),
    "running without a heartbeat": "UPDATE job SET heartbeat_at = NULL",
    "ended without a time": (
        "UPDATE job SET status = 'cancelled' WHERE status = 'queued'"
    ),
    "failed without a reason": (
        "UPDATE job SET status = 'failed', finished_at = now(), heartbeat_at = NULL"
    ),
    "completed without a start": (
        "UPDATE job SET status = 'completed', finished_at = now()"
        " WHERE status = 'queued'"
    ),
    "a result before the end": "UPDATE job SET result = 'x'",
    "an unknown status": "UPDATE job SET status = 'stuck'",
    "an unknown class": "UPDATE job SET job_class = 'urgent'",
    "a class rank of one's own": "UPDATE job SET class_rank = 0",
    "no tenant": "UPDATE job SET tenant = NULL",
    "an empty tenant": "UPDATE job SET tenant = ''",
    "an empty key": "UPDATE job SET idem_key = ''",
    "negative attempts": "UPDATE job SET attempts = -1",
    "an endless lease": (
        "UPDATE job SET lease = '200 years' WHERE status = 'processing'"
    ),
    "a parent that is none": "UPDATE job SET parent_id = '01ARZ3NDEKTSV4RRFFQ69G5FAV'",
    "an id that is no ULID": "INSERT INTO job (id, kind) VALUES ('x', 'k')",
    "a job without a kind": "INSERT INTO job DEFAULT VALUES",
    "a key of two jobs": (
        "INSERT INTO idempotency_key SELECT tenant, idem_key, job_id, fingerprint"
        " FROM idempotency_key"
    ),
    "a parent's row with children": "DELETE FROM job WHERE children_total > 0",
}


@pytest.mark.parametrize("statement", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_impossible_rows_are_refused(
    store: PostgresStore, hand: Admin, statement: str
) -> None:
    parent = store.create(NewJob(kind="k", idem_key="k")).job
    store.create(NewJob(kind="k", parent_id=parent.id))
    store.create(NewJob(kind="k"))
    claim = store.claim_next()
    assert claim is not None
    before = store.list()
    with pytest.raises((psycopg.IntegrityError, psycopg.errors.GeneratedAlways)):
        hand.execute(statement.encode())
    assert store.list() == before


INSTANTS = {
    "job": ["created_at", "updated_at", "available_at", "started_at", "heartbeat_at"],
    "attempt": ["started_at", "ended_at"],
    "idempotency_key": ["created_at"],
}

OUT_OF_REACH = [
    "infinity",
    "-infinity",
    "0044-03-15 BC",
    "0001-01-01 23:59:59+00",
    "9999-12-31 00:00+00",
    "20000-01-01",
]


@pytest.mark.parametrize("at", OUT_OF_REACH)
def test_an_instant_that_python_cannot_read_is_refused(
    store: PostgresStore, hand: Admin, at: str
) -> None:
    store.create(NewJob(kind="k", idem_key="k"))
    lease = store.claim(1)[0].lease
    store.release(lease)
    assert store.claim_next() is not None
    store.cancel(store.create(NewJob(kind="ended")).job.id)
    before = store.list()
    changes = [(table, name) for table in INSTANTS for name in INSTANTS[table]]
    for table, name in changes:
        statement = f"UPDATE {table} SET {name} = '{at}' WHERE {name} IS NOT NULL"
        with pytest.raises(psycopg.errors.CheckViolation):
            hand.execute(statement.encode())
    with pytest.raises(psycopg.errors.CheckViolation):
        hand.execute(
            f"UPDATE job SET finished_at = '{at}' WHERE kind = 'ended'".encode()
        )
    assert store.list() == before


FIRST, LAST = "0001-01-02 00:00+00", "9999-12-30 23:59:59.999999+00"


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_first_and_the_last_instant_are_read_in_any_zone(
    dsn: str, schema: str, hand: Admin, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("PGTZ", zone)  # stronger than what a connection asks for
    engine = sqlalchemy.create_engine(dsn)
    targets: list[str | sqlalchemy.Engine] = [dsn, engine]
    for target, at in itertools.product(targets, (FIRST, LAST)):
        store = PostgresStore(target, schema=schema, wake_ups=False)
        job = store.create(NewJob(kind="k")).job
        store.create(NewJob(kind="other"))
        hand.execute(
            f"UPDATE job SET created_at = '{at}', available_at = '{at}'".encode()
        )
        claims = store.claim(2)
        assert job.id in {one.job.id for one in claims}
        assert all(one.job.created_at == store.get(job.id).created_at for one in claims)
        store.release(claims[0].lease)
        hand.execute(
            f"UPDATE attempt SET started_at = '{at}', ended_at = '{at}'".encode()
        )
        (attempt,) = store.attempts(claims[0].job.id)
        assert attempt.started_at == attempt.ended_at == store.list()[0].available_at
        assert store.claim_next() is not None
        assert store.stats()
        hand.execute(f"UPDATE job SET heartbeat_at = '{at}'".encode())
        store.reclaim_stale(timedelta(0))
        for one in store.list():
            store.cancel(one.id)
        hand.execute(f"UPDATE job SET finished_at = '{at}'".encode())
        assert len(store.list(status=JobStatus.CANCELLED)) == 2
        assert store.prune(timedelta(days=1)) == (2 if at == FIRST else 0)
        hand.execute(b"DELETE FROM job")
        store.close()
    engine.dispose()


def test_a_row_inserted_by_hand_with_defaults_is_a_job(
    store: PostgresStore, hand: Admin
) -> None:
    hand.execute("INSERT INTO job (kind) VALUES ('by hand')")
    claim = store.claim_next()
    assert claim is not None
    assert (claim.job.kind, claim.job.job_class) == ("by hand", JobClass.BATCH)
    with pytest.raises(PayloadMissing):
        store.payload(claim.job.id)
    store.complete(claim.lease, b"r")


def test_ids_made_by_hand_sort_with_ours(store: PostgresStore, hand: Admin) -> None:
    first = store.create(NewJob(kind="k")).job.id
    hand.execute("SELECT pg_sleep(0.01)")
    row = hand.execute("INSERT INTO job (kind) VALUES ('k') RETURNING id").fetchone()
    assert row is not None
    hand.execute("SELECT pg_sleep(0.01)")
    last = store.create(NewJob(kind="k")).job.id
    assert first < row[0] < last


def test_a_class_changed_by_hand_changes_the_place_in_line(
    store: PostgresStore, hand: Admin
) -> None:
    store.create(NewJob(kind="first"))
    second = store.create(NewJob(kind="second")).job
    hand.execute("UPDATE job SET job_class = 'interactive' WHERE kind = 'second'")
    claim = store.claim_next()
    assert claim is not None
    assert claim.job.id == second.id


def test_used_up_jobs_at_the_head_do_not_block_the_line(
    store: PostgresStore, hand: Admin
) -> None:
    created = store.create_many([NewJob(kind="k") for _ in range(101)])
    hand.execute("UPDATE job SET attempts = 2000 WHERE id <> %s", [created[-1].job.id])
    claim = store.claim_next()
    assert claim is not None
    assert claim.job.id == created[-1].job.id
    assert store.reclaim_stale(timedelta(hours=1)).failed == 100
    dead = store.get(created[0].job.id)
    assert (dead.status, dead.error_code) == (JobStatus.FAILED, "ATTEMPTS_EXHAUSTED")


def test_a_failure_is_recordable_at_any_number_of_attempts(
    store: PostgresStore, hand: Admin
) -> None:
    job = store.create(NewJob(kind="k", max_attempts=1_000_000)).job
    hand.execute("UPDATE job SET attempts = 999000")
    claim = store.claim_next()
    assert claim is not None
    assert store.fail(claim.lease, error_code="E") is JobStatus.SCHEDULED
    now = store.get(job.id)
    assert now.available_at - now.updated_at <= timedelta(hours=1) * 1.25


def test_rows_deleted_by_hand_are_not_found_and_hurt_nobody(
    store: PostgresStore, hand: Admin
) -> None:
    store.create_many([NewJob(kind="k") for _ in range(3)])
    gone, *kept = [one.lease for one in store.claim(3)]
    hand.execute("DELETE FROM job WHERE id = %s", [gone.job_id])
    assert store.heartbeat([gone, *kept]).held == set(kept)
    for verb in (store.get, store.payload, store.attempts, store.cancel, store.requeue):
        with pytest.raises(JobNotFound):
            verb(gone.job_id)
    with pytest.raises(JobNotFound):
        store.complete(gone)
    with pytest.raises(JobNotFound):
        store.update_status(gone.job_id, lambda job: job)
    from jobstore import Completed

    answers = store.set_results([(one, Completed(None)) for one in (gone, *kept)])
    assert isinstance(answers[0], JobNotFound)
    assert answers[1:] == [JobStatus.COMPLETED] * 2


def test_children_deleted_by_hand_do_not_strand_their_parent(
    store: PostgresStore, hand: Admin
) -> None:
    store.create(NewJob(kind="parent"))
    parent = store.claim_next()
    assert parent is not None
    store.fan_out(parent.lease, [parent.job.child(kind="c") for _ in range(3)])
    hand.execute("DELETE FROM job WHERE kind = 'c'")
    assert store.claim_next() is None
    assert store.repair_families() == 1
    assert store.get(parent.job.id).status is JobStatus.QUEUED
    assert store.repair_families() == 0


def test_a_lease_taken_twice_under_one_fence_does_not_wedge_the_sweep(
    store: PostgresStore, hand: Admin
) -> None:
    job = store.create(NewJob(kind="k")).job
    claim = store.claim_next()
    assert claim is not None
    store.fail(claim.lease, error_code="E", retry_in=timedelta(0))
    hand.execute("UPDATE job SET status = 'processing', heartbeat_at = now()")
    assert store.reclaim_stale(timedelta(0)).requeued == 1
    assert store.get(job.id).status is JobStatus.QUEUED


def test_a_key_that_outlived_its_job_goes_when_its_time_is_up(
    store: PostgresStore, hand: Admin
) -> None:
    store.create(NewJob(kind="k", idem_key="k"))
    claim = store.claim_next()
    assert claim is not None
    store.complete(claim.lease)
    hand.execute("UPDATE job SET finished_at = finished_at - interval '1 day'")
    assert store.prune(timedelta(hours=1), keep_keys_for=timedelta(days=7)) == 1
    assert store.prune(timedelta(hours=1)) == 0
    with pytest.raises(JobPruned):
        store.create(NewJob(kind="k", idem_key="k"))
    hand.execute("UPDATE idempotency_key SET expires_at = now()")
    assert store.prune(timedelta(hours=1)) == 0
    assert store.create(NewJob(kind="k", idem_key="k")).created


def test_heartbeats_are_hot(store: PostgresStore, hand: Admin, schema: str) -> None:
    store.create_many([NewJob(kind="k") for _ in range(200)])
    leases = [one.lease for one in store.claim(200)]
    store.close()  # so that the claims are counted before

    def updates() -> tuple[int, int]:
        hand.execute(
            "SELECT pg_stat_force_next_flush(); SELECT pg_stat_clear_snapshot()"
        )
        row = hand.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
            " WHERE schemaname = %s AND relname = 'job'",
            [schema],
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    total = 60 * len(leases)

    def share() -> float:
        before = updates()
        for _ in range(60):
            assert store.heartbeat(leases).held == set(leases)
        store.close()  # a session reports its counts when it ends, at the latest
        for _ in range(1000):
            made, hot = (
                now - then for now, then in zip(updates(), before, strict=True)
            )
            if made >= total:
                break
            hand.execute("SELECT pg_sleep(0.01)")
        return float(hot / total)

    # Not all, and not always: while another session's snapshot keeps what is dead, as
    # that of an autovacuum that analyses another test's table, the pages fill up.
    assert any(share() >= 0.9 for _ in range(5))


def test_everything_is_explained_to_operators(hand: Admin, schema: str) -> None:
    silent = hand.execute(
        """
        SELECT c.relname, a.attname
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_attribute a
            ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE n.nspname = %s AND c.relkind IN ('r', 'v')
          AND c.relname <> 'jobstore_version'
          AND (col_description(c.oid, a.attnum) IS NULL
               OR obj_description(c.oid, 'pg_class') IS NULL)
        """,
        [schema],
    ).fetchall()
    assert silent == []


def test_no_name_is_near_the_length_at_which_it_would_be_cut(
    hand: Admin, schema: str
) -> None:
    rows = hand.execute(
        """
        SELECT conname::text FROM pg_constraint
        WHERE connamespace = %(schema)s::regnamespace
        UNION SELECT relname::text FROM pg_class
        WHERE relnamespace = %(schema)s::regnamespace
        """,
        {"schema": f'"{schema}"'},
    ).fetchall()
    assert rows
    assert max(len(name) for (name,) in rows) <= 40


def test_a_duplicate_create_writes_nothing(
    dsn: str, schema: str, store: PostgresStore, hand: Admin
) -> None:
    job = store.create(NewJob(kind="k", payload=b"p", idem_key="k")).job

    def versions() -> list[tuple[Any, ...]]:
        return hand.execute(
            "SELECT job.ctid, job.xmin, key.ctid, key.xmin, payload.ctid"
            " FROM job JOIN idempotency_key AS key ON key.job_id = job.id"
            " JOIN payload ON payload.job_id = job.id"
        ).fetchall()

    before = versions()
    with connect(dsn) as holder:
        holder.autocommit = False
        holder.execute(f'SELECT * FROM "{schema}".job FOR UPDATE'.encode())
        for _ in range(50):
            assert store.create(NewJob(kind="k", idem_key="k")).job == job
        holder.rollback()
    assert versions() == before


def test_payloads_go_with_their_jobs_whoever_deletes_them(
    store: PostgresStore, hand: Admin
) -> None:
    created = store.create_many([NewJob(kind="k", payload=b"x") for _ in range(4)])
    ids = [one.job.id for one in created]
    left = b"SELECT array_agg(job_id ORDER BY job_id) FROM payload"
    hand.execute("DELETE FROM job WHERE id = ANY(%s)", (ids[:2],))
    assert hand.execute(left).fetchone() == (ids[2:],)
    hand.execute("TRUNCATE job CASCADE")
    assert hand.execute(left).fetchone() == (None,)


@pytest.mark.parametrize("name", ["_delete_payloads", "_truncate_payloads"])
def test_nobody_hangs_the_deletion_of_payloads_on_a_table_of_his_own(
    hand: Admin, name: str
) -> None:
    # They run with their owner's rights, for those who may delete jobs.
    rights = hand.execute(
        "SELECT proacl::text LIKE %s FROM pg_proc WHERE oid = %s::regproc",
        ("%{=X/%", name),
    )
    assert rights.fetchone() == (False,)
