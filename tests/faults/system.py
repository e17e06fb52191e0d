"""
A PostgreSQL of its own, and real processes on it, until they are checked.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import sqlalchemy

from jobstore import migrate
from tests import servers
from tests.faults.checker import Violation, check
from tests.faults.history import Change, Final, History, read
from tests.proxy import Proxy

__all__ = ["PATIENCE_SECONDS", "Process", "System", "running", "wait_until"]

PATIENCE_SECONDS = 60.0

# In the transaction that makes the change, and while its row is locked.
TRIGGER = """
CREATE TABLE public.change (
    seq bigserial, job_id text, before text, after text, fence bigint,
    instant timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.change (job_id, before, after, fence) VALUES (
        NEW.id, CASE TG_OP WHEN 'INSERT' THEN '' ELSE OLD.status END,
        NEW.status, NEW.fence);
    RETURN NULL; END $$;
CREATE TRIGGER noted_insert AFTER INSERT ON faults.job
    FOR EACH ROW EXECUTE FUNCTION public.note();
CREATE TRIGGER noted_update AFTER UPDATE ON faults.job FOR EACH ROW
    WHEN (OLD.status <> NEW.status OR OLD.fence <> NEW.fence)
    EXECUTE FUNCTION public.note();
"""


class Process:
    """
    A worker or a submitter.
    """

    def __init__(self, role: str, dsn: str, folder: Path, name: str, seed: int) -> None:
        self.name = name
        self._log = (folder / f"{name}.log").open("wb")
        self.popen = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.faults.processes"),
                *(role, dsn, str(folder), name, str(seed)),
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def wait_ready(self) -> None:
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == b"ready\n", self.name

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """
        End it and return its exit code.
        """
        # Without this, one that was stopped would not hear the other.
        with contextlib.suppress(ProcessLookupError):
            self.send(number)
            self.send(signal.SIGCONT)
        try:
            self.popen.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()
            raise
        finally:
            self._log.close()
        return self.popen.returncode


class System:
    """
    What faults are put on.
    """

    def __init__(self, server: servers.LocalServer, folder: Path, seed: int) -> None:
        self.server = server
        self.folder = folder
        self.seed = seed
        self.dsn = server.embedded.dsn
        url = sqlalchemy.make_url(self.dsn)
        host = unquote(str(url.query["host"]))
        self.proxy = Proxy(f"{host}/.s.PGSQL.5432")
        proxied = url.set(host="127.0.0.1", port=self.proxy.port, query={})
        self.proxied = proxied.render_as_string(hide_password=False)
        self.workers: list[Process] = []
        self.submitters: list[Process] = []
        self._started = 0
        migrate.upgrade(self.dsn, schema="faults")
        with servers.connect(self.dsn) as admin:
            admin.execute(TRIGGER.encode())

    def start(self, workers: int = 0, submitters: int = 0) -> None:
        made = [self._process("worker") for _ in range(workers)]
        self.workers += made
        made += [self._process("submitter") for _ in range(submitters)]
        self.submitters += made[workers:]
        for process in made:
            process.wait_ready()

    def replace(self, worker: Process) -> None:
        """
        Start another in the place of one that was killed.
        """
        self.workers.remove(worker)
        self.start(workers=1)

    def ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with servers.connect(self.dsn) as admin:
            return admin.execute(query.encode(), values).fetchall()

    def count(self, query: str, *values: object) -> int:
        return int(str(self.ask(f"SELECT count(*) FROM {query}", *values)[0][0]))

    def ended(self) -> int:
        return self.count("faults.job WHERE finished_at IS NOT NULL")

    def progress(self, jobs: int = 30) -> None:
        """
        Wait until so many more jobs have ended.
        """
        goal = self.ended() + jobs
        wait_until(lambda: self.ended() >= goal, f"{jobs} more jobs to end")

    def finish(self) -> tuple[History, list[Violation]]:
        """
        End the submitters, drain the queue, end the workers, check all.
        """
        codes = [one.end() for one in self.submitters]
        is_open = "faults.job WHERE finished_at IS NULL"
        wait_until(lambda: self.count(is_open) == 0, "the queue to be drained")
        codes += [one.end() for one in self.workers]
        self.submitters, self.workers = [], []
        assert set(codes) == {0}, f"a process died by itself: {codes}"
        history = self.history()
        return history, check(history)

    def history(self) -> History:
        changes = self.ask(
            "SELECT job_id, before, after, fence, extract(epoch FROM instant)::float8"
            " FROM public.change ORDER BY seq"
        )
        names = ("job_id", "before", "after", "fence", "instant")
        jobs = self.ask(
            "SELECT id, status, fence, convert_from(result, 'UTF8'), parent_id,"
            " children_total, children_open FROM faults.job"
        )
        fields = (
            "status",
            "fence",
            "result",
            "parent_id",
            "children_total",
            "children_open",
        )
        return History(
            records=read(self.folder),
            changes=tuple(
                Change(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]
                for row in changes
            ),
            final={
                str(job_id): Final(**dict(zip(fields, row, strict=True)))  # type: ignore[arg-type]
                for job_id, *row in jobs
            },
        )

    def close(self) -> None:
        for process in [*self.workers, *self.submitters]:
            process.end(signal.SIGKILL)
        self.proxy.close()

    def _process(self, role: str) -> Process:
        self._started += 1
        name, seed = f"{role}-{self._started}", self.seed + self._started
        return Process(role, self.proxied, self.folder, name, seed)


@contextlib.contextmanager
def running(folder: Path, seed: int = 0) -> Iterator[System]:
    """
    Bring up a server without jobs and without processes.
    """
    logs = folder / "logs"
    logs.mkdir()
    choice = servers.choose({k: v for k, v in os.environ.items() if "DSN" not in k})
    server = servers.start_local(choice, folder / "postgresql")
    try:
        system = System(server, logs, seed)
        with contextlib.closing(system):
            yield system
    finally:
        server.stop()


def wait_until(
    is_so: Callable[[], bool], what: str, patience: float = PATIENCE_SECONDS
) -> None:
    """
    Look again and again, with a limit: the wait is for the state, not for time.
    """
    pause = threading.Event()
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        pause.wait(0.02)
