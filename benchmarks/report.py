"""
What a run has to show: a table for people, a JSON file for programs.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure

__all__ = ["line", "print_circumstances", "print_figures", "write"]


def print_circumstances(console: Console, facts: dict[str, object]) -> None:
    """
    Print the facts without which the figures mean nothing.
    """
    for name, value in facts.items():
        text = (
            ", ".join(f"{key} {one}" for key, one in value.items())
            if isinstance(value, dict)
            else str(value)
        )
        console.print(f"[bold]{name}[/]: {text}", highlight=False, soft_wrap=True)


def print_figures(console: Console, figures: Sequence[Figure]) -> None:
    """
    Print a table with one line for each figure.
    """
    table = Table(title="jobstore", caption="ratio: store / twin, median of the rounds")
    table.add_column("work")
    table.add_column("store", justify="right")
    table.add_column("twin", justify="right")
    table.add_column("against")
    table.add_column("ratio", justify="right")
    table.add_column("range", justify="right")
    table.add_column("target", justify="right")
    for figure in figures:
        table.add_row(*_cells(figure))
    console.print(table)


def _cells(figure: Figure) -> tuple[str, ...]:
    colour = {True: "green", False: "red", None: "default"}[figure.is_reached]
    target = "" if figure.target is None else f"{figure.target:g}"
    bound = f"at most {target} {figure.unit}" if target and figure.at_most else target
    spread = figure.spread and f"{figure.spread[0]:.2f} to {figure.spread[1]:.2f}"
    return (
        figure.name + (f"\n[dim]{figure.note}[/]" if figure.note else ""),
        f"{number(figure.value)} {figure.unit}",
        "" if figure.twin_value is None else number(figure.twin_value),
        figure.twin,
        "" if figure.ratio is None else f"[{colour}]{figure.ratio:.2f}[/]",
        spread or "",
        f"[{colour}]{bound}[/]",
    )


def line(figure: Figure) -> str:
    """
    Say what came of one figure, as soon as it is there.
    """
    value = f"{figure.name}: {number(figure.value)} {figure.unit}"
    if figure.ratio is None or figure.twin_value is None:
        return value
    twin = f"{number(figure.twin_value)} by {figure.twin}"
    return f"{value}, {twin}: {figure.ratio:.2f}"


def number(value: float) -> str:
    """
    Write *value* with three digits that mean something, and no more.
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(path: Path, facts: dict[str, object], figures: Sequence[Figure]) -> Path:
    """
    Write everything to *path* as JSON, rounds included.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "circumstances": facts,
        "figures": [
            asdict(figure) | {"reached": figure.is_reached} for figure in figures
        ],
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path
