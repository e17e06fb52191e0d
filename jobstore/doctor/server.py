"""
The server: its version and settings, connections, clock, and what is in between.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from jobstore.doctor.look import Look
from jobstore.doctor.report import Finding, Severity

__all__ = ["clock", "connections", "pooler", "settings", "version", "wraparound"]

_OLDEST_TESTED = 150000


def version(look: Look) -> Iterator[Finding]:
    number, name = look.row(
        "SELECT current_setting('server_version_num')::int, "
        "current_setting('server_version')"
    )
    if number < _OLDEST_TESTED:
        yield Finding(
            check="version",
            severity=Severity.WARNING,
            message=f"PostgreSQL {name} is older than 15, the oldest that is tested",
            advice="Upgrade the server.",
            figures={"server_version_num": number},
        )


# Setting, value that is bad, severity, what it means, what to do.
_BAD = (
    (
        "fsync",
        "off",
        Severity.CRITICAL,
        "a crash of the machine can destroy the database",
        "Set fsync = on and reload. For tests only: leave it.",
    ),
    (
        "full_page_writes",
        "off",
        Severity.CRITICAL,
        "a crash of the machine can damage pages beyond repair",
        "Set full_page_writes = on and reload, unless the disk tears no pages.",
    ),
    (
        "synchronous_commit",
        "off",
        Severity.WARNING,
        "a crash can lose the last acknowledged jobs and results",
        "Set synchronous_commit = on for this database or its roles.",
    ),
    (
        "autovacuum",
        "off",
        Severity.CRITICAL,
        "nobody removes dead rows, and claims get slower and slower",
        "Set autovacuum = on and reload.",
    ),
    (
        "track_counts",
        "off",
        Severity.CRITICAL,
        "autovacuum does not see what it has to do",
        "Set track_counts = on and reload.",
    ),
    (
        "default_transaction_read_only",
        "on",
        Severity.CRITICAL,
        "nothing can be created, claimed or finished",
        "Find out who made it read-only and why (a full disk?); then set it back.",
    ),
)


def settings(look: Look) -> Iterator[Finding]:
    names = [name for name, *_ in _BAD]
    values = dict(
        look.rows(
            "SELECT name, current_setting(name) FROM unnest(%(names)s::text[]) AS name",
            names=names,
        )
    )
    for name, bad, severity, meaning, advice in _BAD:
        if values[name] == bad:
            yield Finding(
                check="settings",
                severity=severity,
                subject=name,
                message=f"{name} is {bad}: {meaning}",
                advice=advice,
                figures={"value": bad},
            )
    if look.row("SELECT pg_is_in_recovery()")[0]:
        yield Finding(
            check="settings",
            severity=Severity.CRITICAL,
            subject="recovery",
            message="this server is a standby: nothing can be written here",
            advice="Connect to the primary (target_session_attrs=read-write in the DSN "
            "with several hosts).",
        )


def connections(look: Look) -> Iterator[Finding]:
    used, most = look.row("""
        SELECT
            (SELECT count(*) FROM pg_stat_activity
             WHERE backend_type = 'client backend'),
            current_setting('max_connections')::int
                - current_setting('superuser_reserved_connections')::int
    """)
    share = used / most
    if share >= look.thresholds.connections:
        yield Finding(
            check="connections",
            severity=Severity.CRITICAL if share >= 0.95 else Severity.WARNING,
            message=f"{used} of {most} connections are in use",
            advice="See who holds them: SELECT usename, application_name, count(*) "
            "FROM pg_stat_activity GROUP BY 1, 2. Lower pool_size, or put a pooler "
            "before the server.",
            figures={"used": used, "most": most},
        )


def wraparound(look: Look) -> Iterator[Finding]:
    (age,) = look.row(
        "SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()"
    )
    severity = look.graded(age, look.thresholds.transaction_age)
    # Critical with time left to act: at 3 of the thresholds, 1.5 of 2.1 billion.
    if severity and age >= 3 * look.thresholds.transaction_age:
        severity = Severity.CRITICAL
    if severity:
        yield Finding(
            check="wraparound",
            severity=severity,
            message=f"the database was not frozen for {age:,} transactions; writes "
            "stop at 2.1 billion",
            advice="See what keeps vacuum (the view snapshot_holders), end it, and "
            "run VACUUM (FREEZE) on the oldest tables.",
            figures={"transactions": age},
        )


def clock(look: Look) -> Iterator[Finding]:
    # The best of a few: the shortest round trip leaves the least doubt.
    samples = []
    for _ in range(3):
        before = look.wall_clock()
        (there,) = look.row("SELECT extract(epoch FROM clock_timestamp())::float8")
        after = look.wall_clock()
        samples.append((after - before, (before + after) / 2 - there))
    doubt, ahead = min(samples)
    if abs(ahead) - doubt > look.thresholds.clock_skew.total_seconds():
        direction = "ahead of" if ahead > 0 else "behind"
        yield Finding(
            check="clock",
            severity=Severity.WARNING,
            message=f"this machine's clock is {abs(ahead):.0f} s {direction} "
            "the server's",
            advice="Synchronise both (chrony, systemd-timesyncd). Leases and due times "
            "are right all the same: they use the server's clock alone. Ids made here "
            "carry the wrong time.",
            figures={"ahead_seconds": round(ahead, 1)},
        )


def pooler(look: Look) -> Iterator[Finding]:
    """
    Tell whether something stands between, and whether it changes sessions.

    A second connection takes the server session that the first one gave back: behind
    a pooler in transaction mode, the first then finds itself in another.
    """
    announced = look.connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
    (first,) = look.row("SELECT pg_backend_pid()")
    with look.engine.connect() as other, other.begin():
        taken = _backend(other)
        (second,) = look.row("SELECT pg_backend_pid()")
    if first != second or taken == first:
        yield Finding(
            check="pooler",
            severity=Severity.NOTE,
            subject="transaction",
            message="the DSN leads through a pooler in transaction mode",
            advice="Make stores with through_pooler=True, and give migrations and "
            "listeners a DSN that leads to the server itself.",
        )
    elif announced != first:
        yield Finding(
            check="pooler",
            severity=Severity.NOTE,
            subject="session",
            message="the DSN leads through a pooler or proxy that keeps sessions",
            advice="Nothing needs to be done.",
        )


def _backend(connection: Connection) -> int:
    pid: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return pid
