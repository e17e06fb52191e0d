"""
Commands that look: list, show, result, payload, stats.
"""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from jobstore.cli import output
from jobstore.cli.exits import Exit
from jobstore.cli.options import Target, as_json, job_class, target
from jobstore.lifecycle import JobClass, JobStatus

__all__ = ["list_", "payload", "result", "show", "stats"]


_STDOUT = Path("-")

to_file = click.option(
    "-o",
    "--output",
    "to",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=_STDOUT,
    help="Write to this file; - is standard output. [-]",
)


class NoResult(click.ClickException):
    """
    The job has not completed.
    """

    exit_code = int(Exit.CONFLICT)


@click.command("list")
@target
@click.option("--tenant")
@click.option("--queue")
@click.option("--kind")
@job_class()
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([str(one) for one in JobStatus]),
    help="May be given several times.",
)
@click.option("--worker")
@click.option("--error-code")
@click.option("--key", "idem_key", help="The idempotency key it was created with.")
@click.option("--after", metavar="ID", help="Go on after this job.")
@click.option("--oldest-first", is_flag=True)
@click.option("--limit", default=100, show_default=True)
@as_json
def list_(
    where: Target, *, json: bool, status: tuple[str, ...], limit: int, **filters: Any
) -> None:
    """
    List jobs, newest first.
    """
    if filters["job_class"] is not None:
        filters["job_class"] = JobClass(filters["job_class"])
    with where.store() as store:
        jobs = store.list(
            status=[JobStatus(word) for word in status] or None,
            limit=limit,
            with_result=False,
            **filters,
        )
    if json:
        after = jobs[-1].id if len(jobs) == limit else None
        output.print_json(
            {"jobs": [output.job_data(job) for job in jobs], "after": after}
        )
    else:
        output.print_table(jobs)


@click.command()
@target
@click.argument("job_id", metavar="ID")
@as_json
def show(where: Target, *, job_id: str, json: bool) -> None:
    """
    Show one job with its history and its children.
    """
    with where.store() as store:
        job = store.get(job_id)
        attempts = store.attempts(job_id)
        children = store.list_children(job_id, limit=100, with_result=False)
    if json:
        output.print_json(
            {
                "job": output.job_data(job),
                "attempts": [output.attempt_data(one) for one in attempts],
                "children": [output.job_data(child) for child in children],
            }
        )
        return
    for name, value in output.job_data(job).items():
        if value not in (None, "", [], ()):
            output.print_line(f"{name:17} {value}")
    if attempts:
        output.print_line()
        output.print_line("attempts that did not end in success:")
    for one in attempts:
        output.print_line(
            f"  {one.attempt} (fence {one.fence}) {one.outcome}"
            f" {one.error_code or ''} {one.started_at:%Y-%m-%d %H:%M:%S}"
            f" to {one.ended_at:%H:%M:%S} by {one.worker}"
        )
    if children:
        output.print_line()
        output.print_line(f"children (the first {len(children)}):")
        output.print_table(children)


@click.command()
@target
@click.argument("job_id", metavar="ID")
@to_file
def result(where: Target, *, job_id: str, to: Path) -> None:
    """
    Write a job's result, byte for byte, to stdout or a file.
    """
    with where.store() as store:
        job = store.get(job_id)
    if job.status is not JobStatus.COMPLETED:
        raise NoResult(f"job {job.id} is {job.status}: it has no result")
    _write(job.result or b"", to)


@click.command()
@target
@click.argument("job_id", metavar="ID")
@to_file
def payload(where: Target, *, job_id: str, to: Path) -> None:
    """
    Write a job's payload, byte for byte, to stdout or a file.
    """
    with where.store() as store:
        data = store.payload(job_id).data
    _write(data, to)


@click.command()
@target
@as_json
def stats(where: Target, *, json: bool) -> None:
    """
    Count jobs by queue, class and status.

    Completed and cancelled ones count if they ended in the last five minutes.
    """
    with where.store() as store:
        lines = store.stats()
    if json:
        output.print_json({"stats": [output.stats_data(line) for line in lines]})
    elif sys.stdout.isatty():
        Console().print(output.stats_table(lines))
    else:
        for line in lines:
            output.print_line(
                line.queue,
                line.job_class,
                line.status,
                str(line.jobs),
                output.age(line.oldest_at),
            )


def _write(data: bytes, to: Path) -> None:
    if to != _STDOUT:
        to.write_bytes(data)
        return
    if sys.stdout.isatty() and not _is_harmless(data):
        message = (
            "it is no plain text, which a terminal may obey: use -o FILE or a pipe"
        )
        raise click.ClickException(message)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _is_harmless(data: bytes) -> bool:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        return False
    return all(output.one_line(line) == line for line in lines)
