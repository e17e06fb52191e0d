"""
Many at once: who migrates, who waits, who is killed, and who goes on working.
"""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from jobstore import JobStatus, NewJob, PostgresStore, SchemaError, migrate
from tests.migrations.releases import NextRelease
from tests.servers import connect

HEAD = migrate.head()


def test_migrators_and_those_who_wait_for_them(dsn: str, empty_schema: str) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    flags = ["--dsn", dsn, "--schema", empty_schema]
    commands = [
        *(
            [sys.executable, "-m", "jobstore", "migrate", "up", *flags]
            for _ in range(3)
        ),
        *(
            [
                sys.executable,
                "-m",
                "jobstore",
                "migrate",
                "wait",
                "--timeout",
                "2m",
                *flags,
            ]
            for _ in range(3)
        ),
    ]
    running = [subprocess.Popen(one, stdout=subprocess.PIPE) for one in commands]
    said = [process.communicate(timeout=120)[0].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 6
    assert said == [f"{empty_schema} is at {HEAD}\n"] * 6


def test_a_killed_migrator_leaves_room_for_the_next(
    dsn: str, empty_schema: str
) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    flags = ["--dsn", dsn, "--schema", empty_schema]
    command = [sys.executable, "-m", "jobstore", "migrate", "up", *flags]
    with connect(dsn) as other:
        with other.transaction():
            other.execute(f"LOCK TABLE {empty_schema}.job".encode())
            process = subprocess.Popen(command)
            _wait_for_a_waiting_view(dsn)
            process.kill()
            process.wait(60)
        assert migrate.upgrade(dsn, schema=empty_schema) == HEAD
    assert migrate.check(dsn, schema=empty_schema).is_ok


def test_builders_of_an_index_do_not_wait_for_each_other_for_ever(
    dsn: str, fresh_schema: str, tmp_path: Path
) -> None:
    """
    A migrator that waits must hold no snapshot: the build would wait for it in turn.
    """
    release = NextRelease(tmp_path / "next")
    schema = "schema=context.config.attributes['schema']"
    release.add(
        f"op.build_index_concurrently('throw_away_idx', 'job', '(tenant)', {schema})",
        "pass",
        compatible_from=HEAD,
    )
    code = (
        "import sys, pathlib; from jobstore import migrate;"
        "from jobstore.migrate import chain;"
        "chain.script_location = lambda: pathlib.Path(sys.argv[3]);"
        "migrate.upgrade(sys.argv[1], schema=sys.argv[2])"
    )
    command = [sys.executable, "-c", code, dsn, fresh_schema, str(tmp_path / "next")]
    running = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0] * 4
    with release.installed():
        assert migrate.current(dsn, schema=fresh_schema) == migrate.head()


def test_no_job_is_lost_on_the_way_up_and_down(dsn: str, fresh_schema: str) -> None:
    """
    Create, claim and complete while the schema goes down to 0001 and up again.
    """
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    stop = threading.Event()

    def work() -> tuple[list[str], list[str]]:
        created, completed = [], []
        while not stop.is_set():
            created += [one.job.id for one in store.create_many([NewJob(kind="k")] * 3)]
            for claim in store.claim(2):
                store.complete(claim.lease)
                completed.append(claim.job.id)
        return created, completed

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work) for _ in range(3)]
        try:
            for _ in range(2):
                migrate.downgrade(dsn, "0001", schema=fresh_schema)
                migrate.upgrade(dsn, schema=fresh_schema)
        finally:
            stop.set()
        done = [one.result(60) for one in working]
    created = {one for made, _ in done for one in made}
    completed = {one for _, ended in done for one in ended}
    with connect(dsn) as connection:
        rows = connection.execute(
            f"SELECT id, status FROM {fresh_schema}.job"
        ).fetchall()
    assert created
    assert completed
    assert {str(one) for one, _ in rows} == created
    ended = {str(one) for one, status in rows if status == JobStatus.COMPLETED}
    assert ended == completed
    store.close()


@pytest.mark.parametrize("revision", ["0004", "0002", "-4", "base"])
def test_going_down_keeps_all_or_refuses_with_a_reason(
    dsn: str, fresh_schema: str, revision: str
) -> None:
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    job = store.create(NewJob(kind="k", payload=b"p")).job
    with connect(dsn) as connection:
        connection.execute(
            f"SELECT {fresh_schema}.cancel_job(%s, 'a test', false)".encode(), [job.id]
        )
    if revision == "0004":
        assert migrate.downgrade(dsn, revision, schema=fresh_schema) == revision
    else:
        with pytest.raises(SchemaError, match=r"refused: .*allow-data-loss"):
            migrate.downgrade(dsn, revision, schema=fresh_schema)
        assert migrate.check(dsn, schema=fresh_schema).is_ok
    assert store.get(job.id).status is JobStatus.CANCELLED
    assert store.payload(job.id).data == b"p"
    with connect(dsn) as connection:
        row = connection.execute(f"SELECT reason FROM {fresh_schema}.audit").fetchone()
    assert row == ("a test",)
    store.close()


def _wait_for_a_waiting_view(dsn: str) -> None:
    with connect(dsn) as connection:
        for _ in range(6000):
            if _waits(connection):
                return
            connection.execute("SELECT pg_sleep(0.01)")
    pytest.fail("the migration did not get that far")


def _waits(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE VIEW%'"
    ).fetchone()
    return row != (0,)
