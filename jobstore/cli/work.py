"""
Working jobs from the shell: with a command for each, or with handlers in Python.
"""

import importlib
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from jobstore.cli import output
from jobstore.cli.options import Target, job_class, target
from jobstore.cli.params import DURATION
from jobstore.lifecycle import OPEN, JobClass
from jobstore.store import Store
from jobstore.worker import Worker, command_handler

__all__ = ["work"]

_HANDLERS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LOOK_SECONDS = 0.25


@click.command(context_settings={"ignore_unknown_options": True})
@target
@click.option("--queue", "queues", multiple=True, default=["default"])
@job_class()
@click.option("--concurrency", default=10, show_default=True)
@click.option("--visibility-timeout", type=DURATION, default="60s", show_default=True)
@click.option("--grace", type=DURATION, default="30s", show_default=True)
@click.option("--poll-every", type=DURATION, default="1s", show_default=True)
@click.option("--prune-after", type=DURATION, help="Delete jobs that ended before.")
@click.option("--name", help="For operators; else host, pid and a random part.")
@click.option("--timeout", type=DURATION, help="Longest a COMMAND may take.")
@click.option("--kind", default="*", help="Only this kind; for a COMMAND.")
@click.option("--until-empty", is_flag=True, help="End when the queues are empty.")
@click.argument("what", nargs=-1, required=True, type=click.UNPROCESSED)
def work(
    where: Target,
    *,
    queues: tuple[str, ...],
    job_class: str | None,
    concurrency: int,
    visibility_timeout: timedelta,
    grace: timedelta,
    poll_every: timedelta,
    prune_after: timedelta | None,
    name: str | None,
    timeout: timedelta | None,
    kind: str,
    until_empty: bool,
    what: tuple[str, ...],
) -> None:
    r"""
    Work jobs with a COMMAND, or with the handlers of a Python module.

    \b
    jobstore work -- ocr --stdin      payload on stdin, result on stdout,
                                      exit code decides (0 done, 65 no good,
                                      others: try again)
    jobstore work app.jobs:handlers   a mapping of kinds to functions

    Ends on SIGTERM or Ctrl-C: jobs in hand get the grace time to finish, what is left
    is given back without being charged.
    """
    if len(what) == 1 and _HANDLERS.fullmatch(what[0]) and not shutil.which(what[0]):
        handlers = _load(what[0])
    else:
        handlers = {kind: command_handler(what, timeout=timeout)}
    with where.store(pool_size=max(10, min(concurrency, 50))) as store:
        store.list(limit=1)  # a missing database or schema is told before the start
        worker = Worker(
            store,
            handlers,
            concurrency=concurrency,
            queues=queues,
            job_class=None if job_class is None else JobClass(job_class),
            visibility_timeout=visibility_timeout,
            grace=grace,
            poll_every=poll_every,
            prune_after=prune_after,
            name=name,
        )
        output.warnings.print(f"working as {worker.name}", markup=False)
        if until_empty:
            threading.Thread(
                target=_stop_when_empty, args=(store, worker, queues), daemon=True
            ).start()
        worker.run()


def _stop_when_empty(store: Store, worker: Worker, queues: tuple[str, ...]) -> None:
    pause = threading.Event()
    while any(
        line.queue in queues and line.status in OPEN
        for line in store.stats(window=timedelta(0))
    ):
        pause.wait(_LOOK_SECONDS)
    worker.stop()


def _load(reference: str) -> Mapping[str, Any]:
    module_name, _, attribute = reference.partition(":")
    # As `python -m` does: what is in this folder can be named.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{reference}: {error}") from None
    handlers = getattr(module, attribute, None)
    if not isinstance(handlers, Mapping):
        message = f"{reference}: there is no mapping of kinds to handlers"
        raise click.UsageError(message)
    return handlers
