"""
What is open in the queues right now, read cheaply: never along history.
"""

from dataclasses import dataclass
from datetime import timedelta

from jobstore.lifecycle import JobClass
from jobstore.postgres import Limits, PostgresStore
from jobstore.postgres.engine import engine_url
from jobstore.postgres.session import Call, Session

__all__ = ["OPEN", "OpenJobs", "QueueReader"]

# Ready jobs are counted in job_ready_idx alone. The longest wait is sought among the
# thousand at the head of each line: one further back was created later. Each other
# state has a partial index of its own. Ended jobs are in none of them.
OPEN = """
WITH ready AS (
    SELECT queue, class_rank, count(*) AS jobs
    FROM {s}.job WHERE status = 'queued' AND attempts < max_attempts
    GROUP BY queue, class_rank
)
SELECT queue, class_rank, 'ready' AS state, jobs, (
        SELECT extract(epoch FROM statement_timestamp() - min(head.updated_at))
        FROM (
            SELECT job.updated_at FROM {s}.job
            WHERE job.status = 'queued' AND job.attempts < job.max_attempts
                AND job.queue = ready.queue AND job.class_rank = ready.class_rank
            ORDER BY job.created_at, job.id
            LIMIT 1000
        ) AS head
    )::float AS seconds
FROM ready
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
SELECT queue, class_rank, 'scheduled', count(*), NULL
FROM {s}.job WHERE status = 'scheduled'
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'waiting', count(*), NULL
FROM {s}.job WHERE status = 'waiting'
GROUP BY queue, class_rank
"""

_BY_RANK = {job_class.rank: job_class for job_class in JobClass}
# Prometheus itself waits for ten seconds, unless told otherwise.
_LIMITS = Limits(statement=timedelta(seconds=8), call=timedelta(seconds=9))


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """
    The jobs of one queue and class in one state.
    """

    queue: str
    job_class: JobClass
    state: str
    """ready, exhausted, running, expired (of the running ones), scheduled, waiting."""
    jobs: int
    oldest_wait: float | None
    """Seconds; of ready jobs only."""


class QueueReader(PostgresStore):
    """
    A store that also counts what is open.
    """

    def __init__(self, dsn: str, *, schema: str, through_pooler: bool = False) -> None:
        url = engine_url(dsn)
        if "application_name" not in url.query:
            url = url.update_query_dict({"application_name": "jobstore metrics"})
        super().__init__(
            url,
            schema=schema,
            limits=_LIMITS,
            pool_size=2,
            through_pooler=through_pooler,
            wake_ups=False,
        )

    def open_jobs(self) -> list[OpenJobs]:
        """
        Count open jobs by queue, class and state; reads them all, and no others.
        """
        return self._run(Call(_open_jobs, writes=False))


def _open_jobs(session: Session) -> list[OpenJobs]:
    return [
        OpenJobs(queue, _BY_RANK[rank], state, jobs, seconds)
        for queue, rank, state, jobs, seconds in session.rows(OPEN)
    ]
