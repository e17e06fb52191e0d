"""
Plots of throughput over time.
"""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["over_time"]


def over_time(
    path: Path,
    rates: Sequence[tuple[float, float]],
    *,
    title: str,
    marked: tuple[float, float],
) -> Path | None:
    """
    Draw jobs per second over seconds into *path*; None without matplotlib.

    Args:
        marked: A span of time to shade.
    """
    try:
        # Only here: it is in the extra ``bench``, and slow to import.
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return None
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([at for at, _ in rates], [rate for _, rate in rates])
    axes.axvspan(*marked, alpha=0.15, label="snapshot held")
    axes.set(title=title, xlabel="seconds", ylabel="jobs/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
