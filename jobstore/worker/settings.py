"""
What a worker was told, checked when it is built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobstore.errors import InvalidInput
from jobstore.lifecycle import JobClass
from jobstore.model import check_count, check_duration, check_text

__all__ = ["Settings"]

_SHORTEST = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
# Workers of other programs on the same queues may reclaim after a shorter time than
# ours; with the default timeout, or a longer one, they then find our leases fresh.
_LONGEST_BEAT = timedelta(seconds=15)
_UPKEEP = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    See `Worker` for what they mean.
    """

    concurrency: int
    queues: Sequence[str]
    job_class: JobClass | None
    visibility_timeout: timedelta
    heartbeat_every: timedelta | None
    grace: timedelta
    poll_every: timedelta
    prune_after: timedelta | None
    keep_keys_for: timedelta
    upkeep_every: timedelta | None
    wake_ups: bool
    name: str

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, 1, 10_000)
        if isinstance(self.queues, str) or not isinstance(self.queues, Sequence):
            raise InvalidInput("queues", self.queues, "must be a sequence of names")
        if not self.queues:
            raise InvalidInput("queues", self.queues, "must name at least one")
        for queue in self.queues:
            check_text("queue", queue)
        if self.job_class is not None:
            try:
                _put(self, "job_class", JobClass(self.job_class))
            except ValueError:
                known = ", ".join(JobClass)
                raise InvalidInput(
                    "job_class", self.job_class, f"must be one of {known}"
                ) from None
        check_text("worker", self.name)
        _put(self, "queues", tuple(dict.fromkeys(self.queues)))
        self._check_times()

    def _check_times(self) -> None:
        timeout = check_duration(
            "visibility_timeout", self.visibility_timeout, shortest=_SECOND
        )
        check_duration("grace", self.grace, shortest=timedelta(0))
        check_duration("poll_every", self.poll_every, shortest=_SHORTEST)
        check_duration("keep_keys_for", self.keep_keys_for, shortest=timedelta(0))
        if self.prune_after is not None:
            check_duration("prune_after", self.prune_after, shortest=_SECOND)
        if self.heartbeat_every is None:
            _put(self, "heartbeat_every", min(timeout / 4, _LONGEST_BEAT))
        check_duration(
            "heartbeat_every",
            self.heartbeat_every,
            shortest=_SHORTEST,
            # A beat that fails must leave time for another.
            longest=timeout / 2,
        )
        if self.upkeep_every is None:
            _put(self, "upkeep_every", min(timeout / 4, _UPKEEP))
        check_duration("upkeep_every", self.upkeep_every, shortest=_SHORTEST)

    @property
    def beat(self) -> timedelta:
        assert self.heartbeat_every is not None
        return self.heartbeat_every

    @property
    def sweep(self) -> timedelta:
        assert self.upkeep_every is not None
        return self.upkeep_every


def _put(value: object, name: str, to: object) -> None:
    # The one way to normalise a field of a frozen value while it is being built.
    object.__setattr__(value, name, to)
