"""
One parent with 100,000 children: does it stay as quick to add and to end one?
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from benchmarks import bench as benches
from benchmarks.bench import Bench
from benchmarks.measure import Figure, Tell, Turn, compare, quiet, timed
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed, Job, Lease, NewJob
from jobstore.postgres import PostgresStore

__all__ = ["measure"]

_BATCH = 1_000
_TARGET = 0.8
_QUEUE = "family"


@dataclass(frozen=True, slots=True)
class _Family:
    """
    A parent that is held, and the store it is in.
    """

    store: PostgresStore
    parent: Job
    lease: Lease

    def grow(self) -> float:
        children = [self.parent.child(kind="bench") for _ in range(_BATCH)]
        return timed(_BATCH, lambda: self.store.create_many(children))

    def shrink(self) -> float:
        return timed(_BATCH, self._complete)

    def _complete(self) -> None:
        for _ in range(_BATCH // 100):
            claims = self.store.claim(100, queue=_QUEUE)
            assert len(claims) == 100
            self.store.set_results([(claim.lease, Completed()) for claim in claims])


def measure(bench: Bench, tell: Tell = quiet) -> Iterator[Figure]:
    """
    Add the last thousands of a large family, and end them, in turns with a small one.

    The twin is the first thousand of a new parent in a schema of its own.
    """
    rounds = bench.rounds
    batches = bench.size(100, least=rounds + 1)
    with (
        benches.made(bench.dsn, pgbench=None) as apart,
        closing(bench.store(wake_ups=False)) as store,
        closing(apart.store(wake_ups=False)) as small_store,
    ):
        bench.empty()
        large = _begin(store)
        for number in range(batches - rounds - 1):
            tell(f"children created: {number * _BATCH:,}")
            large.grow()
        yield _compare(
            f"{batches * _BATCH:,} children: created, last thousands",
            bench,
            lambda _: large.grow(),
            lambda _: _begin_anew(apart, small_store).grow(),
        )
        store.fan_out(large.lease, [])

        for number in range(batches - rounds - 1):
            tell(f"children completed: {number * _BATCH:,}")
            large.shrink()
        yield _compare(
            f"{batches * _BATCH:,} children: completed, last thousands",
            bench,
            lambda _: large.shrink(),
            lambda _: _grown(apart, small_store).shrink(),
        )
        assert store.get(large.parent.id).status is JobStatus.QUEUED


def _compare(name: str, bench: Bench, turn: Turn, twin: Turn) -> Figure:
    return compare(
        name,
        turn,
        twin,
        against="the first thousand of a new parent",
        rounds=bench.rounds,
        target=_TARGET,
    )


def _begin(store: PostgresStore) -> _Family:
    parent = store.create(NewJob(kind="parent", queue=_QUEUE)).job
    claim = store.claim_next(queue=_QUEUE)
    assert claim is not None
    return _Family(store, parent, claim.lease)


def _begin_anew(apart: Bench, store: PostgresStore) -> _Family:
    apart.empty()
    return _begin(store)


def _grown(apart: Bench, store: PostgresStore) -> _Family:
    family = _begin_anew(apart, store)
    family.grow()
    store.fan_out(family.lease, [])
    return family
