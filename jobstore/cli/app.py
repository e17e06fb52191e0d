"""
The program: its commands, and how errors become exit codes.
"""

import contextlib
import json
import logging
import os
import sys

import click

from jobstore.cli.doctor import doctor, explain
from jobstore.cli.exits import Exit, exit_of
from jobstore.cli.migrate import migrate
from jobstore.cli.operate import cancel, prune, reclaim, requeue
from jobstore.cli.output import warnings
from jobstore.cli.read import list_, payload, result, show, stats
from jobstore.cli.submit import submit
from jobstore.cli.up import up
from jobstore.cli.watch import watch
from jobstore.cli.work import work
from jobstore.errors import JobstoreError

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jobstore")
@click.option("-v", "--verbose", is_flag=True, help="Log more, to stderr.")
def cli(*, verbose: bool) -> None:
    """
    A durable job store and queue on PostgreSQL.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


for command in (
    cancel,
    doctor,
    explain,
    list_,
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
    work,
):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """
    Run the command line and exit.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(arguments, prog_name="jobstore", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        # Nothing may be flushed to it at exit, or Python complains about that too.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.BROKEN_PIPE
    except JobstoreError as error:
        _tell(error, as_json="--json" in arguments)
        code = exit_of(error)
    sys.exit(int(code or 0))


def _tell(error: JobstoreError, *, as_json: bool) -> None:
    if as_json:
        facts = {
            "code": error.code,
            "message": str(error),
            "outcome": error.outcome,
        }
        sys.stderr.write(json.dumps({"error": facts}) + "\n")
    else:
        warnings.print(f"jobstore: {error}", style="red", markup=False)
