"""
A PostgreSQL of one's own, for trying things out.
"""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from jobstore import migrate as migrations
from jobstore.cli import output

__all__ = ["up"]


@click.command()
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), default=".jobstore"
)
@click.option("--schema", envvar="JOBSTORE_SCHEMA", default="jobstore")
@click.option("--migrate/--no-migrate", default=True, help="Create the tables.")
def up(*, folder: Path, schema: str, migrate: bool) -> None:
    """
    Start the embedded PostgreSQL in FOLDER, print its DSN, and keep it up.

    Its data stay in FOLDER. Ctrl-C stops it, unless another process uses it too.
    """
    from jobstore.embedded import EmbeddedServer  # noqa: PLC0415 - an optional extra

    stop = threading.Event()

    def stopped(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)
    with EmbeddedServer(folder) as server:
        if migrate:
            migrations.upgrade(server.dsn, schema=schema)
        output.print_line(server.dsn)
        sys.stdout.flush()
        psql = server.binaries.folder / "psql"
        output.tell(f"export JOBSTORE_DSN='{server.dsn}'\n{psql} '{server.psql_dsn}'")
        output.tell("up until Ctrl-C")
        stop.wait()
