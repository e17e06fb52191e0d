"""
The tests' own footing: which PostgreSQL is chosen, and how fast Docker is given up.
"""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.second_postgres import second_postgres
from tests.servers import Choice, Kind

NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """
    Something that answers a ping as a Docker engine does.
    """
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer_once() -> None:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # nobody asked before the listener was closed
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.0 200 OK\r\n\r\nOK")

        thread = threading.Thread(target=answer_once, daemon=True)
        thread.start()
        yield f"unix://{path}"


def test_a_given_dsn_comes_first(engine: str) -> None:
    environ = {
        "JOBSTORE_TEST_DSN": "postgresql://u@h/d",
        "JOBSTORE_TEST_PG_BIN": "/usr/lib/postgresql/15/bin",
        "DOCKER_HOST": engine,
    }
    assert servers.choose(environ) == Choice(
        kind=Kind.GIVEN, value="postgresql://u@h/d"
    )


def test_named_programs_come_before_docker(engine: str) -> None:
    environ = {"JOBSTORE_TEST_PG_BIN": "/pg/bin", "DOCKER_HOST": engine}
    assert servers.choose(environ) == Choice(kind=Kind.PROGRAMS, value="/pg/bin")


def test_a_docker_engine_that_answers_is_used(engine: str) -> None:
    assert servers.choose({"DOCKER_HOST": engine}) == Choice(
        kind=Kind.CONTAINER, value=engine
    )


def test_without_anything_it_is_the_embedded_server() -> None:
    assert servers.choose(NO_DOCKER) == Choice(kind=Kind.EMBEDDED)


def test_an_empty_variable_is_as_good_as_none() -> None:
    environ = {"JOBSTORE_TEST_DSN": "", "JOBSTORE_TEST_PG_BIN": "", **NO_DOCKER}
    assert servers.choose(environ) == Choice(kind=Kind.EMBEDDED)


def test_an_engine_that_never_answers_costs_a_second_at_most(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        began = time.monotonic()
        assert servers.docker_engine({"DOCKER_HOST": f"unix://{path}"}) is None
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "address",
    ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "ssh://somewhere", "nonsense"],
)
def test_an_engine_that_is_not_there_is_no_error(address: str) -> None:
    assert servers.docker_engine({"DOCKER_HOST": address}) is None


def test_a_server_that_is_not_ours_says_that_it_cannot_be_killed(
    tmp_path: Path,
) -> None:
    given = servers.start(
        Choice(kind=Kind.GIVEN, value="postgresql://u:secret@h/d"), tmp_path
    )
    assert given.admin_dsn == "postgresql+psycopg://u:secret@h/d"
    assert not given.can_restart
    with pytest.raises(NotImplementedError, match="JOBSTORE_TEST_DSN cannot be killed"):
        given.kill()
    with pytest.raises(NotImplementedError, match="cannot be restarted"):
        given.restart()
    given.stop()


def _install(folder: Path, major: str) -> Path:
    programs = folder / major / "bin"
    programs.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (programs / name).touch()
    return programs


def test_the_second_postgres_is_the_newest_that_is_not_the_embedded_one(
    tmp_path: Path,
) -> None:
    _install(tmp_path, "9")
    expected = _install(tmp_path, "15")
    _install(tmp_path, "18")
    (tmp_path / "17" / "bin").mkdir(parents=True)  # clients only
    assert second_postgres({}, installed=tmp_path) == expected


def test_the_second_postgres_can_be_named_or_absent(tmp_path: Path) -> None:
    environ = {"JOBSTORE_TEST_PG_BIN": "/pg/bin"}
    assert second_postgres(environ, installed=tmp_path) == Path("/pg/bin")
    assert second_postgres({}, installed=tmp_path) is None
