"""
Every topic runs, on tables of a few rows. Whether it is fast is not a test's business.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks import bench as benches
from benchmarks import load, pgbench
from benchmarks.bench import Bench
from benchmarks.figures import peers
from benchmarks.suite import LONG, SHORT, TOPICS
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed


@pytest.fixture
def bench(dsn: str, tmp_path: Path) -> Iterator[Bench]:
    with benches.made(
        dsn, pgbench=pgbench.find(), rounds=1, scale=0.001, folder=tmp_path
    ) as made:
        yield made


# Those that start processes, or keep to seconds, take their time.
_SLOW = {"latency", "worker", "processes", "snapshot"}


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=[pytest.mark.slow] if topic in _SLOW else [])
        for topic in TOPICS
        if topic != "peers"
    ],
)
def test_a_topic_runs(bench: Bench, topic: str) -> None:
    said: list[str] = []

    figures = list(TOPICS[topic].measure(bench, said.append))

    assert figures
    for figure in figures:
        assert figure.name
        if figure.twin:
            assert figure.value > 0
            assert figure.ratio is not None


def test_peers_that_are_not_installed_are_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(peers.PYTHON_VARIABLE, raising=False)
    said: list[str] = []

    assert list(peers.measure(bench, said.append)) == []

    assert peers.PYTHON_VARIABLE in said[0]


def test_every_topic_is_short_or_long() -> None:
    assert set(SHORT) | set(LONG) == set(TOPICS)
    assert not set(SHORT) & set(LONG)


def test_nothing_is_left_behind(dsn: str) -> None:
    with benches.made(dsn, pgbench=None) as made:
        name = made.schema
    with psycopg.connect(benches.libpq_dsn(dsn)) as connection:
        left = connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", [name]
        ).fetchall()
    assert left == []


def test_loaded_jobs_are_the_store_s_own(bench: Bench) -> None:
    load.queued(bench, 30, tenants=3)
    load.finished(bench, 20)
    load.scheduled(bench, 10, due_in="1 day")
    store = bench.store()
    try:
        found = store.list(limit=100)
        assert [job.id for job in found] == sorted(
            (job.id for job in found), reverse=True
        )
        assert sum(job.status is JobStatus.COMPLETED for job in found) == 20
        assert sum(job.status is JobStatus.SCHEDULED for job in found) == 10

        claims = store.claim(100)

        assert len(claims) == 30
        assert {claim.job.tenant for claim in claims} == {
            "tenant-0",
            "tenant-1",
            "tenant-2",
        }
        order = [(claim.job.created_at, claim.job.id) for claim in claims]
        assert order == sorted(order)
        assert store.payload(claims[0].job.id).data == b"\x00"
        answers = store.set_results([(one.lease, Completed()) for one in claims])
        assert answers == [JobStatus.COMPLETED] * 30
    finally:
        store.close()


def test_pgbench_does_the_work_that_it_is_timed_for(bench: Bench) -> None:
    if bench.pgbench is None:
        pytest.skip("pgbench is not installed")
    load.queued(bench, 50)

    rate = pgbench.claim_and_complete(bench, limit=10, transactions=3)

    assert rate > 0
    store = bench.store()
    try:
        done = store.list(status=JobStatus.COMPLETED)
        left = store.list(status=JobStatus.QUEUED)
    finally:
        store.close()
    assert len(done) == 30
    assert len(left) == 20
    assert max(job.created_at for job in done) < min(job.created_at for job in left)
