"""
Add what an operator reads: views on the queue, its tables and its snapshot holders.

The views are an interface: a later revision may add columns at the end, and nothing
else. None shows a payload, a result or an idempotency key. All of them read open jobs,
the last day's failures or the catalog, by the partial indexes; none reads history.

Locks: ACCESS SHARE on the tables, which stops nobody.
Duration: milliseconds.
Undo: drops the views. No job is touched.
"""

from alembic import context, op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
# The oldest code that works on it, as the revision which that code knew best.
compatible_from = "0001"

# {s} stands for the quoted schema, {l} for the table job as a string literal.
ULID_AT = """
CREATE FUNCTION {s}.ulid_at(at timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (
        SELECT string_agg(
            substr(
                '0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                ((((extract(epoch FROM at) * 1000)::bigint) >> (5 * (9 - place))) & 31)::int + 1,
                1
            ),
            '' ORDER BY place
        ) || '0000000000000000'
        FROM generate_series(0, 9) AS place
    ) COLLATE "C"
"""

ULID_AT_COMMENT = "The smallest id of a job created at this instant: WHERE id >= ulid_at(now() - '1 hour') finds the jobs of the last hour by the primary key. As exact as the clocks of the clients that made the ids."

COMMON = {
    "id": "The job.",
    "tenant": "Whose job it is.",
    "queue": "The queue it is routed to.",
    "kind": "What it is; the label of its handler.",
    "job_class": "interactive before system before batch.",
    "attempts": "Attempts charged so far, a running one included.",
    "max_attempts": "At this many attempts a failure is final.",
    "parent_id": "The job that this one is a part of.",
    "created_at": "When it was created; its place in line, kept through retries.",
    "last_error_code": "Why its last attempt failed, if one did.",
    "worker": "Who holds it, or held it last.",
    "fence": "Fencing token of the attempt.",
    "started_at": "When the latest attempt was claimed.",
    "heartbeat_at": "Last sign of life from the holder.",
    "silent_for": "Time since the last sign of life.",
    "own_lease": "If set, the job can't be reclaimed earlier than this after heartbeat_at.",
}

RUNNING = """
    SELECT id, tenant, queue, kind, job_class, worker,
        statement_timestamp() - started_at AS running_for,
        statement_timestamp() - heartbeat_at AS silent_for,
        attempts, max_attempts, fence, started_at, heartbeat_at, lease AS own_lease,
        parent_id
    FROM {s}.job
    WHERE status = 'processing'
"""

# Name: comment, columns that COMMON describes, query, comments on its other columns.
VIEWS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "ready": (
        "Jobs that wait to be claimed, in the order they will be: SELECT * FROM ready LIMIT 20.",
        "id tenant queue kind job_class created_at attempts max_attempts last_error_code parent_id",
        """
        SELECT id, tenant, queue, kind, job_class,
            statement_timestamp() - updated_at AS waited,
            created_at, updated_at AS ready_since, attempts, max_attempts,
            error_code AS last_error_code, parent_id
        FROM {s}.job
        WHERE status = 'queued' AND attempts < max_attempts
        ORDER BY job.queue, class_rank, created_at, id
        """,
        {
            "waited": "Time since it was queued, or queued again.",
            "ready_since": "When it was queued, or queued again.",
        },
    ),
    "running": (
        "Jobs that a worker holds, longest running first.",
        "id tenant queue kind job_class worker silent_for attempts max_attempts fence started_at heartbeat_at own_lease parent_id",
        f"{RUNNING} ORDER BY job.started_at, id",
        {"running_for": "Time since the attempt was claimed."},
    ),
    "stale": (
        "Running jobs whose worker was silent for over a minute, and longer than the job's own lease: probably dead. A worker's sweep gives them back after its visibility timeout; release_worker does it now.",
        "id tenant queue kind job_class worker silent_for attempts max_attempts fence started_at heartbeat_at own_lease parent_id",
        f"""{RUNNING}
        AND heartbeat_at <= statement_timestamp()
            - greatest(interval '1 minute', coalesce(lease, '0'))
        ORDER BY job.heartbeat_at, id
        """,
        {"running_for": "Time since the attempt was claimed."},
    ),
    "scheduled": (
        "Jobs that are due later, next one first: new ones, and those that wait for a retry.",
        "id tenant queue kind job_class attempts max_attempts last_error_code created_at parent_id",
        """
        SELECT id, tenant, queue, kind, job_class,
            available_at - statement_timestamp() AS due_in,
            available_at AS due_at, attempts, max_attempts,
            error_code AS last_error_code, created_at, parent_id
        FROM {s}.job
        WHERE status = 'scheduled'
        ORDER BY job.available_at, id
        """,
        {
            "due_in": "Time until it is due; negative: overdue, because no worker looks.",
            "due_at": "It joins the line at this instant.",
        },
    ),
    "waiting_families": (
        "Parents that wait for their children, oldest first.",
        "id tenant queue kind job_class created_at parent_id",
        """
        SELECT job.id, job.tenant, job.queue, job.kind, job.job_class,
            statement_timestamp() - coalesce(parked.ended_at, job.updated_at) AS waited,
            job.children_open, job.children_failed, job.children_total,
            job.on_child_failure,
            coalesce(parked.ended_at, job.updated_at) AS waiting_since,
            job.updated_at AS last_child_ended_at, job.created_at, job.parent_id
        FROM {s}.job
        LEFT JOIN LATERAL (
            SELECT attempt.ended_at FROM {s}.attempt
            WHERE attempt.job_id = job.id AND attempt.fence = job.fence
        ) AS parked ON true
        WHERE job.status = 'waiting'
        ORDER BY job.id
        """,
        {
            "waited": "Time since it fanned out.",
            "children_open": "Children that have not ended; at 0 the parent goes on.",
            "children_failed": "Children that ended failed or cancelled.",
            "children_total": "Children ever created under it.",
            "on_child_failure": "When the last child has ended and not all completed: resume, or fail.",
            "waiting_since": "When it fanned out.",
            "last_child_ended_at": "When its row last changed: its last child that ended, or its fan-out.",
        },
    ),
    "recent_failures": (
        "Jobs that failed for good in the last 24 hours, newest first. retry_failed runs them again.",
        "id tenant queue kind job_class attempts max_attempts worker parent_id",
        """
        SELECT id, tenant, queue, kind, job_class, error_code,
            left(error_message, 300) AS error_message,
            statement_timestamp() - finished_at AS failed_ago,
            finished_at AS failed_at, attempts, max_attempts, worker, parent_id
        FROM {s}.job
        WHERE status = 'failed'
            AND finished_at > statement_timestamp() - interval '24 hours'
        ORDER BY job.finished_at DESC, id DESC
        """,
        {
            "error_code": "Why, short and stable.",
            "error_message": "Why, for people; the first 300 characters of what the handler said.",
            "failed_ago": "Time since it failed.",
            "failed_at": "When it failed.",
        },
    ),
    "workers": (
        "Who holds jobs, most silent first. An idle worker holds none and is not here.",
        "",
        """
        SELECT worker, count(*) AS running,
            statement_timestamp() - max(heartbeat_at) AS silent_for,
            statement_timestamp() - min(started_at) AS longest_running,
            max(heartbeat_at) AS heartbeat_at,
            array_agg(DISTINCT queue) AS queues
        FROM {s}.job
        WHERE status = 'processing'
        GROUP BY worker
        ORDER BY max(job.heartbeat_at), worker
        """,
        {
            "worker": "Its name, unique for each process start.",
            "running": "Jobs it holds.",
            "silent_for": "Time since its last sign of life for any of them.",
            "longest_running": "How long it has held the oldest of them.",
            "heartbeat_at": "Its last sign of life.",
            "queues": "Queues they came from.",
        },
    ),
    "tenant_backlog": (
        "Open jobs by tenant, largest backlog first. Reads every open job: a second or two for each million.",
        "",
        """
        SELECT tenant,
            count(*) FILTER (WHERE state = 'ready') AS ready,
            max(waited) AS oldest_wait,
            max(waited) FILTER (WHERE class_rank = 0) AS oldest_interactive_wait,
            max(waited) FILTER (WHERE class_rank = 1) AS oldest_system_wait,
            max(waited) FILTER (WHERE class_rank = 2) AS oldest_batch_wait,
            count(*) FILTER (WHERE state = 'running') AS running,
            count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
            count(*) FILTER (WHERE state = 'waiting') AS waiting
        FROM (
            SELECT tenant, class_rank, 'ready' AS state,
                statement_timestamp() - updated_at AS waited
            FROM {s}.job WHERE status = 'queued' AND attempts < max_attempts
            UNION ALL
            SELECT tenant, class_rank, 'running', NULL
            FROM {s}.job WHERE status = 'processing'
            UNION ALL
            SELECT tenant, class_rank, 'scheduled', NULL
            FROM {s}.job WHERE status = 'scheduled'
            UNION ALL
            SELECT tenant, class_rank, 'waiting', NULL
            FROM {s}.job WHERE status = 'waiting'
        ) AS open
        GROUP BY tenant
        ORDER BY 2 DESC, tenant
        """,
        {
            "tenant": "The tenant.",
            "ready": "Jobs that wait to be claimed.",
            "oldest_wait": "Longest time that one of those has waited.",
            "oldest_interactive_wait": "The same among interactive jobs.",
            "oldest_system_wait": "The same among system jobs.",
            "oldest_batch_wait": "The same among batch jobs.",
            "running": "Jobs that workers hold.",
            "scheduled": "Jobs that are due later.",
            "waiting": "Parents that wait for their children.",
        },
    ),
    "queue_health": (
        "One line for each queue and class: backlog, age, expired leases, and the flow of the last five minutes. Reads every open job, and those of the five minutes.",
        "",
        """
        SELECT queue,
            CASE class_rank WHEN 0 THEN 'interactive' WHEN 1 THEN 'system' ELSE 'batch' END
                AS job_class,
            coalesce(sum(jobs) FILTER (WHERE state = 'ready'), 0)::bigint AS ready,
            statement_timestamp() - min(at) FILTER (WHERE state = 'ready') AS oldest_wait,
            coalesce(sum(jobs) FILTER (WHERE state = 'running'), 0)::bigint AS running,
            coalesce(sum(jobs) FILTER (WHERE state = 'expired'), 0)::bigint AS expired_leases,
            coalesce(sum(jobs) FILTER (WHERE state = 'scheduled'), 0)::bigint AS scheduled,
            min(at) FILTER (WHERE state = 'scheduled') AS next_due_at,
            coalesce(sum(jobs) FILTER (WHERE state = 'waiting'), 0)::bigint AS waiting,
            coalesce(sum(jobs) FILTER (WHERE state = 'exhausted'), 0)::bigint AS exhausted,
            coalesce(sum(jobs) FILTER (WHERE state = 'created'), 0)::bigint AS created_5min,
            coalesce(sum(jobs) FILTER (WHERE state = 'completed'), 0)::bigint AS completed_5min,
            coalesce(sum(jobs) FILTER (WHERE state = 'failed'), 0)::bigint AS failed_5min,
            coalesce(sum(jobs) FILTER (WHERE state = 'cancelled'), 0)::bigint AS cancelled_5min
        FROM (
            SELECT queue, class_rank, 'ready' AS state, count(*) AS jobs, min(updated_at) AS at
            FROM {s}.job WHERE status = 'queued' AND attempts < max_attempts
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'exhausted', count(*), NULL
            FROM {s}.job WHERE status = 'queued' AND attempts >= max_attempts
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'running', count(*), NULL
            FROM {s}.job WHERE status = 'processing'
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'expired', count(*), NULL
            FROM {s}.job
            WHERE status = 'processing'
                AND heartbeat_at <= statement_timestamp()
                    - greatest(interval '1 minute', coalesce(lease, '0'))
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'scheduled', count(*), min(available_at)
            FROM {s}.job WHERE status = 'scheduled'
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'waiting', count(*), NULL
            FROM {s}.job WHERE status = 'waiting'
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, 'created', count(*), NULL
            FROM {s}.job
            WHERE id >= {s}.ulid_at(statement_timestamp() - interval '5 minutes')
            GROUP BY queue, class_rank
            UNION ALL
            SELECT queue, class_rank, status, count(*), NULL
            FROM {s}.job
            WHERE finished_at > statement_timestamp() - interval '5 minutes'
            GROUP BY queue, class_rank, status
        ) AS counted
        GROUP BY queue, class_rank
        ORDER BY queue, class_rank
        """,
        {
            "queue": "The queue.",
            "job_class": "The class.",
            "ready": "Jobs that wait to be claimed.",
            "oldest_wait": "Longest time that one of those has waited.",
            "running": "Jobs that workers hold.",
            "expired_leases": "Those among them that are in the view stale.",
            "scheduled": "Jobs that are due later.",
            "next_due_at": "When the first of those is due; in the past: overdue.",
            "waiting": "Parents that wait for their children.",
            "exhausted": "Queued with no attempt left: a sweep will fail them.",
            "created_5min": "Jobs created in the last five minutes, by the clocks of their clients.",
            "completed_5min": "Jobs completed in the last five minutes.",
            "failed_5min": "Jobs failed for good in the last five minutes.",
            "cancelled_5min": "Jobs cancelled in the last five minutes.",
        },
    ),
    "table_health": (
        "Size, dead rows and vacuum of jobstore's tables, from the statistics of the server.",
        "",
        """
        SELECT stat.relname::text AS table_name,
            stat.n_live_tup AS live_rows,
            stat.n_dead_tup AS dead_rows,
            round(100.0 * stat.n_dead_tup / greatest(stat.n_live_tup + stat.n_dead_tup, 1), 1)
                AS dead_percent,
            (
                coalesce(chosen.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
                + coalesce(chosen.scale, current_setting('autovacuum_vacuum_scale_factor')::float8)
                    * greatest(class.reltuples, 0)
            )::bigint AS vacuum_at_dead_rows,
            greatest(stat.last_vacuum, stat.last_autovacuum) AS last_vacuum_at,
            greatest(stat.last_analyze, stat.last_autoanalyze) AS last_analyze_at,
            (stat.vacuum_count + stat.autovacuum_count) AS vacuums,
            pg_table_size(class.oid) AS table_bytes,
            pg_indexes_size(class.oid) AS index_bytes,
            pg_size_pretty(pg_total_relation_size(class.oid)) AS total_size,
            ARRAY(
                SELECT index.relname::text
                FROM pg_index JOIN pg_class AS index ON index.oid = pg_index.indexrelid
                WHERE pg_index.indrelid = class.oid
                    AND NOT (pg_index.indisvalid AND pg_index.indisready)
                ORDER BY 1
            ) AS invalid_indexes
        FROM pg_class AS class
        JOIN pg_stat_all_tables AS stat ON stat.relid = class.oid
        CROSS JOIN LATERAL (
            SELECT
                max(option_value) FILTER (
                    WHERE option_name = 'autovacuum_vacuum_threshold'
                )::float8 AS threshold,
                max(option_value) FILTER (
                    WHERE option_name = 'autovacuum_vacuum_scale_factor'
                )::float8 AS scale
            FROM pg_options_to_table(class.reloptions)
        ) AS chosen
        WHERE class.relkind = 'r' AND class.relname <> 'jobstore_version'
            AND class.relnamespace = (
                SELECT relnamespace FROM pg_class WHERE oid = {l}::regclass
            )
        ORDER BY pg_table_size(class.oid) DESC, stat.relname
        """,
        {
            "table_name": "The table.",
            "live_rows": "Rows, as the server estimates.",
            "dead_rows": "Old versions of rows that vacuum has not removed yet.",
            "dead_percent": "Share of those.",
            "vacuum_at_dead_rows": "Autovacuum comes at about this many dead rows. Many more than this: it can't keep up, or somebody holds an old snapshot.",
            "last_vacuum_at": "When it was last vacuumed, by autovacuum or by hand.",
            "last_analyze_at": "When it was last analysed.",
            "vacuums": "How often it was vacuumed since statistics were reset.",
            "table_bytes": "Size with out-of-line values, without indexes.",
            "index_bytes": "Size of its indexes.",
            "total_size": "Both, for people.",
            "invalid_indexes": "Indexes that a build left unfinished: they cost writes and serve nobody. jobstore doctor says what to do.",
        },
    ),
    "snapshot_holders": (
        "Who keeps vacuum from removing dead rows in this database, oldest snapshot first. Other roles' sessions show their state only to members of pg_read_all_stats.",
        "",
        """
        SELECT kind, holder, pid, role_name, held_for, transactions, state, application,
            held_since, query_started_at, to_end_it
        FROM (
            SELECT CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'session' END AS kind,
                'backend ' || pid AS holder, pid, usename::text AS role_name,
                statement_timestamp() - xact_start AS held_for,
                greatest(age(backend_xmin), age(backend_xid)) AS transactions,
                state, application_name AS application,
                xact_start AS held_since, query_start AS query_started_at,
                'SELECT pg_terminate_backend(' || pid || ')' AS to_end_it
            FROM pg_stat_activity
            WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
                AND (datname = current_database() OR backend_type = 'walsender')
                AND backend_type <> 'autovacuum worker'
                AND pid <> pg_backend_pid()
            UNION ALL
            SELECT 'prepared transaction', gid, NULL, owner::text,
                statement_timestamp() - prepared, age(transaction),
                'prepared', NULL, prepared, NULL,
                'ROLLBACK PREPARED ' || quote_literal(gid)
            FROM pg_prepared_xacts
            WHERE database = current_database()
            UNION ALL
            SELECT 'replication slot', slot_name::text, active_pid, NULL,
                NULL, age(xmin),
                CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, NULL, NULL,
                'SELECT pg_drop_replication_slot(' || quote_literal(slot_name) || ')'
            FROM pg_replication_slots
            WHERE xmin IS NOT NULL
        ) AS holders
        ORDER BY transactions DESC, held_since
        """,
        {
            "kind": "session, standby (its feedback), prepared transaction, or replication slot.",
            "holder": "Backend, transaction or slot.",
            "pid": "Process id on the server.",
            "role_name": "Who it is.",
            "held_for": "Age of its transaction; empty where the server does not tell.",
            "transactions": "How many transactions have begun since its snapshot: the larger, the more dead rows it keeps.",
            "state": "What it is doing; idle in transaction: forgotten, most likely.",
            "application": "Its application_name.",
            "held_since": "When its transaction began.",
            "query_started_at": "When its present or last query began.",
            "to_end_it": "The statement that ends it. Know first whose it is: its work is lost.",
        },
    ),
}


def upgrade() -> None:
    _run(ULID_AT)
    _comment("FUNCTION {s}.ulid_at(timestamptz)", ULID_AT_COMMENT)
    for name, (comment, common, query, own) in VIEWS.items():
        _run(f"CREATE VIEW {{s}}.{name} AS {query.strip()}")
        _comment(f"VIEW {{s}}.{name}", comment)
        described = {column: COMMON[column] for column in common.split()}
        for column, text in {**described, **own}.items():
            _comment(f"COLUMN {{s}}.{name}.{column}", text)


def downgrade() -> None:
    for name in reversed(VIEWS):
        _run(f"DROP VIEW {{s}}.{name}")
    _run("DROP FUNCTION {s}.ulid_at(timestamptz)")


def _comment(on: str, text: str) -> None:
    _run(f"COMMENT ON {on} IS '" + text.replace("'", "''") + "'")


def _run(sql: str) -> None:
    quoted = '"' + context.config.attributes["schema"].replace('"', '""') + '"'
    literal = "'" + f"{quoted}.job".replace("'", "''") + "'"
    # As it stands: no parameters, so no escaping of %; only text()'s own colons.
    statement = sql.replace("{s}", quoted).replace("{l}", literal)
    op.execute(statement.replace(":", r"\:"))
