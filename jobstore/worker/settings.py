"""
How a worker works: one frozen value, checked when it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from jobstore.checks import check_job_class
from jobstore.errors import InvalidInput
from jobstore.ids import process_name
from jobstore.lifecycle import JobClass
from jobstore.model import check_count, check_duration, check_text

__all__ = ["WorkerSettings"]

_SECOND = timedelta(seconds=1)
_SHORTEST = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """
    The settings of a `Worker`, where they are explained.
    """

    concurrency: int
    queues: Sequence[str]
    job_class: JobClass | None
    visibility_timeout: timedelta
    heartbeat_every: timedelta
    grace: timedelta
    poll_every: timedelta
    upkeep_every: timedelta
    prune_after: timedelta | None
    keep_keys_for: timedelta
    name: str = field(default_factory=process_name)

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, 1, 10_000)
        queues: object = self.queues
        if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
            raise InvalidInput("queues", self.queues, "must be a sequence of names")
        for queue in self.queues:
            check_text("queue", queue)
        if self.job_class is not None:
            check_job_class(self.job_class)
        check_duration("visibility_timeout", self.visibility_timeout, shortest=_SECOND)
        check_duration(
            "heartbeat_every",
            self.heartbeat_every,
            shortest=_SHORTEST,
            longest=self.visibility_timeout / 2,
        )
        check_duration("grace", self.grace, shortest=timedelta(0))
        check_duration("poll_every", self.poll_every, shortest=_SHORTEST)
        check_duration("upkeep_every", self.upkeep_every, shortest=_SHORTEST)
        check_duration("keep_keys_for", self.keep_keys_for, shortest=timedelta(0))
        if self.prune_after is not None:
            check_duration("prune_after", self.prune_after, shortest=_SECOND)
        check_text("worker", self.name)
