"""
The topics that can be measured, in the order in which they are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.figures import batches, footprint, payloads, peers, single, worker
from benchmarks.measure import Figure, Tell
from benchmarks.scenarios import backlog, children, retention, scheduled, snapshot

__all__ = ["LONG", "SHORT", "TOPICS", "Topic"]


@dataclass(frozen=True, slots=True)
class Topic:
    """
    A group of figures that are measured together.
    """

    about: str
    measure: Callable[[Bench, Tell], Iterator[Figure]]


TOPICS = {
    "single": Topic("create, and claim + complete, one at a time", single.measure),
    "batches": Topic("create_many, and claim + set_results of many", batches.measure),
    "payloads": Topic("payloads of 1 KB, 100 KB and 10 MB", payloads.measure),
    "footprint": Topic("WAL and dead row versions for each job", footprint.measure),
    "latency": Topic("from create to the handler's start, idle", worker.latency),
    "worker": Topic("a worker process with a no-op handler", worker.throughput),
    "processes": Topic("1, 2, 4 and 8 worker processes", worker.processes),
    "memory": Topic("a worker's memory over 100,000 jobs", worker.memory),
    "peers": Topic("other Python queues, if installed", peers.measure),
    "queued": Topic("20,000 to 10 million queued", backlog.queued),
    "finished": Topic("10 million finished", backlog.finished),
    "tenants": Topic("10,000 tenants", backlog.tenants),
    "scheduled": Topic("1,000,000 scheduled", scheduled.measure),
    "children": Topic("100,000 children of one parent", children.measure),
    "retention": Topic("pruning a history, and partitions", retention.measure),
    "snapshot": Topic("an old snapshot held for 120 s", snapshot.measure),
}

LONG = (
    "memory",
    "peers",
    "queued",
    "finished",
    "tenants",
    "scheduled",
    "children",
    "snapshot",
)
SHORT = tuple(name for name in TOPICS if name not in LONG)
