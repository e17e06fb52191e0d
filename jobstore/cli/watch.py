"""
A live view of the queues.
"""

import threading
from datetime import timedelta

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobstore.cli import output
from jobstore.cli.options import Target, target
from jobstore.cli.params import DURATION
from jobstore.errors import StoreUnavailable

__all__ = ["watch"]

# Each look counts rows; no faster than anybody can read.
_SHORTEST_PAUSE_SECONDS = 0.1


@click.command()
@target
@click.option("--every", type=DURATION, default="1s", show_default=True)
@click.option("--times", type=click.IntRange(min=1), help="End after this many looks.")
def watch(where: Target, *, every: timedelta, times: int | None) -> None:
    """
    Watch the queues until Ctrl-C.
    """
    pause = threading.Event()
    with where.store() as store, Live(console=Console(), auto_refresh=False) as live:
        looks = 0
        while times is None or looks < times:
            if looks:
                pause.wait(max(_SHORTEST_PAUSE_SECONDS, every.total_seconds()))
            looks += 1
            try:
                live.update(output.stats_table(store.stats()), refresh=True)
            except StoreUnavailable as error:
                if looks == 1:
                    raise
                live.update(
                    Text(output.one_line(f"{error}; looking again")), refresh=True
                )
