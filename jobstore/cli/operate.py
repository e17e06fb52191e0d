"""
Commands that change: cancel, requeue, reclaim, prune.
"""

from datetime import timedelta

import click

from jobstore.cli import output
from jobstore.cli.options import Target, as_json, target
from jobstore.cli.params import DURATION
from jobstore.lifecycle import TERMINAL, JobStatus

__all__ = ["cancel", "prune", "reclaim", "requeue"]


@click.command()
@target
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Kept with the job.")
@as_json
def cancel(where: Target, *, job_ids: tuple[str, ...], reason: str, json: bool) -> None:
    """
    End jobs that have not ended, and what is left of their families.
    """
    with where.store() as store:
        for job_id in job_ids:
            job = store.cancel(job_id, reason=reason)
            _told(job.id, job.status, as_json=json)


@click.command()
@target
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@as_json
def requeue(where: Target, *, job_ids: tuple[str, ...], json: bool) -> None:
    """
    Reopen failed or cancelled jobs with fresh attempts, or run scheduled ones now.
    """
    with where.store() as store:
        for job_id in job_ids:
            job = store.requeue(job_id)
            _told(job.id, job.status, as_json=json)


@click.command()
@target
@click.option(
    "--visibility-timeout",
    type=DURATION,
    required=True,
    help="Take leases without a heartbeat for this long, e.g. 5m.",
)
@as_json
def reclaim(where: Target, *, visibility_timeout: timedelta, json: bool) -> None:
    """
    Give back the jobs of workers that went silent. Workers do this by themselves.
    """
    with where.store() as store:
        done = store.reclaim_stale(visibility_timeout)
    if json:
        output.print_json({"requeued": done.requeued, "failed": done.failed})
    else:
        output.print_line(f"{done.requeued} queued again, {done.failed} failed")


@click.command()
@target
@click.option("--older-than", type=DURATION, required=True, help="E.g. 30d.")
@click.option(
    "--keep-keys-for",
    type=DURATION,
    default="0s",
    help="Idempotency keys stay this long after their first use.",
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(sorted(str(one) for one in TERMINAL)),
    help="Only these; may be given several times.",
)
@as_json
def prune(
    where: Target,
    *,
    older_than: timedelta,
    keep_keys_for: timedelta,
    status: tuple[str, ...],
    json: bool,
) -> None:
    """
    Delete jobs that ended long ago: whole families, with payloads and history.
    """
    statuses = [JobStatus(word) for word in status] or TERMINAL
    with where.store() as store, output.warnings.status("pruning …"):
        deleted = store.prune(older_than, status=statuses, keep_keys_for=keep_keys_for)
    if json:
        output.print_json({"deleted": deleted})
    else:
        output.print_line(f"{deleted} jobs deleted")


def _told(job_id: str, status: JobStatus, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"id": job_id, "status": status})
    else:
        output.print_line(f"{job_id} {status}")
