"""
What operators do to one job, under its row lock.
"""

from jobstore.postgres.rows import JOB_COLUMNS

__all__ = ["RECORD_ATTEMPT", "REOPEN", "UPDATE"]

# After GET_FOR_UPDATE. attempts, fence and the identity of the job are not here.
UPDATE = f"""
UPDATE {{s}}.job
SET status = %(status)s,
    queue = %(queue)s,
    job_class = %(job_class)s,
    max_attempts = %(max_attempts)s,
    available_at = %(available_at)s,
    result = %(result)s,
    error_code = %(error_code)s,
    error_message = %(error_message)s,
    heartbeat_at = CASE WHEN %(status)s = 'processing' THEN heartbeat_at END,
    lease = CASE WHEN %(status)s = 'processing' THEN lease END,
    finished_at = CASE
        WHEN %(status)s IN ('completed', 'failed', 'cancelled')
        THEN coalesce(finished_at, statement_timestamp())
    END,
    updated_at = statement_timestamp()
WHERE id = %(job_id)s
RETURNING {JOB_COLUMNS}
"""

REOPEN = f"""
UPDATE {{s}}.job
SET status = 'queued',
    attempts = 0,
    available_at = statement_timestamp(),
    finished_at = NULL,
    error_code = NULL,
    error_message = NULL,
    updated_at = statement_timestamp()
WHERE id = %(job_id)s
RETURNING {JOB_COLUMNS}
"""

RECORD_ATTEMPT = """
INSERT INTO {s}.attempt (
    job_id, fence, attempt, worker, started_at, ended_at,
    outcome, error_code, error_message
)
SELECT id, fence, attempts, worker, started_at, statement_timestamp(),
    %(outcome)s, error_code, error_message
FROM {s}.job WHERE id = %(job_id)s
ON CONFLICT (job_id, fence) DO NOTHING
"""
