"""
The command line: ``python -m benchmarks``.
"""

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import bench as benches
from benchmarks import machine, pgbench, report
from benchmarks.bench import Bench
from benchmarks.measure import Figure
from benchmarks.suite import LONG, SHORT, TOPICS

# Durable, as a server in production is; the rest keeps a checkpoint from falling into
# one round and not into the next.
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "100",
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--dsn", help="Measure this server instead of a private embedded one.")
@click.option("--full", is_flag=True, help="All topics, those that take long too.")
@click.option("--rounds", default=5, show_default=True, help="Of each side.")
@click.option("--scale", default=1.0, show_default=True, help="Multiplies all sizes.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder for the JSON file and the plots.",
)
@click.option("--list", "list_only", is_flag=True, help="List the topics and end.")
def main(
    topics: tuple[str, ...],
    dsn: str | None,
    *,
    full: bool,
    rounds: int,
    scale: float,
    output: Path,
    list_only: bool,
) -> None:
    """
    Measure the store against raw SQL, in turns, and print the ratios.

    Without TOPIC: the short ones. A schema of its own is made and dropped again.
    """
    # Not to be cut to 80 columns where it goes into a file.
    console = Console(width=None if sys.stdout.isatty() else 160)
    # As an interrupt does it: the server is stopped, and its folder removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if list_only:
        for name, topic in TOPICS.items():
            kind = "long" if name in LONG else "short"
            console.print(f"{name:12} {kind:6} {topic.about}", highlight=False)
        return
    chosen = topics or (tuple(TOPICS) if full else SHORT)
    if unknown := set(chosen) - set(TOPICS):
        raise click.BadParameter(f"no such topic: {', '.join(sorted(unknown))}")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    with (
        _server(dsn) as address,
        benches.made(
            address,
            pgbench=pgbench.find(),
            rounds=rounds,
            scale=scale,
            folder=output / stamp,
        ) as bench,
    ):
        _run(console, bench, chosen, output / stamp / "figures.json")


def _run(console: Console, bench: Bench, chosen: tuple[str, ...], path: Path) -> None:
    facts = machine.circumstances(bench)
    report.print_circumstances(console, facts)
    if bench.pgbench is None:
        console.print("pgbench was not found: what needs it is left out")
    figures: list[Figure] = []
    for name in chosen:
        with console.status(f"{name}: {TOPICS[name].about}") as status:
            for figure in TOPICS[name].measure(bench, status.update):
                figures.append(figure)
                console.print(report.line(figure), highlight=False)
        # After each topic: an interrupted run keeps what it has.
        report.write(path, facts, figures)
    report.print_figures(console, figures)
    console.print(f"written to {path}")


@contextlib.contextmanager
def _server(dsn: str | None) -> Iterator[str]:
    if dsn is not None:
        yield dsn
        return
    from jobstore.embedded import EmbeddedServer  # noqa: PLC0415 - an extra

    with tempfile.TemporaryDirectory(prefix="jobstore-bench-") as folder:
        # The server may run under another account than ours.
        Path(folder).chmod(0o755)
        with EmbeddedServer(Path(folder) / "data", settings=_SETTINGS) as server:
            yield server.dsn


if __name__ == "__main__":
    main()
