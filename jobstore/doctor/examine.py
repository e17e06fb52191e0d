"""
One examination: every check in turn, and a report.
"""

from collections.abc import Iterator

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError

from jobstore import migrate
from jobstore.doctor import queue, server, structure, vacuum
from jobstore.doctor.look import Check, Look, looking, server_time
from jobstore.doctor.report import Finding, Report, Severity, worst_first
from jobstore.doctor.thresholds import Thresholds

__all__ = ["CHECKS", "examine"]

CHECKS = (
    Check("version", "server version", server.version, needs_schema=False),
    Check("settings", "server settings", server.settings, needs_schema=False),
    Check("connections", "connections", server.connections, needs_schema=False),
    Check("wraparound", "transaction ids", server.wraparound, needs_schema=False),
    Check("clock", "clocks", server.clock, needs_schema=False),
    Check("pooler", "pooler", server.pooler, needs_schema=False),
    Check("revision", "schema revision", structure.revision, needs_schema=False),
    Check("tables", "tables, views and functions", structure.tables),
    Check("indexes", "indexes", structure.indexes),
    Check("dead_rows", "dead rows and autovacuum", vacuum.dead_rows),
    Check("bloat", "index size", vacuum.bloat),
    Check("snapshots", "old snapshots", vacuum.snapshots),
    Check(
        "idle_transactions",
        "idle transactions",
        vacuum.idle_transactions,
        needs_schema=False,
    ),
    Check("slots", "replication slots", vacuum.slots, needs_schema=False),
    Check("lock_waits", "table locks", queue.lock_waits),
    Check("waits", "waiting times", queue.waits),
    Check("leases", "leases", queue.leases),
    Check("overdue", "scheduled jobs", queue.overdue),
    Check("families", "waiting families", queue.families),
    Check("rows", "rows changed by hand", queue.rows_by_hand),
)


def examine(
    target: str | URL | Engine,
    *,
    schema: str = "jobstore",
    thresholds: Thresholds = Thresholds(),
) -> Report:
    """
    Look at *schema* and its server, and report what is wrong.

    Takes two connections for a moment, changes nothing, and locks nothing that
    anybody would wait for. For every finding a role needs SELECT on the schema's
    views and tables and membership in pg_monitor; what it may not see is a finding.

    Raises:
        StoreUnavailable: The database could not be reached, or was lost midway.
        InvalidInput: The DSN or the schema's name is none.
    """
    with looking(target, schema, thresholds) as look:
        revision = migrate.current(look.engine, schema=schema)
        findings: list[Finding] = []
        checks: dict[str, Severity | None] = {}
        for check in CHECKS:
            if check.needs_schema and revision is None:
                checks[check.name] = None
                continue
            found = list(_run(check, look))
            findings += found
            checks[check.name] = (
                worst_first(found)[0].severity if found else Severity.OK
            )
        return Report(
            schema=schema,
            server_version=look.row("SELECT current_setting('server_version')")[0],
            revision=revision,
            expected_revision=migrate.head(),
            checked_at=server_time(look),
            checks=checks,
            findings=worst_first(findings),
        )


def _run(check: Check, look: Look) -> Iterator[Finding]:
    try:
        yield from check.run(look)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        reason = str(error.orig).strip().splitlines()[0]
        yield Finding(
            check=check.name,
            severity=Severity.WARNING,
            message=f"could not be checked: {reason}",
            advice="Give the role the right to look (SELECT on the schema, membership "
            "in pg_monitor), or mend what the message names.",
        )
