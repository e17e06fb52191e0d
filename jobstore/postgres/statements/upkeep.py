"""
Sweeps: expired leases, used-up attempts, old families.
"""

from jobstore.postgres.statements.finish import HISTORY

__all__ = ["DROP_KEYS", "FAIL_EXHAUSTED", "OLD_ROOTS", "PRUNE", "RECLAIM"]

# Expired leases. The row's own lease, if it has one, can only lengthen the wait.
# Locks: skips what others hold: their holder is alive. Index: job_processing_idx.
RECLAIM = f"""
WITH stale AS MATERIALIZED (
    SELECT id FROM {{s}}.job
    WHERE status = 'processing'
      AND coalesce(heartbeat_at, '-infinity') <= statement_timestamp()
          - greatest(%(visibility_timeout)s::interval, coalesce(lease, '0'))
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE {{s}}.job
    SET status = CASE WHEN attempts >= max_attempts THEN 'failed' ELSE 'queued' END,
        finished_at = CASE
            WHEN attempts >= max_attempts THEN statement_timestamp()
        END,
        error_code = CASE
            WHEN attempts >= max_attempts THEN 'ATTEMPTS_EXHAUSTED' ELSE error_code
        END,
        error_message = CASE
            WHEN attempts >= max_attempts
            THEN 'the worker went silent on the last of ' || max_attempts || ' attempts'
            ELSE error_message
        END,
        heartbeat_at = NULL,
        lease = NULL,
        updated_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT id FROM stale))
    RETURNING id, fence, status, parent_id, queue, worker, started_at,
        attempts AS attempt, 'lease_expired' AS outcome,
        CASE WHEN status = 'failed' THEN error_code END AS error_code,
        CASE WHEN status = 'failed' THEN error_message END AS error_message
), history AS ({HISTORY})
SELECT status, parent_id, queue FROM ended
"""

# Queued, but with no attempt left: only a hand or a lowered limit makes these.
# Index: job_exhausted_idx.
FAIL_EXHAUSTED = """
WITH exhausted AS MATERIALIZED (
    SELECT id FROM {s}.job
    WHERE status = 'queued' AND attempts >= max_attempts
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE {s}.job
SET status = 'failed',
    finished_at = statement_timestamp(),
    error_code = 'ATTEMPTS_EXHAUSTED',
    error_message = 'queued with no attempt left of ' || max_attempts,
    updated_at = statement_timestamp()
WHERE id = ANY(ARRAY(SELECT id FROM exhausted))
RETURNING status, parent_id, queue
"""

# Heads of families that ended long ago, oldest first, from a cursor on: a family that
# cannot go yet must not hide those behind it. Index: job_finished_idx.
OLD_ROOTS = """
SELECT id, finished_at FROM {s}.job
WHERE finished_at < statement_timestamp() - %(older_than)s::interval
  AND (finished_at, id) > (%(after_at)s::timestamptz, %(after_id)s)
  AND parent_id IS NULL
  AND status = ANY(%(statuses)b::text[])
ORDER BY finished_at, id
LIMIT %(limit)s
"""

# Whole families or nothing: every member must have ended that long ago, and none may
# be held by anybody else. Payloads and history go by their foreign keys.
PRUNE = """
WITH RECURSIVE family (root, id) AS (
    SELECT root.id, root.id COLLATE "C"
    FROM unnest(%(roots)b::text[]) AS root (id)
    UNION ALL
    SELECT family.root, child.id
    FROM family
    CROSS JOIN LATERAL (
        SELECT id FROM {s}.job WHERE job.parent_id = family.id
        OFFSET 0 -- keeps the planner from joining the whole table instead
    ) AS child
), locked AS MATERIALIZED (
    SELECT job.id, job.tenant, job.idem_key,
        job.finished_at < statement_timestamp() - %(older_than)s::interval
            AND job.status = ANY(%(statuses)b::text[]) AS old
    FROM {s}.job
    WHERE id = ANY(ARRAY(SELECT id FROM family))
    FOR UPDATE SKIP LOCKED
), whole AS MATERIALIZED (
    SELECT family.root
    FROM family LEFT JOIN locked USING (id)
    GROUP BY family.root
    HAVING bool_and(coalesce(locked.old, false))
), going AS MATERIALIZED (
    SELECT locked.*
    FROM whole JOIN family USING (root) JOIN locked USING (id)
), held AS MATERIALIZED (
    SELECT key.ctid AS place,
        key.created_at + %(keep_keys_for)s::interval AS expires_at
    FROM going
    CROSS JOIN LATERAL (
        SELECT ctid, created_at FROM {s}.idempotency_key
        WHERE tenant = going.tenant AND idem_key = going.idem_key
          AND job_id = going.id
        OFFSET 0
    ) AS key
), staying AS (
    -- Whoever holds the lock on the job is the only one to touch its key.
    UPDATE {s}.idempotency_key
    SET expires_at = created_at + %(keep_keys_for)s::interval
    WHERE ctid = ANY(ARRAY(
        SELECT place FROM held WHERE expires_at > statement_timestamp()
    ))
), dropped AS (
    DELETE FROM {s}.idempotency_key
    WHERE ctid = ANY(ARRAY(
        SELECT place FROM held WHERE expires_at <= statement_timestamp()
    ))
), gone AS (
    DELETE FROM {s}.job
    WHERE id = ANY(ARRAY(SELECT id FROM going))
    RETURNING id
)
SELECT count(*) FROM gone
"""

# Keys that outlived their jobs, and whose own time is up. Index:
# idempotency_key_expiry_idx.
DROP_KEYS = """
WITH expired AS MATERIALIZED (
    SELECT ctid FROM {s}.idempotency_key
    WHERE expires_at <= statement_timestamp()
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {s}.idempotency_key
WHERE ctid = ANY(ARRAY(SELECT ctid FROM expired))
"""
