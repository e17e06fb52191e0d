"""
Prometheus metrics, on its own client library (extra ``jobstore[metrics]``).

Two sources: `Metrics` counts the events of this process's observed stores;
`QueueCollector` reads from the database how the queues are, when somebody scrapes.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta

from jobstore.errors import JobstoreError
from jobstore.observe.events import (
    Event,
    FamiliesRepaired,
    JobChanged,
    JobClaimed,
    JobCreated,
    JobFinished,
    JobLost,
    JobsPromoted,
    JobsPruned,
    LeasesReclaimed,
    StoreFailed,
)
from jobstore.observe.queue import QueueLine, QueueReader

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    _NEEDS = "jobstore.observe.metrics needs more: pip install 'jobstore[metrics]'"
    raise ModuleNotFoundError(_NEEDS, name=error.name) from error

__all__ = ["MOST_KINDS", "OTHER", "Metrics", "QueueCollector"]

_log = logging.getLogger("jobstore.observe")

MOST_KINDS = 500
"""Pairs of queue and kind that are told apart; what comes later is `OTHER`."""
OTHER = "(other)"
UNKNOWN = "(unknown)"

# From a quick handler to a long one; a wait may be longer.
_RUN_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200)
_WAIT_SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_WHERE = ("queue", "kind")


class Metrics:
    """
    A listener that counts events: ``observed(store, Metrics())``.

    One for a process, whatever the number of stores. Labels are queue, kind and
    outcome, and nothing else; kinds are bounded (`MOST_KINDS`), since they may be
    somebody else's words.

    Args:
        registry: Where to register.

    Raises:
        ValueError: *registry* has these metrics already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"jobstore_{name}", text, labels, registry=registry)

        self._created = counter(
            "creates", "Creates done; outcome: new or known.", *_WHERE, "outcome"
        )
        self._claims = counter("claims", "Jobs claimed.", *_WHERE)
        self._wait = Histogram(
            "jobstore_wait_seconds",
            "From when a job was due to its claim.",
            _WHERE,
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        self._attempts = counter(
            "attempts",
            "Attempts ended; outcome: completed, failed, retried, released, snoozed, "
            "waiting, lost or cancelled.",
            *_WHERE,
            "outcome",
        )
        self._run = Histogram(
            "jobstore_run_seconds",
            "From a job's claim to its outcome in the store.",
            _WHERE,
            buckets=_RUN_SECONDS,
            registry=registry,
        )
        self._changes = counter(
            "changes", "Jobs changed by hand; outcome: the verb.", *_WHERE, "outcome"
        )
        self._reclaims = counter(
            "reclaims",
            "Leases ended by sweeps; outcome: requeued or failed.",
            "outcome",
        )
        self._upkeep = counter(
            "upkeep_jobs",
            "Jobs that upkeep changed; outcome: promoted, pruned or repaired.",
            "outcome",
        )
        self._errors = counter(
            "store_errors", "Verbs failed; outcome: the error's code.", "outcome"
        )
        self._lock = threading.Lock()
        self._known: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """
        Count *event*.
        """
        if isinstance(event, JobCreated):
            where = self._where(event.queue, event.kind)
            self._created.labels(*where, "new" if event.is_new else "known").inc()
        elif isinstance(event, JobClaimed):
            where = self._where(event.queue, event.kind)
            self._claims.labels(*where).inc()
            self._wait.labels(*where).observe(event.waited.total_seconds())
        elif isinstance(event, JobFinished):
            self._ended(event.queue, event.kind, event.end, event.ran)
        elif isinstance(event, JobLost):
            outcome = "cancelled" if event.is_cancelled else "lost"
            self._ended(event.queue, event.kind, outcome, None)
        elif isinstance(event, JobChanged):
            where = self._where(event.queue, event.kind)
            self._changes.labels(*where, event.verb).inc()
        else:
            self._count_upkeep(event)

    def _count_upkeep(self, event: Event) -> None:
        if isinstance(event, LeasesReclaimed):
            self._reclaims.labels("requeued").inc(event.requeued)
            self._reclaims.labels("failed").inc(event.failed)
        elif isinstance(event, JobsPromoted):
            self._upkeep.labels("promoted").inc(event.jobs)
        elif isinstance(event, JobsPruned):
            self._upkeep.labels("pruned").inc(event.jobs)
        elif isinstance(event, FamiliesRepaired):
            self._upkeep.labels("repaired").inc(event.parents)
        elif isinstance(event, StoreFailed):
            self._errors.labels(event.code).inc()

    def _ended(
        self, queue: str | None, kind: str | None, outcome: str, ran: timedelta | None
    ) -> None:
        where = self._where(queue, kind)
        self._attempts.labels(*where, outcome).inc()
        if ran is not None:
            self._run.labels(*where).observe(ran.total_seconds())

    def _where(self, queue: str | None, kind: str | None) -> tuple[str, str]:
        where = (queue or UNKNOWN, kind or UNKNOWN)
        with self._lock:
            if where not in self._known:
                if len(self._known) >= MOST_KINDS:
                    return OTHER, OTHER
                self._known.add(where)
        return where


class QueueCollector(Collector):
    """
    Gauges of the queues in the database, read at each scrape.

    Reads open jobs along their partial indexes and what came and went in the last five
    minutes, so it is as quick with ten million ended jobs as with none. A database that
    can't be asked makes ``jobstore_up`` 0, and the other gauges absent, instead of
    failing the scrape. Close it when done.

    Args:
        dsn: The database; the role reader of `jobstore.grants` is enough.
        schema: The schema with the tables.
        through_pooler: The DSN leads to a pooler in transaction mode.
    """

    def __init__(
        self, dsn: str, *, schema: str = "jobstore", through_pooler: bool = False
    ) -> None:
        self._reader = QueueReader(dsn, schema=schema, through_pooler=through_pooler)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """
        Name the gauges, without asking the database.
        """
        yield from _families(())
        yield _up(is_up=True)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """
        Read the gauges.
        """
        try:
            families = self.read()
        except JobstoreError as error:
            _log.warning("no metrics of the queues: %s", error)
            yield _up(is_up=False)
            return
        yield from families
        yield _up(is_up=True)

    def read(self) -> list[GaugeMetricFamily]:
        """
        Read the gauges but ``jobstore_up``.

        Raises:
            StoreUnavailable: The database could not be asked.
            SchemaError: It has no tables that this code knows.
        """
        return _families(self._reader.lines())

    def close(self) -> None:
        """
        Give back the connections.
        """
        self._reader.close()


def _families(lines: Iterable[QueueLine]) -> list[GaugeMetricFamily]:
    place = ("queue", "job_class")
    jobs = GaugeMetricFamily(
        "jobstore_open_jobs",
        "Jobs that have not ended; state: ready, exhausted, running, scheduled or "
        "waiting.",
        labels=(*place, "state"),
    )
    wait = GaugeMetricFamily(
        "jobstore_oldest_wait_seconds",
        "Longest time that a ready job has waited; 0 where none does.",
        labels=place,
    )
    expired = GaugeMetricFamily(
        "jobstore_expired_leases",
        "Running jobs without a heartbeat for a minute, and past their own lease.",
        labels=place,
    )
    recent = GaugeMetricFamily(
        "jobstore_recent_jobs",
        "Jobs of the last five minutes; outcome: created, completed, failed or "
        "cancelled.",
        labels=(*place, "outcome"),
    )
    for line in lines:
        where = (line.queue, str(line.job_class))
        wait.add_metric(where, line.oldest_wait)
        expired.add_metric(where, line.expired_leases)
        for state, number in line.jobs.items():
            jobs.add_metric((*where, state), number)
        for outcome, number in line.recent.items():
            recent.add_metric((*where, outcome), number)
    return [jobs, wait, expired, recent]


def _up(*, is_up: bool) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "jobstore_up", "1 if the database answered.", value=int(is_up)
    )
