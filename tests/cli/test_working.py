"""
Working from the shell: with a command for each job, and with handlers of a module.
"""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobstore import Job, JobStatus, NewJob, PostgresStore
from tests.cli.conftest import ROOT, Cli

PATIENCE_SECONDS = 60.0
QUICK = ["--poll-every", "50ms", "--until-empty"]


@pytest.fixture
def work(cli: Cli, store: PostgresStore) -> Callable[..., Job]:
    """
    Submit one job, work with a shell script until all is done, return the job.
    """

    def run(script: str, *flags: str, payload: bytes = b"") -> Job:
        new = NewJob(kind="k", payload=payload, max_attempts=1, pages=(0, 7))
        job = store.create(new).job
        cli.ok("work", *QUICK, *flags, "--", "sh", "-c", script)
        return store.get(job.id)

    return run


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("exit 0", JobStatus.COMPLETED, None),
        ("echo bad >&2; exit 65", JobStatus.FAILED, "EXIT_65"),
        ("exit 75", JobStatus.FAILED, "EXIT_75"),
        ("exit 3", JobStatus.FAILED, "EXIT_3"),
        ("kill -9 $$", JobStatus.FAILED, "SIGNAL_9"),
        ("kill -35 $$", JobStatus.FAILED, "SIGNAL_35"),
    ],
)
def test_the_exit_code_decides(
    work: Callable[..., Job], script: str, status: JobStatus, code: str | None
) -> None:
    job = work(script)
    assert (job.status, job.error_code) == (status, code)
    if "bad" in script:
        assert job.error_message == "bad"


def test_a_large_payload_goes_both_ways(work: Callable[..., Job]) -> None:
    payload = bytes(range(256)) * 20_000
    assert work("cat", payload=payload).result == payload


def test_what_is_left_behind_does_not_keep_the_job(work: Callable[..., Job]) -> None:
    assert work("sleep 1000 & echo done").result == b"done\n"


def test_a_command_may_take_only_so_long(work: Callable[..., Job]) -> None:
    job = work("sleep 1000", "--timeout", "100ms")
    assert (job.status, job.error_code) == (JobStatus.FAILED, "TIMEOUT")


def test_what_the_command_finds_in_its_environment(
    work: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    monkeypatch.setenv("JOBSTORE_PAGES", "99")
    job = work("env")
    lines = (job.result or b"").decode().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert found["JOBSTORE_JOB_ID"] == job.id
    assert found["JOBSTORE_KIND"] == "k"
    assert found["JOBSTORE_ATTEMPT"] == found["JOBSTORE_MAX_ATTEMPTS"] == "1"
    assert found["JOBSTORE_PAGES"] == "0,7"
    assert found["JOBSTORE_PARENT_ID"] == ""
    assert "JOBSTORE_DSN" not in found
    assert "PGPASSWORD" not in found


def test_no_such_program(cli: Cli) -> None:
    ran = cli("work", "--", "no-such-program-anywhere")
    assert ran.code == 4
    assert "no-such-program-anywhere" in ran.err


def test_handlers_of_a_module(
    cli: Cli, store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work_of_ours.py").write_text(
        "handlers = {'k': lambda context: context.payload().data.upper()}\n"
        "empty = {}\n"
        "wrong = {'k': 3}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    job = store.create(NewJob(kind="k", payload=b"abc")).job
    cli.ok("work", *QUICK, "work_of_ours:handlers")
    assert store.get(job.id).result == b"ABC"
    for bad in ("none:x", "work_of_ours:none", "work_of_ours:empty"):
        assert cli("work", bad).code == 2
    assert cli("work", "work_of_ours:wrong").code == 2
    assert cli("work", "--kind", "k", "work_of_ours:handlers").code == 2
    behind = cli("work", "work_of_ours:handlers", "--queue", "q")
    assert behind.code == 2
    assert "before" in behind.err


def test_options_of_the_command_are_its_own(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k")).job
    cli.ok("work", *QUICK, "echo", "--queue", "x", "--json")
    assert store.get(job.id).result == b"--queue x --json\n"


def test_cancelling_ends_the_command(
    cli: Cli, store: PostgresStore, tmp_path: Path
) -> None:
    job = store.create(NewJob(kind="k")).job
    note = tmp_path / "started"
    flags = [*QUICK, "--visibility-timeout", "1s"]
    script = f"touch {note}; sleep 1000"
    with cli.start("work", *flags, "--", "sh", "-c", script) as program:
        pause = threading.Event()
        while not note.exists():
            pause.wait(0.05)
        store.cancel(job.id)
        program.communicate()
    assert program.returncode == 0
    assert store.get(job.id).status is JobStatus.CANCELLED


@pytest.mark.parametrize("on_term", ["", "trap '' TERM; "], ids=["usual", "stubborn"])
def test_a_killed_worker_leaves_no_command(
    cli: Cli, store: PostgresStore, tmp_path: Path, on_term: str
) -> None:
    store.create(NewJob(kind="k"))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # It is fed only when it is on the leash.
    script = f"{on_term}exec 9> {fifo}; cat; echo started >&9; sleep 1000; true"
    with (
        cli.start("work", *QUICK, "--", "sh", "-c", script) as program,
        fifo.open("rb", buffering=0) as of_command,
    ):
        assert of_command.read(100) == b"started\n"
        program.kill()
        ready, _, _ = select.select([of_command], [], [], PATIENCE_SECONDS)
        assert ready, "the command goes on without its worker"
        assert of_command.read(100) == b"", "all that had it open have ended"


def test_a_leash_that_was_cut_is_followed_by_another(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = ["sh", "-c", f"exec 9> {fifo}; echo started >&9; sleep 1000; true"]
    program = f"""
import os, signal, subprocess
from jobstore.worker.leash import leash
commands = [subprocess.Popen({command}, start_new_session=True) for _ in range(2)]
with leash.held(commands[0].pid):
    first = leash._pipe
    theirs, leash._pipe = os.pipe()
    os.close(theirs)  # as if the program behind it had been killed
    with leash.held(commands[1].pid):
        open({str(fifo)!r}, "w").write("held\\n")
        signal.pause()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        subprocess.Popen([sys.executable, "-c", program], env=environment) as worker,
        fifo.open("rb", buffering=0) as of_commands,
    ):
        heard = b""
        while heard.count(b"\n") < 3:
            heard += of_commands.read(100)
        worker.kill()
        ready, _, _ = select.select([of_commands], [], [], PATIENCE_SECONDS)
        assert ready, "a command goes on without its worker"
        assert of_commands.read(100) == b""
