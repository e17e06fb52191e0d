"""
jobstore web: where it serves, and when it refuses to.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from jobstore.errors import InvalidInput
from jobstore.web import serve
from tests.cli.conftest import Cli

TOKEN = "a token of the tests"  # noqa: S105 - that is what it is


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(cli: Cli, number: signal.Signals) -> None:
    running = cli.start("web", "--listen", "127.0.0.1:0", stderr=None)
    try:
        assert running.stdout is not None
        url = running.stdout.readline().decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        answer = httpx.get(url, trust_env=False)
        assert answer.status_code == 200
        assert "server" not in answer.headers
        lies = {"Host": "evil.example", "X-Forwarded-Host": "localhost"}
        assert httpx.get(url, headers=lies, trust_env=False).status_code == 421
    finally:
        running.send_signal(number)
        running.communicate(timeout=30)
    assert running.returncode == 0


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080"])
def test_a_wider_address_needs_a_token(
    cli: Cli, listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBSTORE_WEB_TOKEN", "")
    ran = cli("web", "--listen", listen)
    assert ran.code == 4
    assert "JOBSTORE_WEB_TOKEN" in ran.err


def test_a_wider_address_with_a_token_is_served(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    running = cli.start(
        "web", "--listen", "0.0.0.0:0", "--token-file", str(file), stderr=None
    )
    try:
        assert running.stdout is not None
        url = running.stdout.readline().decode().strip()
        port = url.removesuffix("/").rpartition(":")[2]
        here = f"http://127.0.0.1:{port}/"
        assert httpx.get(here, trust_env=False).status_code == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        answer = httpx.get(here, headers=bearer, trust_env=False)
        assert answer.status_code == 200
    finally:
        running.terminate()
        running.communicate(timeout=30)


@pytest.mark.parametrize("content", ["", "\n", "short", "\xff" * 20])
def test_a_weak_token_is_refused(cli: Cli, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content.encode("latin-1"))
    ran = cli("web", "--token-file", str(file))
    assert ran.code == 4
    assert "at least 16" in ran.err


@pytest.mark.parametrize(
    "listen",
    (
        " 8080 localhost :8080 localhost: localhost:x localhost:99999 ::1:8080"
        f" \u0663:80 no.such.host.invalid:80 {'a' * 300}:80"
    ).split(" "),
)
def test_where_it_cannot_serve(cli: Cli, listen: str) -> None:
    ran = cli("web", "--listen", listen)
    assert ran.code == 4
    assert "listen=" in ran.err


def test_a_port_that_is_taken_is_told(cli: Cli) -> None:
    _, addresses = serve.resolve("127.0.0.1:0")
    with serve.listening(addresses) as taken:
        ran = cli("web", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert ran.code == 1
    assert "in use" in ran.err


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("[::ffff:10.0.0.1]:1", False),
    ],
)
def test_which_addresses_are_local(listen: str, local: bool) -> None:
    try:
        _, addresses = serve.resolve(listen)
    except InvalidInput:
        pytest.skip("this machine has no such family")
    assert serve.is_local(addresses) == local


def test_without_the_extra_it_says_what_to_install(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError('No module', name='starlette')\n"
    )
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    running = cli.start("web", env={**os.environ, "PYTHONPATH": path})
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert out == b""
    assert b"pip install 'jobstore[web]'" in err


def test_the_library_itself_does_not_need_it(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError\n")
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    subprocess.run(
        [sys.executable, "-m", "jobstore", "--help"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
