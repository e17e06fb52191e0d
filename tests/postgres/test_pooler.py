"""
Behind a pooler in transaction mode: each transaction may run on another connection.
"""

import getpass
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy

from jobstore import Limits, NewJob, PostgresStore, StoreBusy, migrate
from tests.postgres.test_schemas import live_a_life
from tests.servers import connect

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")

pytestmark = pytest.mark.skipif(
    PGBOUNCER is None, reason="pgbouncer is not installed (apt install pgbouncer)"
)


@pytest.fixture
def pooled(dsn: str, tmp_path: Path) -> Iterator[str]:
    """
    A pgbouncer with two server connections before the server; its DSN.
    """
    assert PGBOUNCER is not None
    url = sqlalchemy.make_url(dsn)
    host = str(url.query.get("host") or url.host or "localhost")
    port = url.query.get("port") or url.port or 5432
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen_port = free.getsockname()[1]
    login = f"user={url.username} password={url.password or 'none'}"
    (tmp_path / "users.txt").write_text(f'"{url.username}" ""\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"""
        [databases]
        jobs = host={host} port={port} dbname={url.database} {login}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {listen_port}
        unix_socket_dir =
        auth_type = any
        auth_file = {tmp_path}/users.txt
        pool_mode = transaction
        default_pool_size = 2
        logfile = {tmp_path}/log
        """.replace("\n        ", "\n")
    )
    command = [PGBOUNCER, str(tmp_path / "pgbouncer.ini")]
    if getpass.getuser() == "root":
        # It refuses to run as root.
        for part in [tmp_path, *tmp_path.parents][:4]:
            part.chmod(0o755)
        (tmp_path / "log").touch()
        (tmp_path / "log").chmod(0o666)
        may_use = Path(host) if host.startswith("/") else Path("/nonexistent")
        command[1:1] = ["-u", may_use.owner() if may_use.exists() else "nobody"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(listen_port)
            yield f"postgresql://{url.username}@127.0.0.1:{listen_port}/jobs"
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    pause = threading.Event()
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            pause.wait(0.02)
        else:
            return
    pytest.fail("pgbouncer did not start")


def test_every_verb_through_a_pooler(pooled: str, schema: str) -> None:
    store = PostgresStore(pooled, schema=schema, through_pooler=True, wake_ups=False)
    live_a_life(store)
    store.close()


def test_many_claims_over_few_connections(pooled: str, schema: str) -> None:
    """
    More than the driver takes to prepare a statement, from several clients at once.
    """
    store = PostgresStore(pooled, schema=schema, through_pooler=True, wake_ups=False)
    store.create_many([NewJob(kind="k") for _ in range(200)])

    def work() -> list[str]:
        done = []
        while claim := store.claim_next():
            store.complete(claim.lease)
            done.append(claim.job.id)
        return done

    with ThreadPoolExecutor(6) as pool:
        done = [one for part in pool.map(lambda _: work(), range(6)) for one in part]
    assert (len(done), len(set(done))) == (200, 200)
    store.close()


def test_limits_hold_and_do_not_leak(pooled: str, dsn: str, schema: str) -> None:
    limits = Limits(lock=timedelta(milliseconds=200))
    store = PostgresStore(
        pooled, schema=schema, through_pooler=True, wake_ups=False, limits=limits
    )
    job = store.create(NewJob(kind="k")).job
    with connect(dsn) as holder:
        holder.autocommit = False
        holder.execute(f'SELECT * FROM "{schema}".job FOR UPDATE')
        with pytest.raises(StoreBusy):
            store.cancel(job.id)
        holder.rollback()
    with connect(pooled) as other:
        for name in ("lock_timeout", "statement_timeout", "enable_seqscan"):
            row = other.execute("SELECT current_setting(%s)", [name]).fetchone()
            assert row in {("0",), ("on",)}, "set for the transaction alone"
    store.close()


def test_migrating_through_a_pooler_is_possible(pooled: str, empty_schema: str) -> None:
    migrate.upgrade(pooled, schema=empty_schema)
    assert migrate.current(pooled, schema=empty_schema) == migrate.head()
