"""
Taking turns: the store and its raw twin, round by round, and what came of it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Figure", "Tell", "Turn", "compare", "percentile", "quiet", "timed"]

Tell: TypeAlias = Callable[[str], object]
"""Shows what is being done at the moment."""

Turn: TypeAlias = Callable[[int], float]
"""Does one round of work, given its number; returns jobs (or bytes) per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """
    One line of the results.

    A figure with a twin is a ratio; one without (a latency, a size) is a plain value.
    """

    name: str
    unit: str
    value: float
    """The store's, as the median of all rounds."""
    twin: str = ""
    """What it was measured against."""
    twin_value: float | None = None
    ratio: float | None = None
    """Median of the rounds' own ratios, so that a slow minute hits both sides."""
    spread: tuple[float, float] | None = None
    """The lowest and the highest of the rounds' ratios."""
    target: float | None = None
    """What docs/performance.md asks for."""
    at_most: bool = False
    """The target is an upper bound on the value, not a lower one on the ratio."""
    note: str = ""
    details: dict[str, object] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool | None:
        """
        Whether the target is reached; None without one.
        """
        if self.target is None:
            return None
        if self.at_most:
            return self.value <= self.target
        return (self.value if self.ratio is None else self.ratio) >= self.target


def timed(jobs: int, work: Callable[[], object]) -> float:
    """
    Return how many *jobs* per second *work* did.
    """
    started = time.perf_counter()
    work()
    return jobs / (time.perf_counter() - started)


def compare(
    name: str,
    store: Turn,
    twin: Turn,
    *,
    against: str,
    rounds: int,
    before: Callable[[], object] = lambda: None,
    unit: str = "jobs/s",
    target: float | None = None,
    note: str = "",
) -> Figure:
    """
    Measure *store* and *twin* in turns, *rounds* times each after one to warm up.

    Args:
        before: Called before every turn, outside its time, to make the same start.
    """
    for warm in (store, twin):
        before()
        warm(-1)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        sides = [(store, ours), (twin, theirs)]
        # Whoever goes second finds a warmer machine: each does so every other time.
        for turn, values in sides if number % 2 == 0 else reversed(sides):
            before()
            values.append(turn(number))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Figure(
        name=name,
        unit=unit,
        value=statistics.median(ours),
        twin=against,
        twin_value=statistics.median(theirs),
        ratio=statistics.median(ratios),
        spread=(min(ratios), max(ratios)),
        target=target,
        note=note,
        details={"rounds": ours, "twin_rounds": theirs},
    )


def percentile(values: Sequence[float], share: float) -> float:
    """
    Return the value below which *share* (0 to 1) of *values* lie.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def quiet(_: str) -> None:
    """
    Show nothing of what is being done.
    """
