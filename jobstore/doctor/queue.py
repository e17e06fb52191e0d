"""
The queue: what waits too long, who is silent, what can't go on by itself.
"""

from collections.abc import Iterator

from jobstore.doctor.look import Look
from jobstore.doctor.report import Finding, Severity
from jobstore.lifecycle import JobClass

__all__ = [
    "families",
    "leases",
    "lock_waits",
    "overdue",
    "rows_by_hand",
    "waits",
]

_SAMPLE = 1000
"""Rows that the checks on single rows look at."""

_MOST_QUEUES = 20
"""Queues and classes that are told; when all wait, the worst say enough."""


def waits(look: Look) -> Iterator[Finding]:
    rows = look.rows("""
        SELECT queue, job_class, ready, running,
            extract(epoch FROM oldest_wait)::float8
        FROM {s}.queue_health WHERE ready > 0
        ORDER BY oldest_wait DESC
    """)
    told = 0
    for queue, job_class, ready, running, seconds in rows:
        threshold = look.thresholds.wait[JobClass(job_class)]
        severity = look.graded(seconds, threshold.total_seconds())
        if severity:
            advice = (
                "Nobody works on this queue: start workers for it."
                if not running
                else "Workers can't keep up, or are stuck. See the views "
                f"{look.named('workers')} and {look.named('running')}; add workers."
            )
            told += 1
            if told > _MOST_QUEUES:
                return
            yield Finding(
                check="waits",
                severity=severity,
                subject=f"{queue}/{job_class}",
                message=f"{job_class} jobs in queue {queue} wait for up to "
                f"{seconds:.0f} s ({ready:,} ready, {running:,} running)",
                advice=advice,
                figures={
                    "seconds": round(seconds),
                    "ready": ready,
                    "running": running,
                },
            )


def leases(look: Look) -> Iterator[Finding]:
    """
    Report all silent workers at once: a lost machine silences many.
    """
    workers, jobs, names, seconds = look.row("""
        SELECT count(*), sum(held), (array_agg(worker ORDER BY silence DESC))[:5],
            max(silence)
        FROM (
            SELECT worker, count(*) AS held,
                extract(epoch FROM max(silent_for - coalesce(own_lease, '0')))::float8
                    AS silence
            FROM {s}.stale GROUP BY worker
        ) AS silent
    """)
    severity = look.graded(seconds or 0.0, look.thresholds.silence.total_seconds())
    if severity:
        yield Finding(
            check="leases",
            severity=severity,
            subject=names[0],
            message=f"{workers} workers are silent, for up to {seconds:.0f} s, and "
            f"hold {jobs:,} jobs that no sweep took back: {', '.join(names)}"
            + (", …" if workers > len(names) else ""),
            advice="Sweeps run in every worker: is one running? By hand: the function "
            f"{look.named('release_worker')}('name', 'why')",
            figures={"workers": workers, "jobs": int(jobs), "seconds": round(seconds)},
        )


def overdue(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT queue, count(*), extract(epoch FROM max(-due_in))::float8
        FROM (
            SELECT queue, due_in FROM {s}.scheduled
            WHERE due_at <= statement_timestamp() LIMIT %(sample)s
        ) AS due
        GROUP BY queue ORDER BY queue
    """,
        sample=_SAMPLE,
    )
    for queue, jobs, seconds in rows:
        severity = look.graded(seconds, look.thresholds.silence.total_seconds())
        if severity:
            yield Finding(
                check="overdue",
                severity=severity,
                subject=queue,
                message=f"scheduled jobs of queue {queue} are overdue for "
                f"{seconds:.0f} s",
                advice="Any worker queues them when it claims: start one.",
                figures={"jobs": jobs, "seconds": round(seconds)},
            )


def families(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT id FROM (
            SELECT id FROM {s}.waiting_families LIMIT %(sample)s
        ) AS parent
        WHERE NOT EXISTS (
            SELECT FROM {s}.job AS child
            WHERE child.parent_id = parent.id AND child.finished_at IS NULL
        )
        """,
        sample=_SAMPLE,
    )
    if rows:
        yield Finding(
            check="families",
            severity=Severity.WARNING,
            subject=rows[0][0],
            message=f"{len(rows)} parents wait although all their children have ended; "
            f"{rows[0][0]} is one",
            advice="Rows were changed by hand. Workers put it right within minutes "
            "(repair_families); if none runs, start one.",
            figures={"parents": len(rows)},
        )


def rows_by_hand(look: Look) -> Iterator[Finding]:
    exhausted, without_payload = look.row(
        """
        SELECT
            (SELECT count(*) FROM {s}.job
             WHERE status = 'queued' AND attempts >= max_attempts
                AND updated_at <= statement_timestamp() - %(silence)s::interval),
            (SELECT count(*) FROM (
                SELECT id FROM {s}.ready LIMIT %(sample)s
             ) AS first
             WHERE NOT EXISTS (
                SELECT FROM {s}.payload WHERE payload.job_id = first.id
             ))
        """,
        sample=_SAMPLE,
        silence=look.thresholds.silence,
    )
    if exhausted:
        yield Finding(
            check="rows",
            severity=Severity.WARNING,
            subject="exhausted",
            message=f"{exhausted:,} queued jobs have no attempt left, and no sweep "
            "failed them",
            advice="Sweeps run in every worker: is one running? By hand: "
            "jobstore reclaim",
            figures={"jobs": exhausted},
        )
    if without_payload:
        yield Finding(
            check="rows",
            severity=Severity.WARNING,
            subject="payload",
            message=f"{without_payload:,} of the first {_SAMPLE:,} ready jobs have no "
            "payload",
            advice="Somebody deleted rows of the table payload. Restore them, or "
            f"cancel the jobs: the function {look.named('cancel_job')}('id', 'why')",
            figures={"jobs": without_payload},
        )


def lock_waits(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT waiting.pid, class.relname::text, waiting.mode,
            extract(epoch FROM statement_timestamp() - waiting.waitstart)::float8,
            pg_blocking_pids(waiting.pid)
        FROM pg_locks AS waiting
        JOIN pg_class AS class ON class.oid = waiting.relation
        JOIN pg_namespace ON pg_namespace.oid = class.relnamespace
        WHERE NOT waiting.granted AND waiting.locktype = 'relation'
            AND waiting.database = (
                SELECT oid FROM pg_database WHERE datname = current_database()
            )
            AND nspname = %(schema)s
        ORDER BY waiting.waitstart
        """,
        schema=look.schema.name,
    )
    for pid, table, mode, seconds, blockers in rows:
        severity = look.graded(
            seconds or 0.0, look.thresholds.lock_wait.total_seconds()
        )
        if severity:
            names = ", ".join(map(str, blockers)) or "a prepared transaction"
            yield Finding(
                check="lock_waits",
                severity=severity,
                subject=table,
                message=f"backend {pid} waits for {mode} on table {table} for "
                f"{seconds:.0f} s, behind {names}; claims may queue behind it",
                advice="Look at both in pg_stat_activity. To let the others through, "
                f"cancel the one that waits: SELECT pg_cancel_backend({pid})",
                figures={"pid": pid, "seconds": round(seconds), "blockers": names},
            )
