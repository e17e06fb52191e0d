"""
The views show what is there, name it for good, and stay quick beside a long history.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobstore.model import ChildFailure
from tests import servers
from tests.operators.support import Place

GOLDEN = Path(__file__).with_name("interface.txt")

VIEWS = [
    "queue_health",
    "ready",
    "recent_failures",
    "running",
    "scheduled",
    "snapshot_holders",
    "stale",
    "table_health",
    "tenant_backlog",
    "waiting_families",
    "workers",
]


def test_the_interface_changes_only_by_adding(place: Place) -> None:
    """
    Views, columns and functions are what operators' own queries rest on.

    A new column goes to the end of its view, a new argument gets a default and goes to
    the end. Then add the line here too; do not change or remove one.
    """
    views = place.ask(
        """
        SELECT class.relname || '.' || attname || ' '
            || format_type(atttypid, atttypmod)
        FROM pg_attribute JOIN pg_class AS class ON class.oid = attrelid
        WHERE relnamespace = %s::regnamespace AND attnum > 0
            AND (relkind = 'v' OR relname = 'audit')
        ORDER BY relname COLLATE "C", attnum
        """,
        place.schema,
    )
    functions = place.ask(
        """
        SELECT proname || '(' || pg_get_function_arguments(oid) || ') -> '
            || pg_get_function_result(oid)
        FROM pg_proc
        WHERE pronamespace = %s::regnamespace AND proname NOT LIKE '\\_%%'
        ORDER BY proname COLLATE "C"
        """,
        place.schema,
    )
    lines = [line for (line,) in views + functions]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()


def test_everything_is_explained_by_a_comment(place: Place) -> None:
    bare = place.ask(
        """
        SELECT relname, attname
        FROM pg_class AS class
        LEFT JOIN pg_attribute ON attrelid = class.oid AND attnum > 0
        WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'v')
            AND relname <> 'jobstore_version'
            AND (col_description(class.oid, attnum) IS NULL
                OR obj_description(class.oid, 'pg_class') IS NULL)
        UNION ALL
        SELECT proname, NULL FROM pg_proc
        WHERE pronamespace = %(schema)s::regnamespace
            AND obj_description(oid, 'pg_proc') IS NULL
        """.replace("%(schema)s", f"'{place.schema}'")
    )
    assert bare == []


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_shows_payload_result_or_key(place: Place, view: str) -> None:
    hidden = "hidden-0123456789"
    place.add(payload=hidden.encode(), idem_key=hidden, tenant="t")
    place.add(payload=hidden.encode(), idem_key=hidden + "2", tenant="t")
    claim = place.claim()
    place.store.complete(claim.lease, hidden.encode())
    place.claim()
    rows = str(place.ask(f"SELECT * FROM {{s}}.{view}"))
    assert hidden not in rows
    assert hidden.encode().hex() not in rows
    assert not {"payload", "data", "result", "idem_key"} & set(place.columns(view))


def test_ready_is_in_the_order_of_claims(place: Place) -> None:
    for job_class in ("batch", "interactive", "system", "interactive"):
        place.add(job_class=job_class)
    shown = [row[0] for row in place.ask("SELECT id FROM {s}.ready")]
    claimed = [place.claim().job.id for _ in range(4)]
    assert shown == claimed


def test_ready_leaves_out_what_nobody_will_claim(place: Place) -> None:
    place.add("due later", available_at=datetime(2100, 1, 1, tzinfo=UTC))
    used_up = place.add("used up", max_attempts=1)
    place.ask("UPDATE {s}.job SET attempts = 1 WHERE id = %s", used_up.id)
    place.add("ready")
    assert place.ask("SELECT kind FROM {s}.ready") == [("ready",)]
    assert place.ask("SELECT kind, due_in > '1 day' FROM {s}.scheduled") == [
        ("due later", True)
    ]
    assert place.ask("SELECT ready, scheduled, exhausted FROM {s}.queue_health") == [
        (1, 1, 1)
    ]


def test_waited_counts_from_when_it_was_queued_again(place: Place) -> None:
    job = place.add()
    place.age(job.id, created_at=timedelta(hours=9), available_at=timedelta(hours=9))
    place.store.release(place.claim().lease)
    assert place.ask("SELECT waited < '1 minute' FROM {s}.ready") == [(True,)]
    place.age(job.id, updated_at=timedelta(hours=2))
    assert place.ask("SELECT extract(hour FROM waited)::int FROM {s}.ready") == [(2,)]
    assert place.ask(
        "SELECT extract(hour FROM oldest_wait)::int FROM {s}.queue_health"
    ) == [(2,)]
    assert place.ask(
        "SELECT tenant, extract(hour FROM oldest_wait)::int, "
        "extract(hour FROM oldest_batch_wait)::int, oldest_system_wait "
        "FROM {s}.tenant_backlog"
    ) == [("default", 2, 2, None)]


def test_stale_respects_a_lease_of_its_own(place: Place) -> None:
    for kind in ("silent", "long lease", "fresh"):
        place.add(kind)
    silent = place.claim("dead")
    patient = place.claim("busy", lease=timedelta(hours=1))
    place.claim("alive")
    place.silence(silent.job.id, 120)
    place.silence(patient.job.id, 120)
    assert place.ask("SELECT kind, worker FROM {s}.stale") == [("silent", "dead")]
    assert place.ask("SELECT running, expired_leases FROM {s}.queue_health") == [(3, 1)]
    assert place.ask("SELECT worker, running, queues FROM {s}.workers ORDER BY 1") == [
        ("alive", 1, ["default"]),
        ("busy", 1, ["default"]),
        ("dead", 1, ["default"]),
    ]
    place.silence(patient.job.id, 3600)
    assert place.ask("SELECT count(*) FROM {s}.stale") == [(2,)]
    assert place.ask("SELECT count(*) FROM {s}.running") == [(3,)]


def test_waiting_families(place: Place) -> None:
    place.add("parent")
    place.fan_out(place.claim(), ["a", "b", "c"], ChildFailure.FAIL)
    place.fail(place.claim())
    assert place.ask(
        "SELECT kind, children_open, children_failed, children_total, "
        "on_child_failure, waited < '1 minute' FROM {s}.waiting_families"
    ) == [("parent", 2, 1, 3, "fail", True)]


def test_recent_failures_are_those_of_a_day_newest_first(place: Place) -> None:
    for kind in ("old", "first", "second"):
        place.add(kind)
        claim = place.claim()
        place.fail(claim)
        if kind == "old":
            place.age(claim.job.id, finished_at=timedelta(hours=25))
    assert place.ask(
        "SELECT kind, error_code, error_message FROM {s}.recent_failures"
    ) == [
        ("second", "E_BROKEN", "it broke"),
        ("first", "E_BROKEN", "it broke"),
    ]


def test_queue_health_counts_the_flow(place: Place) -> None:
    for _ in range(6):
        place.add(queue="ocr")
    place.store.complete(place.claim(queue="ocr").lease)
    place.store.complete(place.claim(queue="ocr").lease)
    place.fail(place.claim(queue="ocr"))
    place.store.cancel(place.ask("SELECT id FROM {s}.ready LIMIT 1")[0][0])
    assert place.ask(
        "SELECT queue, job_class, ready, created_5min, completed_5min, failed_5min, "
        "cancelled_5min FROM {s}.queue_health"
    ) == [("ocr", "batch", 2, 6, 2, 1, 1)]


def test_ulid_at_bounds_ids_by_time(place: Place) -> None:
    before = place.value("SELECT clock_timestamp() - interval '2 seconds'")
    job = place.add()
    after = place.value("SELECT clock_timestamp() + interval '2 seconds'")
    assert place.ask(
        "SELECT {s}.ulid_at(%s) < %s, {s}.ulid_at(%s) > %s",
        before,
        job.id,
        after,
        job.id,
    ) == [(True, True)]
    # The example of the specification.
    assert place.value("SELECT {s}.ulid_at(to_timestamp(1469918176.385))") == (
        "01ARYZ6S41" + "0" * 16
    )


def test_table_health_sees_dead_rows_and_invalid_indexes(fresh_place: Place) -> None:
    place = fresh_place
    place.ask("ALTER TABLE {s}.job SET (autovacuum_enabled = off)")
    job = place.add()
    for _ in range(20):
        # Not HOT: an indexed column changes.
        place.ask("UPDATE {s}.job SET queue = queue || 'x' WHERE id = %s", job.id)
    place.ask("SELECT pg_stat_force_next_flush()")
    place.ask(
        "UPDATE pg_index SET indisvalid = false "
        f"WHERE indexrelid = '{place.schema}.job_failed_idx'::regclass"
    )
    place.ask("ANALYZE {s}.job")
    rows = place.ask(
        "SELECT table_name, dead_rows >= 20, vacuum_at_dead_rows, last_vacuum_at, "
        "invalid_indexes FROM {s}.table_health WHERE table_name IN ('job', 'payload') "
        "ORDER BY 1"
    )
    assert rows == [
        ("job", True, 1000, None, ["job_failed_idx"]),
        ("payload", False, 50, None, []),
    ]


def test_snapshot_holders_names_sessions(place: Place, dsn: str) -> None:
    with servers.connect(dsn) as idle, servers.connect(dsn) as harmless:
        idle.execute("SET application_name = 'report'")
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")
        # Holds nothing: between two statements at READ COMMITTED, and wrote nothing.
        harmless.execute("BEGIN")
        harmless.execute("SELECT 1")
        rows = place.ask(
            "SELECT kind, pid, state, application, held_for IS NOT NULL, to_end_it "
            "FROM {s}.snapshot_holders WHERE pid = ANY(%s)",
            [idle.info.backend_pid, harmless.info.backend_pid],
        )
        pid = idle.info.backend_pid
        assert rows == [
            (
                "session",
                pid,
                "idle in transaction",
                "report",
                True,
                f"SELECT pg_terminate_backend({pid})",
            )
        ]
        place.ask(rows[0][5])
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")


# Views that look at open jobs, at recent ones, or at few.
@pytest.mark.parametrize(
    "view", [view for view in VIEWS if view not in {"table_health", "snapshot_holders"}]
)
def test_no_view_reads_history(fresh_place: Place, view: str) -> None:
    place = fresh_place
    place.ask("""
        INSERT INTO {s}.job (id, kind, status, attempts, fence, started_at, worker,
            finished_at, created_at, updated_at, error_code)
        SELECT {s}.ulid_at(at), 'k',
            CASE n % 10 WHEN 0 THEN 'failed' ELSE 'completed' END,
            1, 1, at, 'w', at, at, at, CASE n % 10 WHEN 0 THEN 'E' END
        FROM (
            SELECT n, statement_timestamp() - interval '30 days' - n * interval '1 s'
                AS at
            FROM generate_series(1, 20000) AS n
        ) AS past
    """)
    place.add()
    place.ask("ANALYZE {s}.job")
    plan = place.value(f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {{s}}.{view}")
    read = [
        (node["Node Type"], node["Actual Rows"])
        for node in _nodes(plan[0]["Plan"])
        if node.get("Relation Name") == "job"
    ]
    assert read
    assert all(kind != "Seq Scan" and rows <= 1 for kind, rows in read), read


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    below = node.get("Plans", [])
    return [node] + [found for child in below for found in _nodes(child)]
