"""
Metrics: what is counted, what is read at a scrape, and by which plan.
"""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from jobstore import Limits, MemoryStore, NewJob, StoreBusy
from jobstore.observe import (
    FamiliesRepaired,
    JobsPromoted,
    JobsPruned,
    LeasesReclaimed,
    StoreFailed,
    observed,
)
from jobstore.observe.metrics import MOST_KINDS, OTHER, Metrics, QueueCollector
from jobstore.observe.queue import HEALTH
from jobstore.postgres.schema import Schema
from tests.cli.conftest import ROOT, Cli
from tests.cli.conftest import cli as cli  # noqa: PLC0414 - a fixture
from tests.observe.existing import samples
from tests.operators.support import Place, open_place
from tests.servers import connect
from tests.web.test_plans import explained, touched


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def collector(dsn: str, schema: str) -> Iterator[QueueCollector]:
    made = QueueCollector(dsn, schema=schema)
    yield made
    made.close()


@pytest.fixture
def place(dsn: str, schema: str) -> Iterator[Place]:
    yield from open_place(dsn, schema)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_the_life_of_jobs_is_counted(registry: CollectorRegistry) -> None:
    store = observed(MemoryStore(), Metrics(registry))
    where = {"queue": "out", "kind": "mail"}
    new = NewJob(kind="mail", queue="out", idem_key="k")
    store.create(new)
    store.create(new)
    claim = store.claim_next(queue="out")
    assert claim is not None
    store.release(claim.lease)
    claim = store.claim_next(queue="out")
    assert claim is not None
    store.complete(claim.lease)
    store.create(NewJob(kind="mail", queue="out"))
    claim = store.claim_next(queue="out")
    assert claim is not None
    store.cancel(claim.lease.job_id)
    store.heartbeat([claim.lease])
    for name, outcome, expected in [
        ("creates", "new", 2),
        ("creates", "known", 1),
        ("attempts", "released", 1),
        ("attempts", "completed", 1),
        ("attempts", "cancelled", 1),
        ("changes", "cancel", 1),
    ]:
        seen = value(registry, f"jobstore_{name}_total", **where, outcome=outcome)
        assert seen == expected, (name, outcome)
    assert value(registry, "jobstore_claims_total", **where) == 3
    assert value(registry, "jobstore_wait_seconds_count", **where) == 3
    assert value(registry, "jobstore_run_seconds_count", **where) == 2


def test_upkeep_and_failures_are_counted(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    for event in (
        LeasesReclaimed(requeued=2, failed=1),
        JobsPromoted(jobs=3),
        JobsPruned(jobs=4),
        FamiliesRepaired(parents=5),
        StoreFailed(verb="claim", code=StoreBusy.code),
    ):
        metrics(event)
    seen = {
        (name, outcome): value(registry, f"jobstore_{name}_total", outcome=outcome)
        for name, outcome in [
            ("reclaims", "requeued"),
            ("reclaims", "failed"),
            ("upkeep_jobs", "promoted"),
            ("upkeep_jobs", "pruned"),
            ("upkeep_jobs", "repaired"),
            ("store_errors", "STORE_BUSY"),
        ]
    }
    assert list(seen.values()) == [2, 1, 3, 4, 5, 1]


def test_labels_are_few_however_many_kinds_come(registry: CollectorRegistry) -> None:
    store = observed(MemoryStore(), Metrics(registry))
    for number in range(MOST_KINDS + 10):
        store.create(NewJob(kind=f"kind {number}", tenant="acme"))
    names = {"queue": OTHER, "kind": OTHER, "outcome": "new"}
    assert value(registry, "jobstore_creates_total", **names) == 10
    labels = {
        name
        for family in registry.collect()
        for sample in family.samples
        for name in sample.labels
    }
    assert labels <= {"queue", "kind", "outcome", "le"}


def test_a_scrape_shows_what_is_open(
    place: Place, collector: QueueCollector, registry: CollectorRegistry
) -> None:
    registry.register(collector)
    store = place.store
    late = datetime.now(UTC) + timedelta(hours=1)
    old = store.create(NewJob(kind="a", queue='q "1"')).job
    store.create(NewJob(kind="a", queue='q "1"'))
    store.create(NewJob(kind="a", queue="later", available_at=late))
    for worker in ("w", "silent"):
        store.create(NewJob(kind="a", queue="run"))
        assert store.claim_next(queue="run", worker=worker)
    store.create(NewJob(kind="a", queue="done"))
    claim = store.claim_next(queue="done")
    assert claim is not None
    store.complete(claim.lease)
    place.ask(
        "UPDATE {s}.job SET updated_at = updated_at - interval '1 hour' WHERE id = %s",
        old.id,
    )
    place.ask(
        "UPDATE {s}.job SET heartbeat_at = heartbeat_at - interval '1 hour'"
        " WHERE worker = 'silent'"
    )

    def gauge(name: str, queue: str, **labels: str) -> float | None:
        place = {"queue": queue, "job_class": "batch"}
        return value(registry, f"jobstore_{name}", **place, **labels)

    assert gauge("open_jobs", 'q "1"', state="ready") == 2
    assert gauge("open_jobs", "later", state="scheduled") == 1
    assert gauge("open_jobs", "run", state="running") == 2
    assert gauge("open_jobs", "done", state="ready") == 0
    assert gauge("recent_jobs", "done", outcome="completed") == 1
    assert gauge("recent_jobs", 'q "1"', outcome="created") == 2
    assert gauge("expired_leases", "run") == 1
    assert gauge("expired_leases", 'q "1"') == 0
    waited = gauge("oldest_wait_seconds", 'q "1"')
    assert waited is not None
    assert 3600 <= waited < 3700
    assert gauge("oldest_wait_seconds", "run") == 0
    assert value(registry, "jobstore_up") == 1


def test_a_database_that_is_away_does_not_fail_the_scrape(
    registry: CollectorRegistry,
) -> None:
    away = QueueCollector("postgresql://u:m4rked@127.0.0.1:1/none?connect_timeout=1")
    registry.register(away)
    try:
        text = generate_latest(registry).decode()
    finally:
        away.close()
    assert "jobstore_up 0.0" in text
    assert "jobstore_open_jobs{" not in text


FILL = """
INSERT INTO {s}.job (
    id, kind, status, started_at, finished_at, worker, fence, created_at, error_code
)
SELECT substr({s}.ulid_at(now() - interval '1 hour'), 1, 10)
        || substr({s}.new_ulid(), 11),
    'k', status, now(), now() - interval '10 min', 'w', 1, now() - interval '1 hour',
    CASE status WHEN 'failed' THEN 'E' END
FROM generate_series(1, 20000) AS n,
    unnest(ARRAY['completed', 'failed']) AS status;
INSERT INTO {s}.job (kind, queue)
SELECT 'k', 'q' || n % 3 FROM generate_series(1, 300) AS n;
INSERT INTO {s}.job (kind, status, available_at)
SELECT 'k', 'scheduled', now() + interval '1 day' FROM generate_series(1, 100) AS n;
INSERT INTO {s}.job (kind, status, started_at, heartbeat_at, worker, fence)
SELECT 'k', 'processing', now(), now(), 'w', 1 FROM generate_series(1, 100);
INSERT INTO {s}.job (kind, status) SELECT 'k', 'waiting' FROM generate_series(1, 100);
"""


@pytest.mark.postgres
@pytest.mark.parametrize("condition", ["never analysed", "vacuumed"])
def test_a_scrape_reads_no_history(dsn: str, schema: str, condition: str) -> None:
    """
    Of 40,000 ended jobs none is touched: each open one a few times at most.
    """
    there = Schema(schema)
    with connect(dsn) as connection:
        connection.execute(FILL.replace("{s}", there.quoted).encode())
        if condition == "vacuumed":
            connection.execute(f"VACUUM ANALYZE {there.quoted}.job".encode())
        # As in the reader's own sessions, so that the statistics of a table that was
        # another one before don't matter.
        for name, value in Limits().settings().items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        plan = explained(connection, there, HEALTH, {})
    assert touched(plan) <= 3 * 600, plan


def test_the_command_prints_them_once(cli: Cli, place: Place) -> None:
    place.store.create(NewJob(kind="a", queue="q"))
    ran = cli.ok("metrics", "--once")
    line = 'jobstore_open_jobs{job_class="batch",queue="q",state="ready"} 1.0'
    assert line in ran.out
    assert "jobstore_up 1.0" in ran.out


def test_once_has_an_exit_code_for_a_database_that_is_away(cli: Cli) -> None:
    ran = cli("metrics", "--once", "--dsn", "postgresql://127.0.0.1:1/none")
    assert ran.code == 6
    assert ran.out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_them_until_it_is_told_to_stop(
    cli: Cli, place: Place, number: signal.Signals
) -> None:
    place.store.create(NewJob(kind="a", queue="q"))
    running = cli.start("metrics", "--listen", "127.0.0.1:0", stderr=None)
    try:
        assert running.stdout is not None
        url = running.stdout.readline().decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=30) as answer:
            assert b"jobstore_open_jobs{" in answer.read()
    finally:
        running.send_signal(number)
        running.communicate(timeout=30)
    assert running.returncode == 0


@pytest.mark.parametrize(
    "listen", ["9187", "localhost", ":9187", "localhost:x", "localhost:99999", "::1:1"]
)
def test_where_it_cannot_serve(cli: Cli, listen: str) -> None:
    ran = cli("metrics", "--listen", listen)
    assert ran.code == 4
    assert "listen=" in ran.err


# As if the extra were not installed.
_WITHOUT = "import sys; sys.modules['prometheus_client'] = None; "


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_who_lacks_the_extra_is_told_its_name() -> None:
    ran = run(f"{_WITHOUT}import jobstore.observe.metrics")
    assert "pip install 'jobstore[metrics]'" in ran.stderr.splitlines()[-1]
    ran = run(
        f"{_WITHOUT}from jobstore.cli import main; "
        "main(['metrics', '--dsn', 'postgresql:///x'])"
    )
    assert ran.returncode == 1
    assert "pip install 'jobstore[metrics]'" in ran.stderr


def test_nothing_else_needs_the_extra() -> None:
    ran = run(f"{_WITHOUT}import jobstore, jobstore.observe, jobstore.cli")
    assert ran.returncode == 0, ran.stderr
    ran = run(
        "import sys, jobstore, jobstore.observe, jobstore.cli; "
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert ran.returncode == 0


def test_the_metrics_are_documented() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    documented = {
        name: frozenset(labels.split(", ")) - {""}
        for name, labels in re.findall(
            r"^\| `(jobstore_\w+)` \| ([^|]*?) ?\|", text, re.MULTILINE
        )
    }
    existing = {
        re.sub("_(bucket|count|sum)$", "", name): labels - {"le"}
        for name, labels in samples().items()
    }
    assert documented == existing
