"""
Print the folder of a PostgreSQL of another major version than the embedded one.

For ``make test``, which runs the tests on that one too. Prints nothing if there is
none. ``JOBSTORE_TEST_PG_BIN`` names it; else the newest of Debian's is taken.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from jobstore.embedded import EmbeddedServer, EmbeddedUnavailable

_DEBIAN = Path("/usr/lib/postgresql")


def second_postgres(
    environ: Mapping[str, str] = os.environ, *, installed: Path = _DEBIAN
) -> Path | None:
    if named := environ.get("JOBSTORE_TEST_PG_BIN"):
        return Path(named)
    try:
        embedded = EmbeddedServer("unused").binaries.major
    except EmbeddedUnavailable:
        embedded = ""
    found = [
        programs
        for programs in installed.glob("*/bin")
        if (programs / "postgres").exists()
        and (programs / "initdb").exists()
        and programs.parent.name.isdecimal()
        and programs.parent.name != embedded
    ]
    return max(found, key=lambda programs: int(programs.parent.name), default=None)


if __name__ == "__main__":
    print(second_postgres() or "")  # noqa: T201 - this is its job
