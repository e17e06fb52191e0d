"""
``make demo``: submit a PDF, fan it out, kill a worker, recover, join, and show it all.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from demo.documents import SHIPPED, Document, Unreadable, read_document
from demo.handlers import joined
from demo.report import by_hand, runs_table, workers_table
from demo.workers import DemoFailed, WorkerProcess, running, wait_for
from jobstore import (
    AttemptOutcome,
    Job,
    JobClass,
    JobStatus,
    JobstoreError,
    NewJob,
    PostgresStore,
    migrate,
)
from jobstore.embedded import EmbeddedServer
from jobstore.lifecycle import OPEN

_FOLDER = Path(".demo")
_NAMES = ("alpha", "beta")
# Without the pace, a page would take milliseconds: shared out over all pages, so that
# the whole takes about as long whatever the document.
_PACED_SECONDS = 12.0
_LONGEST_PACE_SECONDS = 1.5
# Two rounds for two workers with two hands each. With fewer, all may be in hand at
# once, and none done before the others.
_FEW_PAGES = 8
_FORGOTTEN = timedelta(minutes=10)


class TooQuick(Exception):
    """
    The work was done before a worker could be killed at it: the machine is busy.
    """


console = Console(highlight=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """
    Run the demonstration; return the exit code.
    """
    if len(arguments) > 1:
        return _failed("give one FILE, or none for the document that is shipped")
    path = Path(arguments[0]).expanduser() if arguments else SHIPPED
    try:
        document = read_document(path)
        _demonstrate(document)
    except (Unreadable, DemoFailed, JobstoreError) as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        errors.print("demo: interrupted")
        return 130
    return 0


def _demonstrate(document: Document) -> None:
    console.print(f"[bold]1[/] starting PostgreSQL in {_FOLDER}/ …")
    with EmbeddedServer(_FOLDER) as server:
        migrate.upgrade(server.dsn)
        with contextlib.closing(PostgresStore(server.dsn)) as store:
            for slower in (1, 2, 4):
                try:
                    done, dead, held = _run(store, server.dsn, document, slower)
                    break
                except TooQuick as error:
                    console.print(f"  {error}; once more, and slower")
            else:
                raise DemoFailed("nobody could be killed in the middle of the work")
            _verify(store, done, document, dead, held)
            console.print(runs_table(store, done), workers_table(store, done, dead))
        console.print(by_hand(server, _FOLDER, done), soft_wrap=True, markup=False)


def _run(
    store: PostgresStore, dsn: str, document: Document, slower: int
) -> tuple[Job, WorkerProcess, list[Job]]:
    """
    Have it done by two workers, and kill one; return the ended job, the dead worker
    and the pages that it held.
    """
    job = _submit(store, document)
    patience = slower * (60.0 + document.pages)
    pace = min(_LONGEST_PACE_SECONDS, _PACED_SECONDS / document.pages)
    with running(
        _NAMES, dsn=dsn, queue=job.queue, pace_seconds=slower * pace
    ) as workers:
        dead, held = _kill_in_the_middle(store, job, document, workers, patience)
        done = _watch(store, job, document, workers, patience)
    return done, dead, held


def _submit(store: PostgresStore, document: Document) -> Job:
    job, _ = store.create(
        NewJob(
            kind="document",
            payload=document.pdf,
            content_type="application/pdf",
            job_class=JobClass.INTERACTIVE,
            # A queue of its own: workers of another run leave it alone.
            queue=f"demo-{os.getpid()}-{secrets.token_hex(3)}",
        )
    )
    for other in store.list(kind="document", status=OPEN, with_result=False):
        # What an interrupted run left behind.
        if other.created_at < job.created_at - _FORGOTTEN:
            store.cancel(other.id, reason="its demonstration was interrupted")
    console.print(
        f"[bold]2[/] submitted {escape(document.path.name)}, "
        f"{len(document.pdf):,} bytes, {_counted(document.pages)}, "
        f"as interactive job\n  {job.id}",
        soft_wrap=True,
    )
    return job


def _pages_of(
    store: PostgresStore, job: Job, worker: WorkerProcess, status: JobStatus
) -> list[Job]:
    return store.list(
        queue=job.queue,
        kind="page",
        worker=worker.name,
        status=status,
        oldest_first=True,
        with_result=False,
    )


def _is_in_the_middle(
    store: PostgresStore, job: Job, document: Document, worker: WorkerProcess
) -> bool:
    """
    Whether the worker holds pages, and has done some if there are enough for that.
    """
    if not _pages_of(store, job, worker, JobStatus.PROCESSING):
        return False
    return document.pages <= _FEW_PAGES or bool(
        _pages_of(store, job, worker, JobStatus.COMPLETED)
    )


def _kill_in_the_middle(
    store: PostgresStore,
    job: Job,
    document: Document,
    workers: Sequence[WorkerProcess],
    patience_seconds: float,
) -> tuple[WorkerProcess, list[Job]]:
    """
    Kill a worker when a third of the pages is done; return it and what it held.

    Raises:
        TooQuick: The work was done before that.
    """
    console.print(
        f"[bold]3[/] workers {' and '.join(_NAMES)} are at it; one is to die …"
    )
    enough = 0 if document.pages <= _FEW_PAGES else document.pages // 3
    killed: list[WorkerProcess] = []

    def has_died() -> bool:
        now = store.get(job.id)
        if now.finished_at is not None:
            raise TooQuick("all was done before anybody could be killed")
        done = now.children_total - now.children_open
        if now.status is JobStatus.WAITING and done >= enough:
            for one in workers:
                is_so = partial(_is_in_the_middle, store, job, document, one)
                if is_so() and one.kill_if(is_so):
                    killed.append(one)
                    return True
        return False

    wait_for(
        "a worker to hold pages",
        has_died,
        workers=workers,
        patience_seconds=patience_seconds,
    )
    (dead,) = killed
    # A dead process finishes nothing any more: these are for others to recover.
    held = _pages_of(store, job, dead, JobStatus.PROCESSING)
    if not held:
        raise TooQuick(f"what {dead.name} held was done in its last moment")
    console.print(f"  [red]kill -9[/] {dead.name}, with {_pages(held)} in hand")
    return dead, held


def _watch(
    store: PostgresStore,
    job: Job,
    document: Document,
    workers: Sequence[WorkerProcess],
    patience_seconds: float,
) -> Job:
    left = ", ".join(one.name for one in workers if not one.is_killed)
    console.print(f"[bold]4[/] {left} goes on, and recovers what the dead one held:")
    with Progress(
        TextColumn("  pages"), BarColumn(), MofNCompleteColumn(), console=console
    ) as progress:
        bar = progress.add_task("pages", total=document.pages)

        def has_ended() -> bool:
            now = store.get(job.id)
            progress.update(bar, completed=now.children_total - now.children_open)
            return now.finished_at is not None

        wait_for(
            "the document to be done",
            has_ended,
            workers=workers,
            patience_seconds=patience_seconds,
        )
    return store.get(job.id)


def _verify(
    store: PostgresStore,
    job: Job,
    document: Document,
    dead: WorkerProcess,
    held: Sequence[Job],
) -> None:
    """
    Look whether all is as promised; raise `DemoFailed` if not.
    """
    if job.status is not JobStatus.COMPLETED:
        raise DemoFailed(
            f"the document ended {job.status}: {job.error_code} {job.error_message}"
        )
    if job.children_total != document.pages:
        raise DemoFailed(f"{document.pages} pages, but {job.children_total} page jobs")
    expected = [text.encode(errors="surrogatepass") for text in document.texts]
    if job.result != joined(expected):
        raise DemoFailed("the joined text is not the one read in one go")
    for page in held:
        lost = [
            one.fence
            for one in store.attempts(page.id)
            if one.outcome is AttemptOutcome.LEASE_EXPIRED and one.worker == dead.name
        ]
        if lost != [page.fence]:
            raise DemoFailed(f"no trace of how job {page.id} was lost and recovered")
    console.print(
        f"[bold]5[/] joined {len(job.result.split()):,} words, the same as read in one "
        f"go; recovered {_pages(held)}. [green]Nothing lost, nothing twice.[/]\n",
        soft_wrap=True,
    )


def _counted(pages: int) -> str:
    return "1 page" if pages == 1 else f"{pages:,} pages"


def _pages(jobs: Sequence[Job]) -> str:
    numbers = [str(number + 1) for job in jobs for number in job.pages]
    return f"page{'s' * (len(numbers) != 1)} {' and '.join(numbers)}"


def _failed(message: str) -> int:
    errors.print(f"demo: {message}", style="red", markup=False)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
