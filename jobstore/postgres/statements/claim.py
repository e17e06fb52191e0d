"""
Claiming, and staying alive.
"""

from jobstore.postgres.rows import JOB_COLUMNS

__all__ = ["CLAIM", "CLAIM_CLASS", "HEARTBEAT", "PROMOTE_DUE"]

# The best ready jobs of one class, in claim order.
# Locks: the rows it returns; those locked by others are skipped. Index: job_ready_idx,
# whose order this is. The floor is a lower bound below which there is nothing to
# claim, so that a claim need not walk the dead entries there; see ClaimHints.
_READY = """
    SELECT id FROM {{s}}.job
    WHERE queue = %(queue)s
      AND class_rank = {rank}
      AND status = 'queued' AND attempts < max_attempts
      AND created_at >= %({floor})s::timestamptz
    ORDER BY class_rank, created_at, id
    LIMIT {limit}
    FOR UPDATE SKIP LOCKED
"""

_TAKE = """
    UPDATE {{s}}.job
    SET status = 'processing',
        attempts = attempts + 1,
        fence = fence + 1,
        worker = %(worker)s,
        lease = %(lease)s::interval,
        started_at = statement_timestamp(),
        heartbeat_at = statement_timestamp(),
        updated_at = statement_timestamp()
    WHERE id = ANY(ARRAY({ready}))
    RETURNING {columns}, class_rank
"""


def _claim(branches: dict[str, str], ready: str) -> str:
    chosen = ", ".join(
        f"{name} AS MATERIALIZED ({query})" for name, query in branches.items()
    )
    take = _TAKE.format(ready=ready, columns=JOB_COLUMNS)
    # The branches are rendered already; what is left of braces is the schema's {s}.
    return (
        f"WITH {chosen}, claimed AS ({take.replace('{{s}}', '{s}')}) "
        f"SELECT {JOB_COLUMNS} FROM claimed AS job ORDER BY class_rank, created_at, id"
    )


CLAIM_CLASS = _claim(
    {
        "ready": _READY.format(
            rank="%(class_rank)s", floor="floor", limit="%(limit)s::int"
        )
    },
    "SELECT id FROM ready",
)

# All classes: each is asked only for what the better ones left over.
CLAIM = _claim(
    {
        "interactive": _READY.format(rank=0, floor="floor_0", limit="%(limit)s::int"),
        "system": _READY.format(
            rank=1,
            floor="floor_1",
            limit="%(limit)s::int - (SELECT count(*) FROM interactive)",
        ),
        "batch": _READY.format(
            rank=2,
            floor="floor_2",
            limit="%(limit)s::int - (SELECT count(*) FROM interactive)"
            " - (SELECT count(*) FROM system)",
        ),
    },
    "SELECT id FROM interactive UNION ALL SELECT id FROM system"
    " UNION ALL SELECT id FROM batch",
)

# All leases of a process at once. heartbeat_at and updated_at stand in no index, so
# these updates are HOT. A row that is locked is skipped: its own holder is finishing
# it, or somebody else writes it; the snapshot tells whether the lease still stands.
# Index: job_pkey.
HEARTBEAT = """
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(job_ids)b::text[], %(fences)b::bigint[])
        WITH ORDINALITY AS asked (id, fence, place)
), held AS MATERIALIZED (
    SELECT job.id
    FROM asked
    CROSS JOIN LATERAL (
        SELECT id FROM {s}.job
        WHERE job.id = asked.id AND job.fence = asked.fence
          AND job.heartbeat_at IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
), beaten AS (
    UPDATE {s}.job
    SET heartbeat_at = statement_timestamp(),
        updated_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT id FROM held))
)
SELECT
    asked.place,
    coalesce(job.heartbeat_at IS NOT NULL AND job.fence = asked.fence, false),
    coalesce(job.status = 'cancelled' AND job.fence = asked.fence, false)
FROM asked
LEFT JOIN LATERAL (
    SELECT heartbeat_at, fence, status FROM {s}.job WHERE job.id = asked.id
) AS job ON true
"""

# Locks: the rows it changes; skips what others hold. Index: job_scheduled_idx.
PROMOTE_DUE = """
WITH due AS MATERIALIZED (
    SELECT id FROM {s}.job
    WHERE status = 'scheduled' AND available_at <= statement_timestamp()
    ORDER BY available_at, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE {s}.job
SET status = 'queued',
    updated_at = statement_timestamp()
WHERE id = ANY(ARRAY(SELECT id FROM due))
RETURNING queue
"""
