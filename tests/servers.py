"""
The PostgreSQL that the tests run on: one of four, chosen by what is at hand.

1. ``JOBSTORE_TEST_DSN``: a server that is already there. Its role must be allowed
   to make databases and roles.
2. ``JOBSTORE_TEST_PG_BIN``: a server started from these programs, for example
   ``/usr/lib/postgresql/15/bin``.
3. A container, if a Docker engine answers within a second.
4. The embedded server of the wheel. Needs nothing but ``pip install``.

What is asked for by name comes before what is found, and nothing falls back
silently from what was asked for.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from jobstore.embedded import EmbeddedServer

IMAGE = "postgres:18"

# Explicit, so that nobody wonders what the tests ran with. They lose nothing in a
# crash of PostgreSQL, which is all that they try; only the machine's would hurt.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # Tests turn autovacuum off for a table where it would be in the way.
    "autovacuum": "on",
}


class Kind(StrEnum):
    GIVEN = "the server of JOBSTORE_TEST_DSN"
    PROGRAMS = "a server from the programs in JOBSTORE_TEST_PG_BIN"
    CONTAINER = f"a container of {IMAGE}"
    EMBEDDED = "the embedded server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """
    Which server to use, and the value it was asked for with.
    """

    kind: Kind
    value: str = ""

    def __str__(self) -> str:
        return str(self.kind)


class Server(Protocol):
    """
    A running server.
    """

    kind: Kind

    @property
    def admin_dsn(self) -> str:
        """Return a DSN of a role that may make databases and roles."""

    @property
    def can_restart(self) -> bool:
        """Tell whether `restart` and `kill` work here."""

    def restart(self) -> None:
        """End it in order and start it again."""

    def kill(self) -> None:
        """End it as a crash would; `restart` brings it back."""

    def stop(self) -> None:
        """Let go of it."""


@dataclass(kw_only=True)
class RunningServer:
    """
    A server that is not ours to restart: given, or in a container.
    """

    kind: Kind
    admin_dsn: str
    ended: contextlib.ExitStack
    can_restart: bool = False

    def restart(self) -> None:
        raise NotImplementedError(f"{self.kind} cannot be restarted")

    def kill(self) -> None:
        raise NotImplementedError(f"{self.kind} cannot be killed")

    def stop(self) -> None:
        self.ended.close()


@dataclass(kw_only=True)
class LocalServer:
    """
    A server that the tests started themselves.
    """

    kind: Kind
    embedded: EmbeddedServer
    can_restart: bool = True

    @property
    def admin_dsn(self) -> str:
        return self.embedded.admin_dsn

    def restart(self) -> None:
        self.embedded.restart()

    def kill(self) -> None:
        self.embedded.kill()

    def stop(self) -> None:
        self.embedded.stop()


def choose(environ: Mapping[str, str] = os.environ) -> Choice:
    """
    Choose the server; see the module's text for the order.
    """
    if dsn := environ.get("JOBSTORE_TEST_DSN"):
        return Choice(kind=Kind.GIVEN, value=dsn)
    if programs := environ.get("JOBSTORE_TEST_PG_BIN"):
        return Choice(kind=Kind.PROGRAMS, value=programs)
    if engine := docker_engine(environ):
        return Choice(kind=Kind.CONTAINER, value=engine)
    return Choice(kind=Kind.EMBEDDED)


def start(choice: Choice, folder: Path) -> Server:
    """
    Start the server of *choice*; a local one on *folder*, shared with other processes.
    """
    match choice.kind:
        case Kind.GIVEN:
            url = make_url(choice.value).set(drivername="postgresql+psycopg")
            dsn = url.render_as_string(hide_password=False)
            return RunningServer(
                kind=choice.kind, admin_dsn=dsn, ended=contextlib.ExitStack()
            )
        case Kind.CONTAINER:
            return _start_container(choice.value)
        case Kind.PROGRAMS | Kind.EMBEDDED:
            return start_local(choice, folder)


def start_local(choice: Choice, folder: Path) -> LocalServer:
    """
    Start a server on *folder* from the programs of *choice*, or else the wheel's.
    """
    programs = Path(choice.value) if choice.kind is Kind.PROGRAMS else None
    embedded = EmbeddedServer(folder, settings=SETTINGS, bin_dir=programs)
    return LocalServer(kind=choice.kind, embedded=embedded.start())


def docker_engine(
    environ: Mapping[str, str] = os.environ, *, patience: float = 1.0
) -> str | None:
    """
    Return the address of a Docker engine that answers, or None, within *patience*.

    Without Docker's own library: that retries, and reads a user's configuration.
    """
    if named := environ.get("DOCKER_HOST"):
        candidates = [named]
    else:
        candidates = [
            "unix:///var/run/docker.sock",
            f"unix://{environ.get('XDG_RUNTIME_DIR', '/nowhere')}/docker.sock",
            f"unix://{environ.get('HOME', '/nowhere')}/.docker/run/docker.sock",
        ]
    deadline = time.monotonic() + patience
    for address in candidates:
        remaining = deadline - time.monotonic()
        if remaining > 0 and _pings(address, remaining):
            return address
    return None


def _pings(address: str, patience: float) -> bool:
    parts = urlsplit(address)
    try:
        if parts.scheme == "unix":
            engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        elif parts.scheme in {"tcp", "http"} and parts.hostname:
            engine = socket.create_connection(
                (parts.hostname, parts.port or 2375), timeout=patience
            )
        else:
            return False  # ssh and TLS: name the server by JOBSTORE_TEST_DSN
        with engine:
            engine.settimeout(patience)
            if parts.scheme == "unix":
                engine.connect(parts.path)
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in engine.recv(64)
    except OSError:
        return False


def _start_container(engine: str) -> RunningServer:
    os.environ.setdefault("DOCKER_HOST", engine)
    # Only here: it looks for an engine while it is imported.
    from testcontainers.community.postgres import PostgresContainer

    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    container = PostgresContainer(
        IMAGE,
        username="postgres",
        password=secrets.token_hex(8),
        dbname="jobstore",
        driver="psycopg",
    ).with_command(f"postgres {options}")
    ended = contextlib.ExitStack()
    ended.enter_context(container)
    return RunningServer(
        kind=Kind.CONTAINER, admin_dsn=container.get_connection_url(), ended=ended
    )


def connect(dsn: str) -> "psycopg.Connection[tuple[object, ...]]":
    """
    Connect by a DSN of ours, committing each statement.
    """
    plain = make_url(dsn).set(drivername="postgresql")
    return psycopg.connect(
        plain.render_as_string(hide_password=False), autocommit=True, connect_timeout=10
    )


def major_version(dsn: str) -> int:
    with connect(dsn) as connection:
        return connection.info.server_version // 10000


@contextlib.contextmanager
def created_database(admin_dsn: str) -> Iterator[str]:
    """
    Make an empty database for a while, and give its DSN.
    """
    name = f"jobstore_test_{secrets.token_hex(6)}"
    with connect(admin_dsn) as admin:
        # template0 and C: what the order of ids rests on must not hang on the locale
        # of the server that the tests were given.
        admin.execute(
            sql.SQL(
                "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
            ).format(sql.Identifier(name))
        )
    try:
        url = make_url(admin_dsn).set(database=name)
        yield url.render_as_string(hide_password=False)
    finally:
        with connect(admin_dsn) as admin:
            admin.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(
                    sql.Identifier(name)
                )
            )


@contextlib.contextmanager
def created_role(dsn: str, *, may_create: bool = False) -> Iterator[str]:
    """
    Make an ordinary login role for a while, and give *dsn* as it would use it.

    Args:
        dsn: A superuser's DSN of the database that the role will work in.
        may_create: Whether it may create schemas there.
    """
    name = f"jobstore_test_{secrets.token_hex(6)}"
    password = secrets.token_hex(8)
    url = make_url(dsn)
    role = sql.Identifier(name)
    with connect(dsn) as admin:
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER PASSWORD {}").format(
                role, sql.Literal(password)
            )
        )
        if may_create:
            database = sql.Identifier(url.database or "")
            admin.execute(
                sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, role)
            )
    try:
        yield url.set(username=name, password=password).render_as_string(
            hide_password=False
        )
    finally:
        with connect(dsn) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE usename = %s",
                [name],
            )
            admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            admin.execute(sql.SQL("DROP ROLE {}").format(role))
