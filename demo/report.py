"""
What is shown at the end: what ran, how often, by whom, and how to look for oneself.
"""

import os
import shlex
import sys
from pathlib import Path

from rich.table import Table

from demo.workers import WorkerProcess
from jobstore import AttemptOutcome, Job, JobStatus, PostgresStore
from jobstore.embedded import EmbeddedServer

__all__ = ["by_hand", "runs_table", "workers_table"]

# Of a document with many pages, those that went smoothly look all alike.
_MOST_SMOOTH_ROWS = 40


def runs_table(store: PostgresStore, job: Job) -> Table:
    """
    Make a table with a row for each job, from the job's row and its attempts'.
    """
    table = Table(
        "job", "page", "claims", "what came of each claim", title="what ran", box=None
    )
    table.columns[1].justify = table.columns[2].justify = "right"
    smooth = 0
    for one in [job, *store.list_children(job.id, with_result=False)]:
        if one.fence == 1:
            smooth += 1
            if smooth > _MOST_SMOOTH_ROWS:
                continue
        steps = [
            (attempt.worker, str(attempt.outcome), attempt.outcome)
            for attempt in store.attempts(one.id)
        ]
        story = [
            f"[red]{worker}: {word}[/]"
            if outcome is AttemptOutcome.LEASE_EXPIRED
            else f"{worker}: {word}"
            for worker, word, outcome in steps
        ]
        story.append(f"[green]{one.worker}: {one.status}[/]")
        table.add_row(
            one.kind,
            ", ".join(str(number + 1) for number in one.pages),
            str(one.fence),
            " → ".join(story),
        )
    if smooth > _MOST_SMOOTH_ROWS:
        table.add_row(
            "…", "", "", f"and {smooth - _MOST_SMOOTH_ROWS} more, claimed once"
        )
    return table


def workers_table(store: PostgresStore, job: Job, dead: WorkerProcess) -> Table:
    """
    Make a table of who did how much, from the same rows.
    """
    table = Table("worker", "claims", "completed", "lost", "end", title="\nby whom")
    table.box = None
    counts: dict[str, list[int]] = {}
    for one in [job, *store.list_children(job.id, with_result=False)]:
        if one.worker is not None and one.status is JobStatus.COMPLETED:
            _count(counts, one.worker, 0, 1)
        if one.fence > 1:
            for attempt in store.attempts(one.id):
                is_lost = attempt.outcome is AttemptOutcome.LEASE_EXPIRED
                _count(counts, attempt.worker or "", 1 if is_lost else 2, 1)
    for name in sorted(counts):
        completed, lost, other = counts[name]
        end = "[red]kill -9[/]" if name == dead.name else "SIGTERM"
        table.add_row(
            name, str(completed + lost + other), str(completed), str(lost), end
        )
    for column in table.columns[1:4]:
        column.justify = "right"
    return table


def by_hand(server: EmbeddedServer, folder: Path, job: Job) -> str:
    """
    Say how to look at it with psql.
    """
    python = shlex.quote(_short(sys.executable))
    psql = shlex.quote(_short(server.binaries.folder / "psql"))
    # An id is a ULID: letters and digits, nothing to quote.
    family = f"WHERE '{job.id}' IN (id, parent_id) ORDER BY id"
    queries = (
        f"SELECT kind, pages, status, fence, worker FROM jobstore.job {family}",  # noqa: S608
        f"SELECT jobstore.explain_job('{job.id}')",
    )
    lines = [
        "\nLook for yourself. Keep the server running in another terminal:",
        f"  {python} -m jobstore up {folder}",
        "and ask it:",
        *(f"  {psql} '{server.psql_dsn}' -c \"{query}\"" for query in queries),
    ]
    return "\n".join(lines)


def _count(counts: dict[str, list[int]], worker: str, what: int, more: int) -> None:
    counts.setdefault(worker, [0, 0, 0])[what] += more


def _short(path: Path | str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return os.fspath(path)
