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

# From the operator's views, which the reader's role may read. Each is along the partial
# index of its state, where ended jobs are not.
OPEN = """
SELECT queue, job_class, 'ready', count(*), extract(epoch FROM max(waited))::float
FROM {s}.ready GROUP BY queue, job_class
UNION ALL
SELECT queue, job_class, 'running', count(*), NULL
FROM {s}.running GROUP BY queue, job_class
UNION ALL
SELECT queue, job_class, 'expired', count(*), NULL
FROM {s}.stale GROUP BY queue, job_class
UNION ALL
SELECT queue, job_class, 'scheduled', count(*), NULL
FROM {s}.scheduled GROUP BY queue, job_class
UNION ALL
SELECT queue, job_class, 'waiting', count(*), NULL
FROM {s}.waiting_families GROUP BY queue, job_class
"""

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
    """ready, running, expired (of the running ones), scheduled, waiting."""
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
        OpenJobs(queue, JobClass(job_class), state, jobs, seconds)
        for queue, job_class, state, jobs, seconds in session.rows(OPEN)
    ]
