"""
How the queues are right now: what is open, and the flow of the last minutes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from jobstore.lifecycle import JobClass
from jobstore.postgres import Limits, PostgresStore
from jobstore.postgres.engine import engine_url
from jobstore.postgres.session import Call, Session

__all__ = ["HEALTH", "QueueLine", "QueueReader"]

_STATES = ("ready", "exhausted", "running", "scheduled", "waiting")
_FLOW = ("created", "completed", "failed", "cancelled")

# A view, which the reader's role may read. It reads open jobs along the partial indexes
# of their states, and what came and went in five minutes; no history before that.
HEALTH = """
SELECT queue, job_class, coalesce(extract(epoch FROM oldest_wait), 0)::float,
    expired_leases, ready, exhausted, running, scheduled, waiting,
    created_5min, completed_5min, failed_5min, cancelled_5min
FROM {s}.queue_health
"""

# Prometheus itself waits for ten seconds, unless told otherwise.
_LIMITS = Limits(statement=timedelta(seconds=8), call=timedelta(seconds=9))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """
    One queue and class.
    """

    queue: str
    job_class: JobClass
    oldest_wait: float
    """Seconds that a ready job has waited; 0 where none does."""
    expired_leases: int
    jobs: Mapping[str, int]
    """Open jobs by state: ready, exhausted, running, scheduled, waiting."""
    recent: Mapping[str, int]
    """Of the last five minutes: created, completed, failed, cancelled."""


class QueueReader(PostgresStore):
    """
    A store that also says how the queues are.
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

    def lines(self) -> list[QueueLine]:
        """
        Read all queues and classes with an open job, or with a recent one.
        """
        return self._run(Call(_lines, writes=False))


def _lines(session: Session) -> list[QueueLine]:
    return [
        QueueLine(
            queue=queue,
            job_class=JobClass(job_class),
            oldest_wait=max(0.0, oldest_wait),
            expired_leases=expired_leases,
            jobs=dict(zip(_STATES, counts[: len(_STATES)], strict=True)),
            recent=dict(zip(_FLOW, counts[len(_STATES) :], strict=True)),
        )
        for queue, job_class, oldest_wait, expired_leases, *counts in session.rows(
            HEALTH
        )
    ]
