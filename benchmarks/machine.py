"""
Where the figures come from: server, settings, machine, revision.
"""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from benchmarks.bench import Bench

__all__ = ["circumstances"]

_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "wal_level",
    "data_checksums",
)


def circumstances(bench: Bench) -> dict[str, object]:
    """
    Collect what one must know to compare these figures with others.
    """
    ((server,),) = bench.execute("SELECT version()")
    settings = {name: bench.execute(f"SHOW {name}")[0][0] for name in _SETTINGS}
    return {
        "postgresql": server,
        "settings": settings,
        "machine": _machine(),
        "python": platform.python_version(),
        "libraries": {
            name: version(name) for name in ("psycopg", "sqlalchemy", "greenlet")
        },
        "pgbench": str(bench.pgbench) if bench.pgbench else "not found",
        "revision": _revision(),
        "rounds": bench.rounds,
        "scale": bench.scale,
    }


def _machine() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def _revision() -> str:
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607 - the user's git
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
