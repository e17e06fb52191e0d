"""
The plan of every hot statement: by its index, at size, whatever the statistics say.

Asked in all the conditions a queue gets into: a table that was never analysed, one
that was analysed while the queue was empty, after a vacuum; with plans made for the
values at hand and with generic ones; in a plain session and with the store's settings.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobstore import Limits, NewJob, PostgresStore, migrate
from jobstore.postgres.schema import Schema
from jobstore.postgres.statements import claim, create, families, finish, read, upkeep
from tests.servers import connect

HISTORY = 1_000_000
READY = 100_000

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
IDS = [ID] * 50
FENCES = [1] * 50
LEASES = {"job_ids": IDS, "fences": FENCES}
NO_FLOOR = {f"floor_{rank}": "-infinity" for rank in range(3)}
WHO = {"queue": "default", "worker": "w", "lease": None, "limit": 10}
KEYED = {"tenant": "t", "idem_key": "k", "fingerprint": b"f" * 32}

# Statement, parameters, and the indexes that must appear in its plan.
HOT: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "claim": (claim.CLAIM, WHO | NO_FLOOR, {"job_ready_idx", "job_pkey"}),
    "claim one class": (
        claim.CLAIM_CLASS,
        WHO | {"class_rank": 1, "floor": "-infinity"},
        {"job_ready_idx", "job_pkey"},
    ),
    "promote due": (claim.PROMOTE_DUE, {"limit": 100}, {"job_scheduled_idx"}),
    "heartbeat": (claim.HEARTBEAT, LEASES, {"job_pkey"}),
    "complete": (
        finish.COMPLETE,
        {"job_id": ID, "fence": 1, "result": b"r"},
        {"job_pkey"},
    ),
    "complete many": (
        finish.COMPLETE_MANY,
        LEASES | {"results": [b"r"] * 50},
        {"job_pkey"},
    ),
    "complete orphans": (
        finish.COMPLETE_ORPHANS,
        LEASES | {"results": [b"r"] * 50},
        {"job_pkey"},
    ),
    "fail many": (
        finish.FAIL_MANY,
        LEASES
        | {
            "error_codes": ["E"] * 50,
            "error_messages": ["m"] * 50,
            "finals": [False] * 50,
            "retry_in": [timedelta(1)] * 50,
        },
        {"job_pkey"},
    ),
    "give back many": (
        finish.GIVE_BACK_MANY,
        LEASES | {"outcomes": ["released"] * 50, "delays": [timedelta(0)] * 50},
        {"job_pkey"},
    ),
    "look up leases": (finish.LOOK_UP_LEASES, LEASES, {"job_pkey", "attempt_pkey"}),
    "find by key": (
        create.FIND_BY_KEY,
        {"tenants": ["t"] * 50, "idem_keys": ["k"] * 50},
        {"idempotency_key_pkey", "job_pkey"},
    ),
    "lock parents": (create.LOCK_PARENTS, {"parent_ids": IDS}, {"job_pkey"}),
    "tell parents": (
        families.TELL_PARENTS,
        {"parent_ids": IDS, "ended": FENCES, "failed": FENCES},
        {"job_pkey"},
    ),
    "family": (families.FAMILY_BELOW, {"job_id": ID}, {"job_pkey", "job_parent_idx"}),
    "waiting parents": (families.LOCK_WAITING, {"limit": 10}, {"job_waiting_idx"}),
    "reclaim": (
        upkeep.RECLAIM,
        {"visibility_timeout": timedelta(minutes=1), "limit": 100},
        {"job_processing_idx", "job_pkey"},
    ),
    "exhausted": (upkeep.FAIL_EXHAUSTED, {"limit": 100}, {"job_exhausted_idx"}),
    "old roots": (
        upkeep.OLD_ROOTS,
        {
            "older_than": timedelta(days=1),
            "after_at": "-infinity",
            "after_id": "",
            "statuses": ["completed"],
            "limit": 100,
        },
        {"job_finished_idx"},
    ),
    "prune": (
        upkeep.PRUNE,
        {
            "roots": IDS,
            "older_than": timedelta(days=1),
            "statuses": ["completed"],
            "keep_keys_for": timedelta(0),
        },
        {"job_parent_idx", "job_pkey"},
    ),
    "drop keys": (
        upkeep.DROP_KEYS,
        {"limit": 100},
        {"idempotency_key_expiry_idx"},
    ),
    "get": (read.GET, {"job_id": ID}, {"job_pkey"}),
    "payload": (read.PAYLOAD, {"job_id": ID}, {"job_pkey", "payload_pkey"}),
    "attempts": (read.ATTEMPTS, {"job_id": ID}, {"job_pkey", "attempt_pkey"}),
    "children": (
        read.list_children(with_result=True),
        {"parent_id": ID, "after": None, "limit": 100},
        {"job_parent_idx"},
    ),
    "newest": (
        read.list_jobs([], [], oldest_first=False, with_result=True),
        {"after": None, "limit": 100},
        {"job_pkey"},
    ),
}

_FILL = """
INSERT INTO {s}.job (kind, status, started_at, finished_at, worker, fence)
SELECT 'k', 'completed', now(), now() - n * interval '1 second', 'w', 1
FROM generate_series(1, {history}) AS n;
INSERT INTO {s}.job (kind, job_class)
SELECT 'k', (ARRAY['interactive', 'system', 'batch'])[1 + n % 3]
FROM generate_series(1, {ready}) AS n;
INSERT INTO {s}.job (kind, status, available_at)
SELECT 'k', 'scheduled', now() + interval '1 day' FROM generate_series(1, 10000);
INSERT INTO {s}.job (kind, status, started_at, heartbeat_at, worker, fence)
SELECT 'k', 'processing', now(), now(), 'w', 1 FROM generate_series(1, 500);
INSERT INTO {s}.job (kind, status) SELECT 'k', 'waiting' FROM generate_series(1, 500);
INSERT INTO {s}.job (kind, parent_id)
SELECT 'child', id FROM {s}.job, generate_series(1, 10) WHERE status = 'waiting';
INSERT INTO {s}.payload (job_id, data) SELECT id, 'x' FROM {s}.job;
INSERT INTO {s}.idempotency_key (tenant, idem_key, job_id, fingerprint)
SELECT 't', id, id, decode(repeat('00', 32), 'hex') FROM {s}.job;
INSERT INTO {s}.attempt (job_id, fence, attempt, started_at, ended_at, outcome)
SELECT id, 1, 1, now(), now(), 'failed' FROM {s}.job WHERE finished_at IS NOT NULL
"""


@pytest.fixture(scope="module")
def big(dsn: str) -> Iterator[Schema]:
    """
    A schema with a long history and a long queue, never analysed.
    """
    schema = Schema("plans at size")
    migrate.upgrade(dsn, schema=schema.name)
    with connect(dsn) as connection:
        for table in ("job", "payload", "idempotency_key", "attempt"):
            connection.execute(
                f"ALTER TABLE {schema.quoted}.{table} SET (autovacuum_enabled = off)"
            )
        connection.execute(
            _FILL.replace("{s}", schema.quoted)
            .replace("{history}", str(HISTORY))
            .replace("{ready}", str(READY))
        )
    yield schema
    with connect(dsn) as connection:
        connection.execute(f"DROP SCHEMA {schema.quoted} CASCADE")


def plan_of(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    schema: Schema,
    statement: str,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """
    Prepare *statement* as a driver does, and have its execution explained.
    """
    names: list[str] = []

    def numbered(match: "re.Match[str]") -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"%\((\w+)\)[sbt]", numbered, statement.replace("{s}", schema.quoted))
    connection.prepare_threshold = None
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE hot AS {text}".encode())
    values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    call = sql.SQL("({})").format(values) if names else sql.SQL("")
    explained = connection.execute(
        sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE hot{}").format(call)
    ).fetchone()
    assert explained is not None
    found = explained[0]
    plan: dict[str, Any] = (json.loads(found) if isinstance(found, str) else found)[0]
    return plan["Plan"]  # type: ignore[no-any-return]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def check(plan: dict[str, Any], indexes: set[str]) -> None:
    used = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
    assert indexes <= used, f"{indexes - used} not used: {json.dumps(plan, indent=1)}"
    for node in nodes(plan):
        if node["Node Type"] == "Seq Scan":
            pytest.fail(f"scans {node['Relation Name']}: {json.dumps(plan, indent=1)}")
        if node["Node Type"] == "LockRows" and "job_ready_idx" in indexes:
            below = [part["Node Type"] for part in nodes(node)]
            assert "Sort" not in below, "the index must give the order"


@pytest.fixture(params=["never analysed", "analysed", "vacuumed"], scope="module")
def condition(request: pytest.FixtureRequest, dsn: str, big: Schema) -> str:
    commands = {"analysed": "ANALYZE", "vacuumed": "VACUUM ANALYZE"}
    if request.param in commands:
        with connect(dsn) as connection:
            for table in ("job", "payload", "idempotency_key", "attempt"):
                connection.execute(
                    f"{commands[request.param]} {big.quoted}.{table}".encode()
                )
    return str(request.param)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("settings", ["plain", "the store's"])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_hot_statements_go_by_their_index(
    dsn: str, big: Schema, condition: str, mode: str, settings: str
) -> None:
    with connect(dsn) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        if settings != "plain":
            for name, value in Limits().settings().items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        for statement, parameters, indexes in HOT.values():
            check(plan_of(connection, big, statement, parameters), indexes)


@pytest.mark.slow
def test_statistics_of_an_empty_queue_do_not_spoil_the_claim(
    dsn: str, fresh_schema: str
) -> None:
    """
    Analysed with all rows terminal; then a burst comes before the next analyse.
    """
    schema = Schema(fresh_schema)
    with connect(dsn) as connection:
        connection.execute(
            f"""
            ALTER TABLE {schema.quoted}.job SET (autovacuum_enabled = off);
            INSERT INTO {schema.quoted}.job
                (kind, status, started_at, finished_at, worker, fence)
            SELECT 'k', 'completed', now(), now(), 'w', 1
            FROM generate_series(1, 100000);
            """
        )
        connection.execute(f"ANALYZE {schema.quoted}.job".encode())
        connection.execute(
            f"INSERT INTO {schema.quoted}.job (kind)"
            " SELECT 'k' FROM generate_series(1, 200000)"
        )
        statement, parameters, indexes = HOT["claim"]
        check(plan_of(connection, schema, statement, parameters), indexes)


@pytest.mark.slow
def test_plans_cached_on_an_empty_table_hold_when_it_has_grown(
    dsn: str, fresh_schema: str
) -> None:
    """
    One connection claims and completes on an empty table until its plans are generic;
    then the table grows. Its next claims must touch few pages.
    """
    schema = Schema(fresh_schema)
    store = PostgresStore(dsn, schema=fresh_schema, pool_size=1, wake_ups=False)
    for _ in range(20):
        store.create(NewJob(kind="k"))
        for one in store.claim(3):
            store.complete(one.lease)
        store.claim(3)
    with connect(dsn) as connection:
        connection.execute(
            f"""
            ALTER TABLE {schema.quoted}.job SET (autovacuum_enabled = off);
            INSERT INTO {schema.quoted}.job
                (kind, status, started_at, finished_at, worker, fence)
            SELECT 'k', 'completed', now(), now(), 'w', 1
            FROM generate_series(1, 300000);
            """
        )
        store.create_many([NewJob(kind="k") for _ in range(100)])

        def scans() -> object:
            connection.execute("SELECT pg_stat_force_next_flush()")
            row = connection.execute(
                "SELECT seq_scan FROM pg_stat_user_tables"
                " WHERE schemaname = %s AND relname = 'job'",
                [fresh_schema],
            ).fetchone()
            assert row is not None
            return row[0]

        before = scans()
        for _ in range(20):
            leases = [one.lease for one in store.claim(3)]
            assert len(leases) == 3
            store.heartbeat(leases)
            for lease in leases:
                store.complete(lease)
        store.close()  # its session reports its counts when it ends
        assert scans() == before
