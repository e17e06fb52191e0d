"""
Working jobs from the shell: with a command for each, or with handlers in Python.
"""

import contextlib
import importlib
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import click

from jobstore.cli import output
from jobstore.cli.options import Target, job_class, target
from jobstore.cli.params import DURATION
from jobstore.errors import StoreUnavailable
from jobstore.lifecycle import OPEN, JobClass
from jobstore.store import Store
from jobstore.worker import Worker, WorkerCrashed, command_handler
from jobstore.worker.registry import ANY_KIND

__all__ = ["work"]

_HANDLERS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LOOK_SECONDS = 0.25


# What stands behind the first word of WHAT belongs to the command, options and all.
@click.command(context_settings={"allow_interspersed_args": False})
@target
@click.option("--queue", "queues", multiple=True, default=["default"])
@job_class()
@click.option("--concurrency", default=10, show_default=True)
@click.option("--visibility-timeout", type=DURATION, default="60s", show_default=True)
@click.option("--grace", type=DURATION, default="30s", show_default=True)
@click.option("--poll-every", type=DURATION, default="1s", show_default=True)
@click.option("--prune-after", type=DURATION, help="Delete jobs that ended before.")
@click.option("--keep-keys-for", type=DURATION, default="0s", help="When pruning.")
@click.option("--name", help="For operators; else host, pid and a random part.")
@click.option("--timeout", type=DURATION, help="Longest a COMMAND may take.")
@click.option("--kind", help="Only this kind, snooze others; for a COMMAND.")
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
    keep_keys_for: timedelta,
    name: str | None,
    timeout: timedelta | None,
    kind: str | None,
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
    is given back without being charged. Options go before the COMMAND or module.
    """
    handlers = _handlers(what, kind=kind, timeout=timeout)
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
            keep_keys_for=keep_keys_for,
            name=name,
        )
        output.tell(f"working as {worker.name}")
        with _stopping_when_empty(store, worker, queues if until_empty else ()):
            try:
                worker.run()
            except WorkerCrashed as error:
                raise click.ClickException(f"the worker crashed: {error}") from error


@contextlib.contextmanager
def _stopping_when_empty(
    store: Store, worker: Worker, queues: tuple[str, ...]
) -> Iterator[None]:
    """
    Stop *worker* when no open job is left in *queues*; none: leave it alone.
    """
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                lines = store.stats(window=timedelta(0))
            except StoreUnavailable:
                continue  # the worker says so, and waits for it as well
            if not any(one.queue in queues and one.status in OPEN for one in lines):
                worker.stop()
                return

    looker = threading.Thread(target=look, daemon=True)
    if queues:
        looker.start()
    try:
        yield
    finally:
        ended.set()
        if queues:
            looker.join()


def _handlers(
    what: tuple[str, ...], *, kind: str | None, timeout: timedelta | None
) -> Mapping[str, Any]:
    if not _HANDLERS.fullmatch(what[0]) or shutil.which(what[0]):
        handler = command_handler(what, timeout=timeout)
        return {ANY_KIND if kind is None else kind: handler}
    if len(what) > 1:
        raise click.UsageError(f"options go before {what[0]}, and nothing behind it")
    if kind is not None or timeout is not None:
        raise click.UsageError("--kind and --timeout are for a COMMAND")
    return _load(what[0])


def _load(reference: str) -> Mapping[str, Any]:
    module_name, _, attribute = reference.partition(":")
    # As `python -m` does: what is in this folder can be named.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{reference}: {error}") from None
    handlers = getattr(module, attribute, None)
    if (
        not isinstance(handlers, Mapping)
        or not handlers
        or not all(isinstance(one, str) for one in handlers)
        or not all(callable(one) for one in handlers.values())
    ):
        message = f"{reference}: there is no mapping of kinds to functions"
        raise click.UsageError(message)
    return handlers
