"""
Parents and children.
"""

from jobstore.postgres.statements.finish import HISTORY

__all__ = [
    "CANCEL",
    "CHILD_REOPENED",
    "FAMILY_BELOW",
    "LOCK_WAITING",
    "RECOUNT",
    "TELL_PARENTS",
]

_RESUMED = """
    status = CASE
        WHEN job.status <> 'waiting' OR {open} > 0 THEN job.status
        WHEN job.on_child_failure = 'fail' AND {failed} > 0 THEN 'failed'
        ELSE 'queued'
    END,
    finished_at = CASE
        WHEN job.status = 'waiting' AND {open} <= 0
             AND job.on_child_failure = 'fail' AND {failed} > 0
        THEN statement_timestamp() ELSE job.finished_at
    END,
    error_code = CASE
        WHEN job.status = 'waiting' AND {open} <= 0
             AND job.on_child_failure = 'fail' AND {failed} > 0
        THEN 'CHILD_FAILED' ELSE job.error_code
    END,
    error_message = CASE
        WHEN job.status = 'waiting' AND {open} <= 0
             AND job.on_child_failure = 'fail' AND {failed} > 0
        THEN {failed} || ' of ' || job.children_total || ' children did not complete'
        ELSE job.error_message
    END,
    children_open = {open},
    children_failed = {failed},
    updated_at = statement_timestamp()
"""

# Children have ended: their parents count down, and the one who reaches zero while
# waiting goes on, in the same transaction as its last child. The status is not in
# WHERE: a parent that is just being parked looks like processing in this snapshot,
# and would be missed; the SET sees the row as it is under its lock.
# Locks: the parents, in the order of their ids. Index: job_pkey.
TELL_PARENTS = f"""
WITH locked AS MATERIALIZED (
    SELECT id FROM {{s}}.job
    WHERE id = ANY(%(parent_ids)b::text[])
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE {{s}}.job
SET {
    _RESUMED.format(
        open="greatest(job.children_open - news.ended, 0)",
        failed="(job.children_failed + news.failed)",
    )
}
FROM unnest(%(parent_ids)b::text[], %(ended)b::int[], %(failed)b::int[])
    AS news (id, ended, failed)
WHERE job.id = news.id AND job.id = ANY(ARRAY(SELECT id FROM locked))
RETURNING job.parent_id,
    job.status = 'failed' AND job.finished_at = statement_timestamp(),
    CASE WHEN job.status = 'queued' THEN job.queue END
"""

CHILD_REOPENED = """
UPDATE {s}.job
SET children_open = children_open + 1,
    children_failed = greatest(children_failed - 1, 0),
    updated_at = statement_timestamp()
WHERE id = %(parent_id)s
"""

# A job and all below it, deepest first. Index: job_parent_idx.
FAMILY_BELOW = """
WITH RECURSIVE family AS (
    SELECT id, parent_id, status, children_open, 0 AS depth
    FROM {s}.job WHERE id = %(job_id)s
    UNION ALL
    SELECT child.id, child.parent_id, child.status, child.children_open,
        family.depth + 1
    FROM family
    CROSS JOIN LATERAL (
        SELECT * FROM {s}.job WHERE job.parent_id = family.id
        OFFSET 0 -- keeps the planner from joining the whole table instead
    ) AS child
)
SELECT id, depth,
    status NOT IN ('completed', 'failed', 'cancelled') OR children_open > 0
FROM family
ORDER BY depth DESC, id
"""

# Members of one family, all of which are being cancelled: nobody in it goes on.
CANCEL = f"""
WITH locked AS MATERIALIZED (
    SELECT id, status AS was FROM {{s}}.job
    WHERE id = ANY(%(job_ids)b::text[])
    ORDER BY id
    FOR UPDATE
), ending AS (
    UPDATE {{s}}.job
    SET status = CASE WHEN finished_at IS NULL THEN 'cancelled' ELSE status END,
        error_code = CASE WHEN finished_at IS NULL THEN NULL ELSE error_code END,
        error_message = CASE
            WHEN finished_at IS NULL THEN %(reason)s ELSE error_message
        END,
        finished_at = coalesce(finished_at, statement_timestamp()),
        children_failed = children_failed + children_open,
        children_open = 0,
        heartbeat_at = NULL,
        lease = NULL,
        updated_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING id, fence, parent_id, worker, started_at, attempts AS attempt, status,
        'cancelled' AS outcome, NULL AS error_code, error_message
), ended AS (
    SELECT ending.*, locked.was
    FROM ending JOIN locked USING (id)
), history AS (
    {HISTORY.replace("FROM ended", "FROM ended WHERE was = 'processing'")}
)
SELECT id, parent_id, was FROM ended
"""

LOCK_WAITING = """
SELECT id FROM {s}.job
WHERE status = 'waiting'
ORDER BY updated_at, id
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

# A second statement under LOCK_WAITING's locks: its snapshot is taken when no child
# of these can end unseen.
RECOUNT = f"""
UPDATE {{s}}.job
SET {_RESUMED.format(open="counted.open", failed="counted.failed")}
FROM unnest(%(parent_ids)b::text[]) AS parent (id)
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE child.finished_at IS NULL)::int AS open,
        count(*) FILTER (WHERE child.status IN ('failed', 'cancelled'))::int AS failed
    FROM {{s}}.job AS child WHERE child.parent_id = parent.id
) AS counted
WHERE job.id = parent.id
  AND (job.children_open <> counted.open OR counted.open = 0)
RETURNING job.parent_id,
    job.status = 'failed' AND job.finished_at = statement_timestamp(),
    CASE WHEN job.status = 'queued' THEN job.queue END
"""
