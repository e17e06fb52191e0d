"""
``make demo``: submit a PDF, fan it out, kill a worker, recover, join, and show it all.
"""

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from pypdf import PdfReader
from pypdf.errors import PyPdfError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from demo.handlers import text_of
from jobstore import (
    Job,
    JobClass,
    JobStatus,
    JobstoreError,
    NewJob,
    PostgresStore,
    migrate,
)
from jobstore.embedded import EmbeddedServer

_FOLDER = Path(".demo")
_DOCUMENT = Path(__file__).with_name("document.pdf")
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.05

Process = subprocess.Popen[bytes]

console = Console(highlight=False)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else _DOCUMENT
    pdf, pages = _read(path)
    console.print(f"[bold]1[/] starting PostgreSQL in {_FOLDER}/ …")
    with EmbeddedServer(_FOLDER) as server:
        migrate.upgrade(server.dsn)
        store = PostgresStore(server.dsn)
        with contextlib.closing(store):
            job = _submit(store, path, pdf, pages)
            with _workers(server.dsn, ["alpha", "beta"]) as workers:
                _kill_in_the_middle(store, job, "alpha", workers["alpha"])
                done = _watch(store, job, pages)
            _verify(done, pdf)
            _show(store, done)
        psql = server.binaries.folder / "psql"
        query = f"SELECT explain_job('{job.id}')"
        console.print(
            "\nLook for yourself, while `jobstore up .demo` keeps the server running:\n"
            f"  PGOPTIONS='-c search_path=jobstore' {psql} "
            f"{shlex.quote(server.psql_dsn)} -c {shlex.quote(query)}",
            soft_wrap=True,
            markup=False,
        )


def _read(path: Path) -> tuple[bytes, int]:
    """
    Read the document, or say what is wrong with it.
    """
    try:
        pdf = path.read_bytes()
    except OSError as error:
        _fail(f"cannot read {path}: {error.strerror}")
    try:
        reader = PdfReader(io.BytesIO(pdf))
        if reader.is_encrypted:
            _fail(f"{path} is encrypted")
        pages = len(reader.pages)
    except (PyPdfError, ValueError, KeyError, OSError) as error:
        _fail(f"{path} is no PDF that can be read: {error}")
    if not pages:
        _fail(f"{path} has no pages")
    return pdf, pages


def _submit(store: PostgresStore, path: Path, pdf: bytes, pages: int) -> Job:
    job, _ = store.create(
        NewJob(
            kind="document",
            payload=pdf,
            content_type="application/pdf",
            job_class=JobClass.INTERACTIVE,
        )
    )
    console.print(
        f"[bold]2[/] submitted {path.name}, {len(pdf):,} bytes, {pages} pages,"
        f" as interactive job {job.id}"
    )
    return job


@contextlib.contextmanager
def _workers(
    dsn: str, names: list[str]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """
    Run two worker processes, and see to it that none is left.
    """
    workers = {
        name: subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "demo.worker", name],
            env={**os.environ, "JOBSTORE_DSN": dsn},
        )
        for name in names
    }
    try:
        yield workers
    finally:
        for one in workers.values():
            one.send_signal(signal.SIGTERM)
        for one in workers.values():
            try:
                one.wait(timeout=20)
            except subprocess.TimeoutExpired:
                one.kill()


def _kill_in_the_middle(
    store: PostgresStore, job: Job, name: str, worker: Process
) -> None:
    """
    Kill a worker while it holds pages.

    It is stopped first, so that what is seen in its hands is there when it dies.
    """
    console.print(f"[bold]3[/] two workers are at it; {name} is to die …")

    def holds_pages() -> bool:
        if store.get(job.id).status is not JobStatus.WAITING:
            return False
        worker.send_signal(signal.SIGSTOP)
        held = store.list(worker=name, kind="page", status=JobStatus.PROCESSING)
        if not held:
            worker.send_signal(signal.SIGCONT)
            return store.get(job.id).finished_at is not None
        worker.kill()
        numbers = ", ".join(str(one.pages[0] + 1) for one in held)
        console.print(f"  [red]kill -9[/] {name}, with page {numbers} in hand")
        return True

    _wait_for(f"{name} to hold a page", holds_pages)


def _watch(store: PostgresStore, job: Job, pages: int) -> Job:
    console.print("[bold]4[/] the other one goes on, and recovers those pages:")
    with Progress(
        TextColumn("  pages"), BarColumn(), MofNCompleteColumn(), console=console
    ) as progress:
        bar = progress.add_task("pages", total=pages)

        def ended() -> bool:
            now = store.get(job.id)
            progress.update(bar, completed=now.children_total - now.children_open)
            return now.finished_at is not None

        _wait_for("the document to be done", ended)
    return store.get(job.id)


def _verify(job: Job, pdf: bytes) -> None:
    if job.status is not JobStatus.COMPLETED:
        _fail(f"the document ended {job.status}: {job.error_code} {job.error_message}")
    if (job.result or b"").decode() != text_of(pdf):
        _fail("the joined text is not that of the document")
    words = len((job.result or b"").split())
    console.print(
        f"[bold]5[/] joined {words:,} words: the same as read in one go. "
        "[green]Nothing lost, nothing twice.[/]"
    )


def _show(store: PostgresStore, job: Job) -> None:
    table = Table(
        "job", "pages", "status", "claims", "charged", "finished by", "history"
    )
    for one in [job, *store.list_children(job.id, with_result=False)]:
        history = ", ".join(
            f"{attempt.outcome} ({attempt.worker})"
            for attempt in store.attempts(one.id)
        )
        table.add_row(
            one.kind,
            ", ".join(str(number + 1) for number in one.pages),
            str(one.status),
            str(one.fence),
            str(one.attempts),
            one.worker,
            f"[yellow]{history}[/]" if "expired" in history else history,
        )
    console.print(table)


def _wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            _fail(f"waited {_PATIENCE_SECONDS:.0f} s in vain for {what}")
        time.sleep(_LOOK_SECONDS)


def _fail(message: str) -> NoReturn:
    console.print(f"demo: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except JobstoreError as error:
        _fail(str(error))
