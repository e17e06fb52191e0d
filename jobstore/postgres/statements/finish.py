"""
Ending attempts. Every statement here is fenced: it finds its row by id, fence and a
living lease, and changes nothing otherwise. Index: job_pkey.
"""

__all__ = [
    "COMPLETE",
    "COMPLETE_MANY",
    "COMPLETE_ORPHANS",
    "FAIL_MANY",
    "GIVE_BACK_MANY",
    "HISTORY",
    "LOCK_LEASE",
    "LOOK_UP_LEASES",
    "PARK",
    "PARKED",
    "READ_ATTEMPTS",
]

_COMPLETED = """
    status = 'completed',
    result = {result},
    error_code = NULL,
    error_message = NULL,
    heartbeat_at = NULL,
    lease = NULL,
    finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
"""

# The common case, one job without a parent: nothing else to keep in step.
COMPLETE = f"""
UPDATE {{s}}.job
SET {_COMPLETED.format(result="%(result)s")}
WHERE id = %(job_id)s AND fence = %(fence)s AND heartbeat_at IS NOT NULL
  AND parent_id IS NULL
"""

COMPLETE_MANY = f"""
UPDATE {{s}}.job
SET {_COMPLETED.format(result="ending.result")}
FROM unnest(%(job_ids)b::text[], %(fences)b::bigint[], %(results)b::bytea[])
    AS ending (id, fence, result)
WHERE job.id = ending.id AND job.fence = ending.fence
  AND job.heartbeat_at IS NOT NULL
RETURNING job.id, job.fence, job.status, job.parent_id, job.queue
"""

COMPLETE_ORPHANS = COMPLETE_MANY.replace(
    "RETURNING", "  AND job.parent_id IS NULL\nRETURNING"
)

HISTORY = """
    INSERT INTO {s}.attempt (
        job_id, fence, attempt, worker, started_at, ended_at,
        outcome, error_code, error_message
    )
    SELECT
        id, fence, attempt, worker, started_at, statement_timestamp(),
        outcome, error_code, error_message
    FROM ended
    -- A row that was edited by hand may come here twice with one fence.
    ON CONFLICT (job_id, fence) DO NOTHING
"""

READ_ATTEMPTS = """
SELECT id, attempts FROM {s}.job WHERE id = ANY(%(job_ids)b::text[])
"""

# Failed for good when the caller says so or the attempts are used up; else due again.
FAIL_MANY = f"""
WITH ended AS (
    UPDATE {{s}}.job
    SET status = CASE
            WHEN ending.final OR attempts >= max_attempts THEN 'failed'
            WHEN ending.retry_in > interval '0' THEN 'scheduled'
            ELSE 'queued'
        END,
        finished_at = CASE
            WHEN ending.final OR attempts >= max_attempts THEN statement_timestamp()
        END,
        available_at = CASE
            WHEN ending.final OR attempts >= max_attempts THEN available_at
            ELSE statement_timestamp() + ending.retry_in
        END,
        error_code = ending.error_code,
        error_message = ending.error_message,
        heartbeat_at = NULL,
        lease = NULL,
        updated_at = statement_timestamp()
    FROM unnest(
        %(job_ids)b::text[], %(fences)b::bigint[], %(error_codes)b::text[],
        %(error_messages)b::text[], %(finals)s::bool[], %(retry_in)s::interval[]
    ) AS ending (id, fence, error_code, error_message, final, retry_in)
    WHERE job.id = ending.id AND job.fence = ending.fence
      AND job.heartbeat_at IS NOT NULL
    RETURNING job.id, job.fence, job.status, job.parent_id, job.queue, job.worker,
        job.started_at, job.attempts AS attempt, 'failed' AS outcome,
        job.error_code, job.error_message
), history AS ({HISTORY})
SELECT id, fence, status, parent_id, queue FROM ended
"""

# Released or snoozed: the attempt is not charged, the fence stays.
GIVE_BACK_MANY = f"""
WITH ended AS (
    UPDATE {{s}}.job
    SET status = CASE
            WHEN ending.delay > interval '0' THEN 'scheduled' ELSE 'queued'
        END,
        available_at = CASE
            WHEN ending.outcome = 'snoozed' THEN statement_timestamp() + ending.delay
            ELSE available_at
        END,
        attempts = greatest(attempts - 1, 0),
        heartbeat_at = NULL,
        lease = NULL,
        updated_at = statement_timestamp()
    FROM unnest(
        %(job_ids)b::text[], %(fences)b::bigint[], %(outcomes)b::text[],
        %(delays)s::interval[]
    ) AS ending (id, fence, outcome, delay)
    WHERE job.id = ending.id AND job.fence = ending.fence
      AND job.heartbeat_at IS NOT NULL
    RETURNING job.id, job.fence, job.status, job.parent_id, job.queue, job.worker,
        job.started_at, job.attempts + 1 AS attempt, ending.outcome,
        NULL AS error_code, NULL AS error_message
), history AS ({HISTORY})
SELECT id, fence, status, parent_id, queue FROM ended
"""

# What became of leases that a write did not find alive.
LOOK_UP_LEASES = """
SELECT
    asked.place, job.status, job.fence, job.heartbeat_at IS NOT NULL,
    CASE WHEN job.fence = asked.fence THEN job.result END,
    attempt.outcome, attempt.error_code, attempt.error_message
FROM unnest(%(job_ids)b::text[], %(fences)b::bigint[])
    WITH ORDINALITY AS asked (id, fence, place)
LEFT JOIN LATERAL (SELECT * FROM {s}.job WHERE job.id = asked.id) AS job ON true
LEFT JOIN LATERAL (
    SELECT * FROM {s}.attempt
    WHERE attempt.job_id = asked.id AND attempt.fence = asked.fence
) AS attempt ON true
"""

LOCK_LEASE = """
SELECT tenant FROM {s}.job
WHERE id = %(job_id)s AND fence = %(fence)s AND heartbeat_at IS NOT NULL
FOR NO KEY UPDATE
"""

# Whether this lease ended by fanning out.
PARKED = """
SELECT 1 FROM {s}.attempt
WHERE job_id = %(job_id)s AND fence = %(fence)s AND outcome = 'waiting'
"""

# Under LOCK_LEASE and with its children inserted: wait for them. The attempt is not
# charged. With no open child it is ready to go on at once.
PARK = f"""
WITH ended AS (
    UPDATE {{s}}.job
    SET status = CASE
            WHEN children_open + %(children)s > 0 THEN 'waiting' ELSE 'queued'
        END,
        children_total = children_total + %(children)s,
        children_open = children_open + %(children)s,
        on_child_failure = %(on_child_failure)s,
        attempts = greatest(attempts - 1, 0),
        heartbeat_at = NULL,
        lease = NULL,
        updated_at = statement_timestamp()
    WHERE id = %(job_id)s
    RETURNING id, fence, status, queue, worker, started_at, attempts + 1 AS attempt,
        'waiting' AS outcome, NULL AS error_code, NULL AS error_message
), history AS ({HISTORY})
SELECT status, queue FROM ended
"""
