"""
A private PostgreSQL for development, tests and single-machine use.

A real server, from the wheel that the extra ``jobstore[embedded]`` installs, on a
folder of your choice. All processes that start one folder share one server; it ends
when the last of them has stopped, exited or been killed. The kernel's file locks
keep that count, so nothing has to be cleaned up after a crash.

Not here: anything about jobs. This package hands out a DSN and knows no schema.
"""

import sys

from jobstore.embedded.errors import EmbeddedFailed, EmbeddedUnavailable

if sys.platform == "win32":
    raise EmbeddedUnavailable(
        "the embedded PostgreSQL needs Linux or macOS; "
        "on Windows use a PostgreSQL of your own by its DSN"
    )

from jobstore.embedded.server import EmbeddedServer, start

__all__ = ["EmbeddedFailed", "EmbeddedServer", "EmbeddedUnavailable", "start"]
