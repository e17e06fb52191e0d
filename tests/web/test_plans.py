"""
What the page asks is bounded: by its index, and few rows, however long the history.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobstore import Limits, migrate
from jobstore.postgres.schema import Schema
from jobstore.web import queries, reading
from tests.postgres.test_plans import nodes
from tests.servers import connect

HISTORY = 200_000
READY = 60_000

# Most rows that a statement may touch: its bounds, and little more. All are far below
# the history.
FILL = """
INSERT INTO {s}.job (kind, status, started_at, finished_at, worker, fence, created_at)
SELECT 'k', 'completed', now(), now() - n * interval '1 second', 'w', 1,
    now() - n * interval '1 second'
FROM generate_series(1, {history}) AS n;
INSERT INTO {s}.job (kind, status, started_at, finished_at, worker, fence, error_code)
SELECT 'k', 'failed', now(), now() - n * interval '1 second', 'w', 1, 'E_' || n % 5
FROM generate_series(1, 30000) AS n;
INSERT INTO {s}.job (kind, job_class, queue)
SELECT 'k', (ARRAY['interactive', 'system', 'batch'])[1 + n % 3], 'q' || n % 4
FROM generate_series(1, {ready}) AS n;
INSERT INTO {s}.job (kind, status, available_at)
SELECT 'k', 'scheduled', now() + interval '1 day' FROM generate_series(1, 30000) AS n;
INSERT INTO {s}.job (kind, status, started_at, heartbeat_at, worker, fence)
SELECT 'k', 'processing', now(), now(), 'w', 1 FROM generate_series(1, 500);
INSERT INTO {s}.job (kind, status) SELECT 'k', 'waiting' FROM generate_series(1, 500);
INSERT INTO {s}.job (kind, parent_id)
SELECT 'child', id FROM {s}.job, generate_series(1, 10) WHERE status = 'waiting';
INSERT INTO {s}.payload (job_id, data)
SELECT id, 'x' FROM {s}.job WHERE status = 'waiting';
INSERT INTO {s}.attempt (job_id, fence, attempt, started_at, ended_at, outcome)
SELECT id, 1, 1, now(), now(), 'failed' FROM {s}.job WHERE finished_at IS NOT NULL;
INSERT INTO {s}.audit (action, reason, job_ids)
SELECT 'requeue_job', 'why', ARRAY['x'] FROM generate_series(1, 5000)
"""


@pytest.fixture(scope="module")
def big(dsn: str) -> Iterator[Schema]:
    schema = Schema("page at size")
    migrate.upgrade(dsn, schema=schema.name)
    with connect(dsn) as connection:
        for table in ("job", "payload", "attempt", "audit"):
            connection.execute(
                f"ALTER TABLE {schema.quoted}.{table} SET (autovacuum_enabled = off)"
            )
        connection.execute(
            FILL.replace("{s}", schema.quoted)
            .replace("{history}", str(HISTORY))
            .replace("{ready}", str(READY))
        )
    yield schema
    with connect(dsn) as connection:
        connection.execute(f"DROP SCHEMA {schema.quoted} CASCADE")


@pytest.fixture(params=["never analysed", "vacuumed"], scope="module")
def condition(request: pytest.FixtureRequest, dsn: str, big: Schema) -> str:
    if request.param == "vacuumed":
        with connect(dsn) as connection:
            for table in ("job", "payload", "attempt", "audit"):
                connection.execute(f"VACUUM ANALYZE {big.quoted}.{table}".encode())
    return str(request.param)


def explained(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    schema: Schema,
    statement: str,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """
    Run *statement* as the page does, with a generic plan, and return what it did.
    """
    names: list[str] = []

    def numbered(match: "re.Match[str]") -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"%\((\w+)\)s", numbered, statement.replace("{s}", schema.quoted))
    connection.prepare_threshold = None
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE asked AS {text}".encode())
    values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    call = sql.SQL("({})").format(values) if names else sql.SQL("")
    row = connection.execute(
        sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked{}").format(call)
    ).fetchone()
    assert row is not None
    return row[0][0]["Plan"]  # type: ignore[no-any-return]


def touched(plan: dict[str, Any]) -> int:
    """
    Count the rows that all scans of tables read, kept or not.
    """
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        * node["Actual Loops"]
        for node in nodes(plan)
        if "Relation Name" in node or node["Node Type"] == "Bitmap Heap Scan"
    )


def statements(ids: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """
    Give every statement: a name, the text, parameters, most rows it may touch.
    """
    yield (
        "ready",
        queries.READY,
        {"lines": queries.MOST_LINES + 1, "most": 2000},
        # Four queues of three classes and the default queue, each line read twice.
        13 * (2000 + 1000 + 2),
    )
    yield "open", queries.OPEN, {"most": 1000}, 4000
    yield "flow", queries.FLOW, {"most": 5000}, 10_000
    yield "sampled", queries.FLOW_SAMPLED, {"most": 100}, 61 * 2 * 100
    yield (
        "failures",
        queries.FAILURES,
        {"window": timedelta(days=7), "most": 1000},
        1000,
    )
    for name in ("JOB", "SIZES", "PLACE"):
        text = getattr(queries, name)
        yield name.lower(), text, {"job_id": ids["child"]}, 2
    yield "attempts", queries.ATTEMPTS, {"job_id": ids["completed"], "most": 200}, 200
    yield "ancestors", queries.ANCESTORS, {"parent_id": ids["waiting"]}, 2
    page = {"parent_id": ids["waiting"], "after": None, "limit": 5}
    yield "children", queries.CHILDREN, page, 6
    yield "audit", queries.AUDIT, {"job_id": ids["child"], "look": 1000}, 1000
    yield "queues", queries.QUEUES_OF, {"job_ids": [ids["child"]]}, 1
    nobody = {"tenant": "nobody"}
    for word, order in queries.ORDERS.items():
        end = {"id": "Z" if order.descending else "0"}
        place = {f"from_{column}": (ids | end)[column] for column in order.columns}
        for continues in (False, True):
            given = nobody | {"limit": 51, "look": 1000} | (place if continues else {})
            text = queries.search(word, nobody, continues=continues)
            yield (
                f"search {word} {continues}",
                text,
                given,
                1010,
            )  # one more: a sort of ties looks ahead
            text = queries.end_of_look(word, nobody, continues=continues)
            yield (
                f"end of {word} {continues}",
                text,
                given,
                1010,
            )  # one more: a sort of ties looks ahead
    of_queue = {"queue": "q2", "limit": 51, "look": 1000}
    text = queries.search("queued", ["queue"], continues=False)
    yield "search a queue", text, of_queue, 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_statement_reads_few_rows_by_its_index(
    dsn: str, big: Schema, condition: str
) -> None:
    with connect(dsn) as connection:
        ids = some_ids(connection, big)
        for name, value in Limits().settings().items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        for name, text, parameters, most in statements(ids):
            plan = explained(connection, big, text, parameters)
            kinds = {node["Node Type"] for node in nodes(plan)}
            assert "Seq Scan" not in kinds, (name, json.dumps(plan, indent=1))
            assert touched(plan) <= most, (name, json.dumps(plan, indent=1))


def some_ids(
    connection: "psycopg.Connection[tuple[Any, ...]]", schema: Schema
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "queue": "q1",
        "class_rank": 1,
        "created_at": "-infinity",
        "available_at": "-infinity",
        "finished_at": "infinity",
    }
    for name, condition in {
        "waiting": "status = 'waiting'",
        "completed": "status = 'completed'",
        "child": "parent_id IS NOT NULL",
    }.items():
        row = connection.execute(
            f"SELECT id FROM {schema.quoted}.job WHERE {condition} LIMIT 1".encode()
        ).fetchone()
        assert row is not None
        found[name] = row[0]
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bounds_are_told(dsn: str, big: Schema) -> None:
    """
    The flow of a full hour is sampled, and what was not counted whole is named.
    """
    reader = reading.Reader(dsn, schema=big.name)
    try:
        seen = reader.overview()
        groups, is_bounded = reader.failures(timedelta(days=7))
        lost = reader.search("", {"tenant": "nobody"}, after=None)
    finally:
        reader.close()
    assert seen.bounded == {"scheduled"}
    assert seen.is_sampled
    assert sum(line.ready for line in seen.lines) == READY + 5000
    completed = [minute.counts.get("completed", 0) for minute in seen.minutes]
    assert completed[30] == 60, "below the bound a minute is counted exactly"
    assert is_bounded
    assert sum(group.jobs for group in groups) == queries.MOST_FAILURES
    assert lost.jobs == []
    assert lost.after is not None, "it says where it stopped"
    assert lost.looked_back_to is not None
