"""
The program: its commands, and how errors become exit codes.
"""

import contextlib
import logging
import os
import sys
from importlib import metadata
from typing import Any

import click

from jobstore.cli.doctor import doctor, explain
from jobstore.cli.exits import Exit, exit_of
from jobstore.cli.grants import grants
from jobstore.cli.metrics import metrics
from jobstore.cli.migrate import migrate
from jobstore.cli.operate import cancel, prune, reclaim, requeue
from jobstore.cli.output import tell_error
from jobstore.cli.read import list_, payload, result, show, stats
from jobstore.cli.submit import submit
from jobstore.cli.up import up
from jobstore.cli.watch import watch
from jobstore.cli.web import web
from jobstore.cli.work import work
from jobstore.errors import JobstoreError

__all__ = ["cli", "main"]


def _version() -> str:
    try:
        return metadata.version("jobstore")
    except metadata.PackageNotFoundError:
        return "unknown: not installed, run from its sources"


class _ReaderGone(Exception):
    """
    Nobody reads our output any more.
    """


class _Program(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # click would exit with 1 for it, which is an error of ours.
            raise _ReaderGone from None
        return answer


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version())
@click.option("-v", "--verbose", is_flag=True, help="Log more, to stderr.")
def cli(*, verbose: bool) -> None:
    """
    A durable job store and queue on PostgreSQL.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if verbose:
        # Not the database libraries: they would log statements and rows.
        for name in ("jobstore", "alembic"):
            logging.getLogger(name).setLevel(logging.DEBUG)


for command in (
    cancel,
    doctor,
    explain,
    grants,
    list_,
    metrics,
    migrate,
    payload,
    prune,
    reclaim,
    requeue,
    result,
    show,
    stats,
    submit,
    up,
    watch,
    web,
    work,
):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """
    Run the command line and exit.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = _wants_json(arguments)
    try:
        code = cli.main(arguments, prog_name="jobstore", standalone_mode=False)
    except click.ClickException as error:
        if as_json:
            tell_error(_code_of(error), error.format_message(), as_json=True)
        else:
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = Exit.INTERRUPTED
    except (_ReaderGone, BrokenPipeError):
        # Nothing may be flushed to it at exit, or Python complains about that too.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.BROKEN_PIPE
    except JobstoreError as error:
        tell_error(error.code, str(error), as_json=as_json, outcome=error.outcome)
        code = exit_of(error)
    except OSError as error:
        named = "" if error.filename is None else f"{error.filename}: "
        message = f"{named}{error.strerror or error}"
        tell_error("SYSTEM_ERROR", message, as_json=as_json)
        code = Exit.ERROR
    sys.exit(int(code or 0))


def _code_of(error: click.ClickException) -> str:
    return "USAGE" if isinstance(error, click.UsageError) else "ERROR"


def _wants_json(arguments: list[str]) -> bool:
    # Behind -- are the words of another command.
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours
