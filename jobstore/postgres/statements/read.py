"""
Reading.
"""

from collections.abc import Iterable, Sequence

from jobstore.lifecycle import JobStatus
from jobstore.postgres.rows import JOB_COLUMNS, JOB_COLUMNS_WITHOUT_RESULT

__all__ = [
    "ATTEMPTS",
    "GET",
    "GET_FOR_UPDATE",
    "PAYLOAD",
    "STATS",
    "list_children",
    "list_jobs",
]

GET = f"SELECT {JOB_COLUMNS} FROM {{s}}.job WHERE id = %(job_id)s"

GET_FOR_UPDATE = f"{GET} FOR UPDATE"

PAYLOAD = """
SELECT payload.data, payload.content_type
FROM {s}.job LEFT JOIN {s}.payload ON payload.job_id = job.id
WHERE job.id = %(job_id)s
"""

ATTEMPTS = """
SELECT attempt.job_id, attempt.fence, attempt.attempt, attempt.worker,
    attempt.started_at, attempt.ended_at, attempt.outcome,
    attempt.error_code, attempt.error_message
FROM {s}.job LEFT JOIN {s}.attempt ON attempt.job_id = job.id
WHERE job.id = %(job_id)s
ORDER BY attempt.fence
"""

# Each part reads one partial index; what ended long ago is not looked at.
STATS = """
SELECT queue, class_rank, 'queued' AS status, count(*), min(created_at)
FROM {s}.job WHERE status = 'queued' AND attempts < max_attempts
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'queued', count(*), min(created_at)
FROM {s}.job WHERE status = 'queued' AND attempts >= max_attempts
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'scheduled', count(*), min(created_at)
FROM {s}.job WHERE status = 'scheduled'
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'processing', count(*), min(created_at)
FROM {s}.job WHERE status = 'processing'
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'waiting', count(*), min(created_at)
FROM {s}.job WHERE status = 'waiting'
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'failed', count(*), min(finished_at)
FROM {s}.job WHERE status = 'failed'
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, status, count(*), min(finished_at)
FROM {s}.job
WHERE finished_at > statement_timestamp() - %(window)s::interval
  AND status IN ('completed', 'cancelled')
GROUP BY queue, class_rank, status
"""


def list_jobs(
    columns: Sequence[str],
    statuses: Iterable[JobStatus],
    *,
    oldest_first: bool,
    with_result: bool,
) -> str:
    """
    Build the listing: *columns* are compared with parameters of the same name.

    The statuses are our own words and go in as literals, so that their partial
    indexes can serve. Index: job_pkey, walked in order, else one of those.
    """
    comparison, direction = (">", "ASC") if oldest_first else ("<", "DESC")
    conditions = [f"{column} = %({column})s" for column in columns]
    conditions.append(f"(%(after)s::text IS NULL OR id {comparison} %(after)s)")
    if statuses:
        words = ", ".join(f"'{status}'" for status in statuses)
        conditions.append(f"status IN ({words})")
    return f"""
        SELECT {_columns(with_result=with_result)} FROM {{s}}.job
        WHERE {" AND ".join(conditions)}
        ORDER BY id {direction}
        LIMIT %(limit)s
    """


def list_children(*, with_result: bool) -> str:
    """
    Build the listing of one parent's children. Index: job_parent_idx.
    """
    return f"""
        SELECT {_columns(with_result=with_result)} FROM {{s}}.job
        WHERE parent_id = %(parent_id)s
          AND (%(after)s::text IS NULL OR (created_at, id) > (
              SELECT created_at, id FROM {{s}}.job WHERE id = %(after)s
          ))
        ORDER BY created_at, id
        LIMIT %(limit)s
    """


def _columns(*, with_result: bool) -> str:
    return JOB_COLUMNS if with_result else JOB_COLUMNS_WITHOUT_RESULT
