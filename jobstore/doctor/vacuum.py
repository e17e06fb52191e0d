"""
Vacuum: dead rows, empty space, and who keeps both from being removed.
"""

from collections.abc import Iterator

from jobstore.doctor.look import Look
from jobstore.doctor.report import Finding, Severity

__all__ = ["bloat", "dead_rows", "idle_transactions", "slots", "snapshots"]

_LEAST_DEAD = 1000


def dead_rows(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT health.table_name, dead_rows, vacuum_at_dead_rows, last_vacuum_at::text,
            coalesce((
                SELECT option_value::bool FROM pg_options_to_table(class.reloptions)
                WHERE option_name = 'autovacuum_enabled'
            ), true)
        FROM {s}.table_health AS health
        JOIN pg_class AS class ON class.relname = health.table_name
        JOIN pg_namespace ON pg_namespace.oid = class.relnamespace
        WHERE nspname = %(schema)s
        """,
        schema=look.schema.name,
    )
    for table, dead, due_at, last, is_on in rows:
        if not is_on:
            yield Finding(
                check="dead_rows",
                severity=Severity.CRITICAL,
                subject=table,
                message=f"autovacuum is turned off for table {table}",
                advice=f"ALTER TABLE {look.named(table)} RESET (autovacuum_enabled)",
            )
        severity = look.graded(
            dead, max(due_at * look.thresholds.dead_rows, _LEAST_DEAD)
        )
        if severity:
            yield Finding(
                check="dead_rows",
                severity=severity,
                subject=table,
                message=f"table {table} has {dead:,} dead rows; autovacuum should come "
                f"at {due_at:,}; the last vacuum was {last or 'never'}",
                advice=f"See the view {look.named('snapshot_holders')} first: while "
                "somebody holds an old snapshot no vacuum helps. Else VACUUM the table "
                "now, and look at autovacuum_max_workers and "
                "autovacuum_vacuum_cost_limit.",
                figures={"dead_rows": dead, "vacuum_at_dead_rows": due_at},
            )


# Dead entries at the head of this index are what slows claims down.
_LARGEST_ENTRY = 512


def bloat(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT pg_relation_size(index.oid), (
            SELECT count(*) FROM {s}.job
            WHERE status = 'queued' AND attempts < max_attempts
        )
        FROM pg_class AS index
        JOIN pg_namespace ON pg_namespace.oid = index.relnamespace
        WHERE nspname = %(schema)s AND relname = 'job_ready_idx'
        """,
        schema=look.schema.name,
    )
    for size, entries in rows:
        if size >= look.thresholds.bloat_bytes and size > entries * _LARGEST_ENTRY:
            yield Finding(
                check="bloat",
                severity=Severity.WARNING,
                subject="job_ready_idx",
                message=f"the index of ready jobs takes {size:,} bytes for {entries:,} "
                "jobs",
                advice="After a large backlog or a held snapshot this is what is left. "
                f"REINDEX INDEX CONCURRENTLY {look.named('job_ready_idx')}",
                figures={"bytes": size, "entries": entries},
            )


def snapshots(look: Look) -> Iterator[Finding]:
    rows = look.rows("""
        SELECT kind, holder, coalesce(role_name, ''), coalesce(state, ''),
            extract(epoch FROM held_for)::float8, transactions, to_end_it
        FROM {s}.snapshot_holders
        WHERE kind <> 'replication slot'
    """)
    for kind, holder, role, state, seconds, transactions, to_end_it in rows:
        severity = look.graded(seconds or 0.0, look.thresholds.snapshot.total_seconds())
        if severity:
            yield Finding(
                check="snapshots",
                severity=severity,
                subject=holder,
                message=f"{kind} {holder} of {role or 'somebody'} "
                f"({state or 'unknown'}) holds a snapshot for {seconds:.0f} s: no row "
                "that died since then can go",
                advice=f"Know whose work it is, then: {to_end_it}",
                figures={"seconds": round(seconds), "transactions": transactions},
            )


def idle_transactions(look: Look) -> Iterator[Finding]:
    rows = look.rows("""
        SELECT pid, coalesce(usename::text, ''), application_name,
            extract(epoch FROM statement_timestamp() - state_change)::float8
        FROM pg_stat_activity
        WHERE state LIKE 'idle in transaction%%' AND datname = current_database()
        ORDER BY state_change
    """)
    for pid, role, application, seconds in rows:
        severity = look.graded(seconds, look.thresholds.snapshot.total_seconds())
        if severity:
            yield Finding(
                check="idle_transactions",
                severity=severity,
                subject=f"backend {pid}",
                message=f"backend {pid} of {role} ({application or 'no name'}) idles "
                f"in a transaction for {seconds:.0f} s and keeps its locks",
                advice="Mend the program that forgot to commit, then: "
                f"SELECT pg_terminate_backend({pid})",
                figures={"pid": pid, "seconds": round(seconds)},
            )


def slots(look: Look) -> Iterator[Finding]:
    rows = look.rows("""
        SELECT slot_name::text, active, coalesce(wal_status, ''),
            coalesce(age(xmin), 0),
            coalesce(pg_wal_lsn_diff(
                CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                    ELSE pg_current_wal_lsn() END,
                restart_lsn
            ), 0)::bigint
        FROM pg_replication_slots
        ORDER BY 1
    """)
    for name, is_active, wal_status, age, retained in rows:
        severity = (
            None if is_active else look.graded(retained, look.thresholds.slot_bytes)
        )
        if wal_status in {"unreserved", "lost"} or (not is_active and age):
            severity = severity or Severity.WARNING
        if severity:
            yield Finding(
                check="slots",
                severity=severity,
                subject=name,
                message=f"replication slot {name} is "
                f"{'active' if is_active else 'inactive'} and retains {retained:,} "
                f"bytes of WAL ({wal_status}); the disk can fill up",
                advice="If its consumer is gone for good: "
                f"SELECT pg_drop_replication_slot('{name}')",
                figures={"bytes": retained, "transactions": age, "active": is_active},
            )
