"""
Submitting from the shell: files, standard input, or many of them.
"""

import hashlib
import mimetypes
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
from rich.progress import Progress

from jobstore.cli import output
from jobstore.cli.options import Target, as_json, job_class, target
from jobstore.cli.params import DURATION, INSTANT
from jobstore.lifecycle import JobClass
from jobstore.model import Created, NewJob
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES

__all__ = ["submit"]

_STDIN = "-"
_BATCH_JOBS = 500
_BATCH_BYTES = 32 * 1024 * 1024
# For fewer, a progress bar is gone before it is seen.
_WORTH_A_BAR = 20


@click.command()
@target
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option("--kind", required=True, help="By which a worker finds the handler.")
@click.option("--tenant", default="default", show_default=True)
@click.option("--queue", default="default", show_default=True)
@job_class(default=str(JobClass.BATCH), show_default=True)
@click.option("--key", help="Idempotency key; for a single file.")
@click.option(
    "--key-from",
    type=click.Choice(["name", "hash"]),
    help="Idempotency keys from the file's name, or from its content.",
)
@click.option("--content-type", help="Else guessed from the file's name.")
@click.option("--max-attempts", default=5, show_default=True)
@click.option("--delay", type=DURATION, help="Not to be claimed before, e.g. 10m.")
@click.option("--at", type=INSTANT, help="Not to be claimed before this instant.")
@click.option("--parent", metavar="ID", help="The job that these are parts of.")
@click.option("--strict", is_flag=True, help="Fail if a key is known for other work.")
@as_json
def submit(
    where: Target,
    *,
    paths: tuple[str, ...],
    kind: str,
    tenant: str,
    queue: str,
    job_class: str,
    key: str | None,
    key_from: str | None,
    content_type: str | None,
    max_attempts: int,
    delay: timedelta | None,
    at: datetime | None,
    parent: str | None,
    strict: bool,
    json: bool,
) -> None:
    """
    Submit a job for each FILE; - is standard input. Prints their ids.
    """
    if key and key_from:
        raise click.UsageError("give --key or --key-from, not both")
    if key and len(paths) > 1:
        raise click.UsageError("--key is for a single file; see --key-from")
    if delay is not None and at is not None:
        raise click.UsageError("give --delay or --at, not both")

    def describe(path: str) -> NewJob:
        data = sys.stdin.buffer.read() if path == _STDIN else Path(path).read_bytes()
        return NewJob(
            kind=kind,
            payload=data,
            content_type=_guess(path) if content_type is None else content_type,
            tenant=tenant,
            idem_key=key or _key(key_from, path, data),
            queue=queue,
            job_class=JobClass(job_class),
            max_attempts=max_attempts,
            available_at=at,
            delay=delay,
            parent_id=parent,
        )

    _check_readable(paths)
    with (
        where.store() as store,
        Progress(console=output.warnings, disable=len(paths) < _WORTH_A_BAR) as bar,
    ):
        task = bar.add_task("submitting", total=len(paths))
        for batch in _batches(paths):
            jobs = [describe(path) for path in batch]
            results = store.create_many(jobs, strict=strict)
            for path, one in zip(batch, results, strict=True):
                _told(path, one, as_json=json)
            bar.advance(task, len(batch))


def _told(path: str, one: Created, *, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "id": one.job.id,
                "file": path,
                "created": one.created,
                "payload_matches": one.payload_matches,
            }
        )
        return
    output.print_line(one.job.id)
    if not one.created:
        note = (
            "known already" if one.payload_matches else "known already, for OTHER work"
        )
        output.tell(f"{path}: {note}")


def _check_readable(paths: Sequence[str]) -> None:
    """
    Before anything is submitted: half of a list is worse than nothing.
    """
    if paths.count(_STDIN) > 1:
        raise click.UsageError("standard input can be read once only")
    for path in paths:
        if path == _STDIN:
            continue
        if Path(path).is_dir():
            raise click.UsageError(f"{output.one_line(path)}: is a folder")
        if not Path(path).exists():
            raise click.UsageError(f"{output.one_line(path)}: no such file")
        if not os.access(path, os.R_OK):
            raise click.UsageError(f"{output.one_line(path)}: may not be read")
        if Path(path).stat().st_size > DEFAULT_MAX_PAYLOAD_BYTES:
            message = (
                f"{output.one_line(path)}: is over {DEFAULT_MAX_PAYLOAD_BYTES:,} bytes"
            )
            raise click.UsageError(message)


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += 0 if path == _STDIN else Path(path).stat().st_size
        if len(batch) == _BATCH_JOBS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _key(source: str | None, path: str, data: bytes) -> str | None:
    if source == "name":
        return path
    if source == "hash":
        return hashlib.sha256(data).hexdigest()
    return None


def _guess(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"
