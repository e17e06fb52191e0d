"""
A live view of the queues.
"""

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobstore.cli import output
from jobstore.cli.options import Target, as_json, target
from jobstore.cli.params import DURATION
from jobstore.errors import StoreUnavailable
from jobstore.model import QueueStats
from jobstore.store import Store

__all__ = ["watch"]

# Each look counts rows; no faster than anybody can read.
_SHORTEST_PAUSE_SECONDS = 0.1


@click.command()
@target
@click.option("--every", type=DURATION, default="1s", show_default=True)
@click.option("--times", type=click.IntRange(min=1), help="End after this many looks.")
@as_json
def watch(where: Target, *, every: timedelta, times: int | None, json: bool) -> None:
    """
    Watch the queues until Ctrl-C. As JSON, one document for each look.
    """
    with where.store() as store:
        if json:
            for seen in _looks(store, every, times):
                _print(seen)
            return
        with Live(console=Console(), auto_refresh=False) as live:
            for seen in _looks(store, every, times):
                if isinstance(seen, StoreUnavailable):
                    text = Text(output.one_line(f"{seen}; looking again"))
                    live.update(text, refresh=True)
                else:
                    live.update(output.stats_table(seen), refresh=True)


def _looks(
    store: Store, every: timedelta, times: int | None
) -> Iterator[list[QueueStats] | StoreUnavailable]:
    """
    Look again and again; a database that goes away meanwhile is waited for.
    """
    pause = threading.Event()
    looks = 0
    while times is None or looks < times:
        if looks:
            pause.wait(max(_SHORTEST_PAUSE_SECONDS, every.total_seconds()))
        looks += 1
        try:
            seen: list[QueueStats] | StoreUnavailable = store.stats()
        except StoreUnavailable as error:
            if looks == 1:
                raise
            seen = error
        yield seen


def _print(seen: list[QueueStats] | StoreUnavailable) -> None:
    if isinstance(seen, StoreUnavailable):
        output.tell_error(seen.code, str(seen), as_json=True)
    else:
        output.print_json({"stats": [output.stats_data(line) for line in seen]})
        # Whoever reads it reads along.
        sys.stdout.flush()
