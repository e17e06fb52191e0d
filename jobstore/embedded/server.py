"""
`EmbeddedServer`: start, share and stop the server of one folder.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg

from jobstore.embedded.account import account_for
from jobstore.embedded.binaries import Binaries, find_binaries
from jobstore.embedded.cluster import Cluster, Postmaster
from jobstore.embedded.errors import EmbeddedFailed
from jobstore.embedded.locks import FileLock
from jobstore.errors import InvalidInput

__all__ = ["EmbeddedServer", "start"]

_DATABASE = "jobstore"
_DEFAULTS = {
    # Clients on this machine come by the socket, whose folder guards it. TCP would
    # be open to every user of the machine.
    "listen_addresses": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# The recovery of a large server may take hours, not days.
_LONGEST_START_SECONDS = 86_400


class EmbeddedServer:
    """
    A PostgreSQL server on a folder, shared by all processes that start it.

        with EmbeddedServer(Path("data")) as server:
            engine = create_engine(server.dsn)

    The first process to start a folder initializes it, if it is new, and launches
    the server; later ones join. `stop` ends the server if nobody else uses it, and
    so does the end of the last process, even by SIGKILL; a server whose guardian was
    killed too is joined by the next start. The data stays in the folder.

    The database is UTF-8 with the C locale. The role ``postgres`` is a superuser and
    needs no password: whoever may enter the socket's folder (you, and root) is let
    in, nobody else. Nothing listens on the network. Started by root, the server runs
    as ``postgres`` or ``nobody``, and no folder's permissions are changed for that.

    The folder must lie on a local disk: file locks on network folders are unreliable.
    Linux and macOS. A minor release may be updated under the data; for a new major
    one, dump from the old and load into a new folder.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        settings: Mapping[str, str] | None = None,
        bin_dir: Path | str | None = None,
        start_timeout: float = 60,
    ) -> None:
        """
        Describe a server; nothing happens before `start`.

        Args:
            data_dir: The folder, made if need be. Any path will do.
            settings: Settings for ``postgres``. Joining a server that runs already
                does not change its settings.
            bin_dir: The folder of ``postgres`` and ``initdb``, if it should not be
                the wheel's; for example ``/usr/lib/postgresql/18/bin``.
            start_timeout: Seconds until a start has failed. Recovery after a crash
                belongs to it.

        Raises:
            InvalidInput: An argument does not fit. *data_dir* must be named: an empty
                one would be wherever the process happens to run.
        """
        _check_path("data_dir", data_dir)
        _check_settings(settings)
        if bin_dir is not None:
            _check_path("bin_dir", bin_dir)
        seconds: object = start_timeout
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
            raise InvalidInput("start_timeout", seconds, "must be a number of seconds")
        if not 0 < seconds <= _LONGEST_START_SECONDS:
            reason = f"must be over 0, and {_LONGEST_START_SECONDS:,} at most"
            raise InvalidInput("start_timeout", seconds, reason)
        self.data_dir = Path(data_dir).absolute()
        self._settings = {**_DEFAULTS, **(settings or {})}
        self._bin_dir = None if bin_dir is None else Path(bin_dir)
        self._start_timeout = start_timeout
        self._in_use: FileLock | None = None
        self._used_by = 0
        self._postmaster: Postmaster | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "started" if self._postmaster else "not started"
        return f"<EmbeddedServer {str(self.data_dir)!r}, {state}>"

    @property
    def dsn(self) -> str:
        """
        A URL of the database ``jobstore``, for SQLAlchemy and for this library.
        """
        return self.dsn_of(_DATABASE)

    @property
    def admin_dsn(self) -> str:
        """
        A URL of the database ``postgres``.
        """
        return self.dsn_of("postgres")

    @property
    def psql_dsn(self) -> str:
        """
        A URL of the database ``jobstore`` for psql and all that uses libpq.
        """
        return self.dsn.replace("postgresql+psycopg://", "postgresql://", 1)

    def dsn_of(self, database: str) -> str:
        """
        Return a URL of *database*, which need not exist.

        Raises:
            EmbeddedFailed: The server is not started.
        """
        if self._postmaster is None:
            message = f"the server in {self.data_dir} is not started"
            raise EmbeddedFailed(message)
        host = quote(self._postmaster.socket_folder, safe="")
        name = quote(database, safe="")
        # The port names the socket's file. Said here, or PGPORT would be asked.
        return f"postgresql+psycopg://postgres@/{name}?host={host}&port=5432"

    @property
    def binaries(self) -> Binaries:
        """
        The programs of this server, ``psql`` and ``pg_basebackup`` among them.

        Raises:
            EmbeddedUnavailable: They are not installed.
        """
        return find_binaries(self._bin_dir)

    def start(self) -> Self:
        """
        Start the server, or join it if it runs already, and wait until it answers.

        Returns:
            This server, whose `dsn` can now be used.

        Raises:
            EmbeddedUnavailable: PostgreSQL is not installed; the message says how.
            EmbeddedFailed: It did not start; the message ends with its log.

        Guarantees:
            Isolation: Processes that start the same folder at the same time take
                turns. One launches the server, the others join.
            Repeat: A second call finds it started; if it has died, starts it again.
        """
        binaries = self.binaries
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            cluster = self._cluster()
            with self._turn(cluster), contextlib.ExitStack() as undo:
                in_use = self._in_use or FileLock(cluster.in_use_lock)
                undo.callback(self._forget, in_use)
                # At once, or after the guardian's look whether anybody is there.
                in_use.acquire("shared", timeout=self._start_timeout)
                self._bring_up(cluster, binaries)
                self._in_use, self._used_by = in_use, os.getpid()
                undo.pop_all()
        except PermissionError as error:
            message = f"the folder belongs to another user: {error}"
            raise EmbeddedFailed(message) from error
        return self

    def stop(self) -> None:
        """
        Stop using the server; end it if nobody else uses it, and wait for that.

        Guarantees:
            Repeat: A second call does nothing. A forked child's call neither.
        """
        in_use, self._in_use = self._in_use, None
        last, self._postmaster = self._postmaster, None
        if in_use is None:
            return
        if self._used_by != os.getpid():
            # A fork shares its parent's lock; trying for more would take that away.
            in_use.close()
            return
        cluster = self._cluster()
        with contextlib.closing(in_use), self._turn(cluster):
            if in_use.acquire("exclusive"):
                self._bring_down(cluster, signal.SIGINT)
                # It may lie in /tmp, where nobody would miss it.
                if last is not None:
                    with contextlib.suppress(OSError):
                        Path(last.socket_folder).rmdir()

    def restart(self) -> None:
        """
        End the server, whoever uses it, and start it again. For tests and upkeep.
        """
        self.kill(signal.SIGINT)
        self.start()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """
        End the server at once, as a crash would, and wait until it is gone.

        It stays down until somebody calls `start`. For tests of what is done then.
        """
        cluster = self._cluster()
        with self._turn(cluster):
            self._bring_down(cluster, how)

    def _forget(self, in_use: FileLock) -> None:
        in_use.close()
        self._in_use = self._postmaster = None

    def _cluster(self) -> Cluster:
        folder = self.data_dir.resolve()
        return Cluster(folder, account_for(folder / "pgdata"))

    @contextlib.contextmanager
    def _turn(self, cluster: Cluster) -> Iterator[None]:
        """
        Hold the lock under which servers of this folder are started and stopped.
        """
        with FileLock(cluster.start_lock) as lock:
            if not lock.acquire("exclusive", timeout=2 * self._start_timeout):
                message = (
                    f"another process is busy starting or stopping {self.data_dir}"
                )
                raise EmbeddedFailed(message)
            yield

    def _bring_up(self, cluster: Cluster, binaries: Binaries) -> None:
        if not cluster.is_initialized:
            cluster.initialize(
                binaries.for_account(cluster.account),
                durable=self._settings.get("fsync") != "off",
            )
        if cluster.major_version() != binaries.major:
            message = (
                f"{self.data_dir} was made by PostgreSQL {cluster.major_version()}, "
                f"and this is {binaries.version}; dump with the old one and load "
                "into a new folder"
            )
            raise EmbeddedFailed(message)
        deadline = time.monotonic() + self._start_timeout
        is_launched = False
        refusal: str | None = ""
        while time.monotonic() < deadline:
            if not cluster.is_alive():
                if is_launched:
                    message = f"PostgreSQL ended while starting:\n{cluster.log_tail()}"
                    raise EmbeddedFailed(message)
                cluster.launch(binaries.for_account(cluster.account), self._settings)
                is_launched = True
            found = cluster.postmaster()
            if found is not None and found.is_ready:
                self._postmaster = found
                refusal = self._refusal()
                if refusal is None:
                    return
            # Starting, or recovering, or on its way down by somebody's order.
            time.sleep(0.02)
        message = (
            f"PostgreSQL in {self.data_dir} did not get ready within "
            f"{self._start_timeout:g} s:\n{refusal}\n{cluster.log_tail()}"
        )
        raise EmbeddedFailed(message)

    def _refusal(self) -> str | None:
        """
        Connect for a proof, and make the database if this is the first time.

        Returns:
            Why the server would not have us; None if all is well.
        """
        dsn = self.admin_dsn.replace("+psycopg", "", 1)
        try:
            with psycopg.connect(
                dsn, autocommit=True, connect_timeout=10
            ) as connection:
                query = "SELECT 1 FROM pg_database WHERE datname = %s"
                if connection.execute(query, [_DATABASE]).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {_DATABASE}")
        except psycopg.OperationalError as error:
            return str(error)
        return None

    def _bring_down(self, cluster: Cluster, how: signal.Signals) -> None:
        for number in (how, signal.SIGQUIT, signal.SIGKILL):
            found = cluster.postmaster()
            if found is not None and cluster.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.pid, number)
            # Its children are waited for as well: they hold the lock too.
            with FileLock(cluster.server_lock) as lock:
                if lock.acquire("exclusive", timeout=self._start_timeout):
                    return
        message = f"PostgreSQL in {self.data_dir} does not end:\n{cluster.log_tail()}"
        raise EmbeddedFailed(message)


def start(
    data_dir: Path | str, *, settings: Mapping[str, str] | None = None
) -> EmbeddedServer:
    """
    Start the server of *data_dir*, or join it; see `EmbeddedServer`.

    Call its `stop` when done, or leave that to the end of the process.
    """
    return EmbeddedServer(data_dir, settings=settings).start()


def _check_path(name: str, value: object) -> None:
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise InvalidInput(name, value, "must be a path")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise InvalidInput(name, value, "must not contain surrogates") from None
    if "\x00" in str(value):
        raise InvalidInput(name, value, "must not contain NUL")


def _check_settings(settings: object) -> None:
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise InvalidInput("settings", type(settings), "must be a mapping of settings")
    for name, value in settings.items():
        if not isinstance(name, str) or not name or "\x00" in name:
            raise InvalidInput("settings", name, "must be the name of a setting")
        if not isinstance(value, str) or "\x00" in value:
            raise InvalidInput(f"settings[{name!r}]", value, "must be a str, as in SQL")
