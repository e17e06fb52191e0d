"""
A live view of the queues.
"""

import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType
from typing import Self

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
    with where.store() as store, _Interrupts() as interrupts:
        looks = _looks(store, every, times, interrupts)
        if json:
            for seen in looks:
                _print(seen)
            return
        with Live(console=Console(), auto_refresh=False) as live:
            for seen in looks:
                if isinstance(seen, StoreUnavailable):
                    text = Text(output.one_line(f"{seen}; looking again"))
                    live.update(text, refresh=True)
                else:
                    live.update(output.stats_table(seen), refresh=True)


class _Interrupts:
    """
    Ctrl-C, taken between two looks; a second one breaks off the look itself.

    Raised in the middle of anything, as Python does it, it is lost now and then: code
    that runs while an object goes away may not raise.
    """

    def __enter__(self) -> Self:
        self._came = self._may_raise = False
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self._came or self._may_raise:
            raise KeyboardInterrupt
        self._came = True

    def pause(self, seconds: float) -> None:
        """
        Sleep; raise KeyboardInterrupt if it comes now, or came before.
        """
        self._may_raise = True
        if self._came:
            raise KeyboardInterrupt
        time.sleep(seconds)
        self._may_raise = False


def _looks(
    store: Store, every: timedelta, times: int | None, interrupts: _Interrupts
) -> Iterator[list[QueueStats] | StoreUnavailable]:
    """
    Look again and again; a database that goes away meanwhile is waited for.
    """
    looks = 0
    while times is None or looks < times:
        if looks:
            interrupts.pause(max(_SHORTEST_PAUSE_SECONDS, every.total_seconds()))
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
