"""
Waiting until somebody else has migrated.
"""

import time
from datetime import timedelta

from sqlalchemy import Engine

from jobstore.errors import SchemaMissing, SchemaOutdated, StoreUnavailable
from jobstore.migrate.state import require_current
from jobstore.model import check_duration

__all__ = ["wait"]


def wait(
    target: str | Engine,
    *,
    schema: str = "jobstore",
    timeout: timedelta | None = None,
    poll: timedelta = timedelta(seconds=1),
) -> str:
    """
    Return when *schema* is at this code's revision, or at a later one that allows it.

    For processes that start before, or beside, the one that migrates. While the
    database can't be reached, it waits, too.

    Args:
        target: A DSN or an engine; the role must be able to read the version table.
        schema: The schema with jobstore's tables.
        timeout: How long to wait, by this machine's clock; None: for ever. It looks
            once in any case.
        poll: How often to look.

    Returns:
        The schema's revision.

    Raises:
        SchemaMissing, SchemaOutdated: It was not migrated in time.
        SchemaTooNew: At once: waiting will not help. Upgrade this process.
        StoreUnavailable: The database could not be reached in time.
        StoreFault: The role may not read the version table.
    """
    if timeout is not None:
        check_duration("timeout", timeout, shortest=timedelta(0))
    check_duration("poll", poll, shortest=timedelta(milliseconds=1))
    deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
    while True:
        try:
            return require_current(target, schema=schema)
        except (SchemaMissing, SchemaOutdated, StoreUnavailable):
            pause = poll.total_seconds()
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                raise
        time.sleep(pause)
