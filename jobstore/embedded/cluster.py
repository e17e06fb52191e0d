"""
The folder of one server: what lies in it, and what its files say.

    <folder>/
        pgdata/         PostgreSQL's own, readable by its account alone
        socket/         where clients connect, if the path is short enough
        server.log
        start.lock      held while somebody starts or stops
        in-use.lock     held, shared, by every process that uses the server
        server.lock     held by the server's own processes: it is alive
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jobstore.embedded import guardian
from jobstore.embedded.account import Account
from jobstore.embedded.binaries import Binaries
from jobstore.embedded.errors import EmbeddedFailed
from jobstore.embedded.locks import FileLock

__all__ = ["Cluster", "Postmaster"]

# What a socket's path may be long: 104 bytes with the final NUL on macOS, 108 on Linux.
_LONGEST_SOCKET_PATH = 103
_SOCKET_NAME = ".s.PGSQL.5432"
# The kernel's names for a process's open files; no right to the folders above needed.
_OPEN_FILES = Path("/proc/self/fd")
_LOG_SIZE = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """
    What ``postmaster.pid`` says about the running server.
    """

    pid: int
    socket_folder: str
    is_ready: bool


class Cluster:
    """
    The files of one server, and the two programs that are run on them.
    """

    def __init__(self, folder: Path, account: Account) -> None:
        self.folder = folder
        self.account = account
        self.data = folder / "pgdata"
        self.log = folder / "server.log"
        self.start_lock = folder / "start.lock"
        self.in_use_lock = folder / "in-use.lock"
        self.server_lock = folder / "server.lock"

    @property
    def is_initialized(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def major_version(self) -> str:
        """
        Return the major version that made the data.
        """
        return (self.data / "PG_VERSION").read_text().strip()

    def is_alive(self) -> bool:
        """
        Tell whether any process of the server runs: a fact, not a guess by pid.
        """
        with FileLock(self.server_lock) as lock:
            return not lock.acquire("exclusive")

    def postmaster(self) -> Postmaster | None:
        """
        Read who serves this folder; None while nobody does, or not yet.
        """
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        # Written line by line during start; the status comes last.
        if len(lines) < 8:
            return None
        return Postmaster(
            pid=int(lines[0]),
            socket_folder=lines[4],
            is_ready=lines[7].strip() == "ready",
        )

    def initialize(self, binaries: Binaries, *, durable: bool) -> None:
        """
        Make an empty cluster: UTF-8, C locale, passwords over TCP.

        Raises:
            EmbeddedFailed: initdb said no.
        """
        # Under another name first: a cluster half made by a killed initdb would
        # look like a whole one.
        draft = self.folder / "pgdata.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self.account.own(draft)
        options = [
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--data-checksums",
            # The socket's folder is closed to other users; TCP, once somebody
            # switches it on, is not.
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            *([] if durable else ["--no-sync"]),
        ]
        with self._opened_for_account(draft) as (name, files):
            answer = subprocess.run(  # noqa: S603 - a fixed program, no shell
                [str(binaries.folder / "initdb"), f"--pgdata={name}", *options],
                cwd="/",
                env=_environment(),
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                pass_fds=files,
                **self.account.process_options(),
            )
        if answer.returncode != 0:
            message = f"initdb failed in {self.folder}:\n{answer.stderr.strip()}"
            raise EmbeddedFailed(message)
        draft.rename(self.data)

    def launch(self, binaries: Binaries, settings: Mapping[str, str]) -> None:
        """
        Start the server process; it is not ready yet when this returns.

        Raises:
            EmbeddedFailed: Somebody else's server runs on the data.
        """
        sockets = self._socket_folder()
        self._clear_remains(sockets)
        quoted = str(sockets).replace('"', '""')
        options = {**settings, "unix_socket_directories": f'"{quoted}"', "port": "5432"}
        with (
            FileLock(self.server_lock) as lock,
            self._opened_for_account(self.data) as (name, files),
            self._open_log() as log,
        ):
            if not lock.acquire("exclusive", timeout=5):
                message = f"another server started in {self.folder} at the same time"
                raise EmbeddedFailed(message)
            command = [str(binaries.folder / "postgres"), "-D", str(name)]
            for option, value in options.items():
                command += ["-c", f"{option}={value}"]
            handed_down = [*files, lock.fileno()]
            plan = {
                "command": command,
                "account": self.account.process_options(),
                "files": handed_down,
                "in_use_lock": str(self.in_use_lock),
                "start_lock": str(self.start_lock),
                "sockets": str(sockets),
            }
            subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-I", guardian.__file__, json.dumps(plan)],
                check=True,
                cwd="/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=handed_down,
                # Ctrl-C in the starter's terminal is not meant for the server,
                # which others may be using.
                start_new_session=True,
            )

    def log_tail(self, lines: int = 15) -> str:
        """
        Return the last lines of the server's log.
        """
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _open_log(self) -> BinaryIO:
        """
        Open the log for the server, which inherits it and needs no right to it.
        """
        if self.log.exists() and self.log.stat().st_size > _LOG_SIZE:
            self.log.replace(self.log.with_suffix(".log.old"))
        # Statements may be in it: for our eyes only.
        return open(self.log, "ab", opener=lambda p, f: os.open(p, f, 0o600))

    @contextlib.contextmanager
    def _opened_for_account(self, path: Path) -> Iterator[tuple[Path, list[int]]]:
        """
        Give a name by which the account reaches *path*, and the files it must inherit.

        Root's home is closed to everybody else, and stays so: we open the folder and
        hand it down, and the server names it by the open file.
        """
        if self.account.can_enter(path) or not _OPEN_FILES.exists():
            yield path, []
            return
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield _OPEN_FILES / str(opened), [opened]
        finally:
            os.close(opened)

    def _socket_folder(self) -> Path:
        """
        Make the folder for the socket, open to the account alone, and return it.
        """
        folder = self.folder / "socket"
        socket = os.fsencode(folder / _SOCKET_NAME)
        # A comma separates hosts in a DSN, and nothing can quote it there.
        fits = len(socket) <= _LONGEST_SOCKET_PATH and b"," not in socket
        if not fits or not self.account.can_enter(self.folder):
            name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
            place = Path(tempfile.gettempdir())
            if len(os.fsencode(place)) > 60 or "," in str(place):
                place = Path("/tmp")  # noqa: S108 - checked below
            folder = place / f"jobstore-{self.account.uid}-{name}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            self.account.own(folder)
        # In a folder that is open to all, somebody may have been there before us.
        found = folder.lstat()
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != self.account.uid
            or stat.S_IMODE(found.st_mode) & 0o077
        ):
            message = f"{folder} belongs to somebody else, or is open to others"
            raise EmbeddedFailed(message)
        return folder

    def _clear_remains(self, sockets: Path) -> None:
        """
        Remove what a killed server left, which would keep the next from starting.

        PostgreSQL judges a stale pid file by whether a process with that number
        exists. In a container there often is one: its numbers begin anew. We know
        better, by the lock, that none of our servers is alive.
        """
        pid_file = self.data / "postmaster.pid"
        found = self.postmaster()
        if found is not None and _works_in(found.pid, self.data):
            message = (
                f"{self.data} is served by process {found.pid}, which was not "
                "started by jobstore; stop it, or use its DSN"
            )
            raise EmbeddedFailed(message)
        if sys.platform == "linux":  # elsewhere we can't tell, and PostgreSQL decides
            pid_file.unlink(missing_ok=True)
        (sockets / _SOCKET_NAME).unlink(missing_ok=True)
        (sockets / f"{_SOCKET_NAME}.lock").unlink(missing_ok=True)


def _works_in(pid: int, folder: Path) -> bool:
    """
    Tell whether process *pid* has *folder* as its current one; servers do.
    """
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        # Gone, or not ours to look at and therefore no server on our data.
        return False


def _environment() -> dict[str, str]:
    """
    Return the little of our environment that concerns a server.

    Not the starter's secrets, which anybody who may run programs in the database
    could read there; not ``PG…`` and ``TZ``, which would change it from outside.
    """
    names = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    # The log and the error messages in one language, whoever started the server.
    environment["LC_ALL"] = "C"
    return environment
