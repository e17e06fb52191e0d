"""
Commands that change: cancel, requeue, reclaim, prune.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import click

from jobstore.cli import output
from jobstore.cli.exits import exit_of
from jobstore.cli.options import Target, as_json, target
from jobstore.cli.params import DURATION
from jobstore.errors import InvalidTransition, JobNotFound, JobstoreError
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.model import Job

__all__ = ["cancel", "prune", "reclaim", "requeue"]


@click.command()
@target
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Kept with the job.")
@as_json
def cancel(where: Target, *, job_ids: tuple[str, ...], reason: str, json: bool) -> None:
    """
    End jobs that have not ended, and what is left of their families.

    Goes on after a job that is unknown or has ended; the exit code is then that of
    the first such one.
    """
    with where.store() as store:
        _each(job_ids, lambda one: store.cancel(one, reason=reason), as_json=json)


@click.command()
@target
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@as_json
def requeue(where: Target, *, job_ids: tuple[str, ...], json: bool) -> None:
    """
    Reopen failed or cancelled jobs with fresh attempts, or run scheduled ones now.

    Goes on after a job that is unknown or in another state; the exit code is then
    that of the first such one.
    """
    with where.store() as store:
        _each(job_ids, store.requeue, as_json=json)


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


def _each(
    job_ids: Sequence[str], change: Callable[[str], Job], *, as_json: bool
) -> None:
    """
    Change each job, and tell of each; one that can't be changed holds up no other.
    """
    refused: list[JobstoreError] = []
    for job_id in job_ids:
        try:
            job = change(job_id)
        except (JobNotFound, InvalidTransition) as error:
            refused.append(error)
            output.tell_error(error.code, str(error), as_json=as_json)
        else:
            _told(job.id, job.status, as_json=as_json)
    if refused:
        click.get_current_context().exit(int(exit_of(refused[0])))


def _told(job_id: str, status: JobStatus, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"id": job_id, "status": status})
    else:
        output.print_line(f"{job_id} {status}")
