"""
Races on a real server: processes and threads with connections of their own.
"""

import multiprocessing
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from jobstore import (
    ChildFailure,
    Claim,
    Completed,
    InvalidTransition,
    Job,
    JobClass,
    JobStatus,
    Lease,
    LeaseLost,
    NewJob,
    PostgresStore,
)
from tests.servers import connect

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema, pool_size=20, wake_ups=False)
    yield made
    made.close()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """
    Make all *calls* from threads that leave a barrier together.

    Returns what each returned or raised.
    """
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait(30)
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - that is what is asked for
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def claimed(store: PostgresStore) -> Claim:
    claim = store.claim_next()
    assert claim is not None
    return claim


def complete_each(store: PostgresStore, leases: list[Lease]) -> list[object]:
    return [store.set_results([(one, Completed(b"r"))])[0] for one in leases]


def _drain(dsn: str, schema: str, limit: int, out: Any) -> None:
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    mine: list[tuple[int, str, str]] = []
    while claims := store.claim(limit):
        mine += [
            (one.job.job_class.rank, one.job.created_at.isoformat(), one.job.id)
            for one in claims
        ]
    out.put(mine)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 7])
def test_sixteen_processes_never_claim_a_job_twice(
    dsn: str, schema: str, store: PostgresStore, limit: int
) -> None:
    total = 20_000
    classes = list(JobClass)
    for start in range(0, total, 5000):
        store.create_many(
            [
                NewJob(kind="k", job_class=classes[(start + number) % 3])
                for number in range(5000)
            ]
        )
    out = SPAWN.Queue()
    processes = [
        SPAWN.Process(target=_drain, args=(dsn, schema, limit, out)) for _ in range(16)
    ]
    for process in processes:
        process.start()
    hauls = [out.get(timeout=240) for _ in processes]
    for process in processes:
        process.join(60)
    ids = [job_id for haul in hauls for _, _, job_id in haul]
    assert len(ids) == total
    assert len(set(ids)) == total
    for haul in hauls:
        # In one process's eyes the line only moves on: nothing was put back.
        assert haul == sorted(haul), "a process was served out of order"


def test_racing_creates_of_one_key_make_one_job(store: PostgresStore) -> None:
    for number in range(200):
        results = at_once(
            *(
                partial(
                    store.create,
                    NewJob(kind="k", payload=b"%d" % me, idem_key=f"key-{number}"),
                )
                for me in range(16)
            )
        )
        winners = [me for me, one in enumerate(results) if one.created]
        assert len(winners) == 1, results
        assert len({one.job.id for one in results}) == 1
        job_id = results[0].job.id
        assert store.payload(job_id).data == b"%d" % winners[0]
        assert [one.payload_matches for one in results].count(True) == 1


def test_tenants_race_for_equal_keys_and_both_win(store: PostgresStore) -> None:
    for number in range(30):
        results = at_once(
            *(
                partial(
                    store.create,
                    NewJob(kind="k", tenant=tenant, idem_key=f"key-{number}"),
                )
                for tenant in ("a", "b") * 4
            )
        )
        assert Counter(one.created for one in results) == {True: 2, False: 6}
        for tenant, one in zip(("a", "b") * 4, results, strict=True):
            assert one.job.tenant == tenant


def test_a_create_waits_for_a_key_that_is_being_inserted(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(dsn)
    for outcome in ("commit", "rollback"):
        new = NewJob(kind="k", idem_key=outcome)
        with engine.connect() as connection:
            first = store.within(connection).create(new)
            with ThreadPoolExecutor(1) as pool:
                second = pool.submit(store.create, new)
                _wait_for_a_lock(dsn)
                getattr(connection, outcome)()
                result = second.result(30)
        assert result.created is (outcome == "rollback")
        assert (result.job.id == first.job.id) is (outcome == "commit")
    engine.dispose()


def test_creators_of_the_same_keys_do_not_deadlock(store: PostgresStore) -> None:
    keys = [f"key-{number}" for number in range(50)]
    for round_number in range(20):
        orders = [random.Random(seed).sample(keys, len(keys)) for seed in range(4)]  # noqa: S311
        results = at_once(
            *(
                partial(
                    store.create_many,
                    [
                        NewJob(kind="k", idem_key=f"{round_number}-{key}")
                        for key in order
                    ],
                )
                for order in orders
            )
        )
        assert all(isinstance(result, list) for result in results), results
        created = [one for result in results for one in result if one.created]
        assert len(created) == len(keys)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_claim_never_takes_more_than_its_limit_from_a_new_table(
    dsn: str, fresh_schema: str, limit: int
) -> None:
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    store.create_many([NewJob(kind="k") for _ in range(500)])
    for _ in range(50):
        assert len(store.claim(limit)) == limit
    store.close()


@pytest.mark.slow
def test_a_claim_never_takes_more_than_its_limit_from_a_million_rows(
    dsn: str, fresh_schema: str
) -> None:
    with connect(dsn) as connection:
        connection.execute(
            f"""
            INSERT INTO "{fresh_schema}".job
                (kind, status, started_at, finished_at, worker, fence)
            SELECT 'k', 'completed', now(), now(), 'w', 1
            FROM generate_series(1, 990000);
            INSERT INTO "{fresh_schema}".job (kind)
            SELECT 'k' FROM generate_series(1, 10000)
            """
        )
    store = PostgresStore(dsn, schema=fresh_schema, wake_ups=False)
    for _ in range(30):
        assert len(store.claim(3)) == 3
    store.close()


def test_of_cancel_and_complete_the_first_wins(store: PostgresStore) -> None:
    ends: Counter[str] = Counter()
    for _ in range(300):
        job = store.create(NewJob(kind="k")).job
        lease = claimed(store).lease
        completed, cancelled = at_once(
            partial(store.complete, lease, b"r"), partial(store.cancel, job.id)
        )
        now = store.get(job.id)
        if now.status is JobStatus.COMPLETED:
            assert completed is JobStatus.COMPLETED
            assert isinstance(cancelled, InvalidTransition)
            assert cancelled.current == "completed"
        else:
            assert now.status is JobStatus.CANCELLED
            assert isinstance(completed, LeaseLost)
            assert cancelled.status is JobStatus.CANCELLED
        ends[now.status] += 1
    assert sum(ends.values()) == 300


@pytest.mark.parametrize("children", [2, 3, 8])
def test_the_last_child_resumes_the_parent_exactly_once(
    store: PostgresStore, children: int
) -> None:
    for _ in range(60):
        store.create(NewJob(kind="parent"))
        parent = claimed(store)
        store.fan_out(
            parent.lease, [parent.job.child(kind="child") for _ in range(children)]
        )
        leases = [one.lease for one in store.claim(children)]
        assert len(leases) == children
        results = at_once(*(partial(store.complete, lease) for lease in leases))
        assert results == [JobStatus.COMPLETED] * children
        now = store.get(parent.job.id)
        assert (now.status, now.children_open) == (JobStatus.QUEUED, 0)
        resumed = store.claim(10)
        assert [one.job.id for one in resumed] == [parent.job.id]
        store.complete(resumed[0].lease)


def test_children_end_by_all_roads_at_once(store: PostgresStore) -> None:
    for number in range(60):
        policy = [ChildFailure.RESUME, ChildFailure.FAIL][number % 2]
        store.create(NewJob(kind="parent"))
        parent = claimed(store)
        store.fan_out(
            parent.lease,
            [parent.job.child(kind="child", max_attempts=1) for _ in range(4)],
            on_child_failure=policy,
        )
        one, two, three, four = (claim.lease for claim in store.claim(4))
        at_once(
            partial(store.complete, one),
            partial(store.fail, two, error_code="E", final=True),
            partial(store.cancel, three.job_id),
        )
        store.reclaim_stale(timedelta(0))
        assert store.get(four.job_id).error_code == "ATTEMPTS_EXHAUSTED"
        now = store.get(parent.job.id)
        assert (now.children_open, now.children_failed) == (0, 3)
        if policy is ChildFailure.FAIL:
            assert (now.status, now.error_code) == (JobStatus.FAILED, "CHILD_FAILED")
        else:
            assert now.status is JobStatus.QUEUED
            store.complete(claimed(store).lease)


def test_a_completed_job_is_never_reclaimed(store: PostgresStore) -> None:
    for _ in range(20):
        store.create_many([NewJob(kind="k") for _ in range(50)])
        leases = [one.lease for one in store.claim(50)]
        results = at_once(
            *(
                partial(complete_each, store, part)
                for part in (leases[:25], leases[25:])
            ),
            *(partial(store.reclaim_stale, timedelta(0)) for _ in range(2)),
        )
        for lease, answer in zip(leases, results[0] + results[1], strict=True):
            now = store.get(lease.job_id)
            if answer is JobStatus.COMPLETED:
                assert (now.status, now.result) == (JobStatus.COMPLETED, b"r")
            else:
                assert isinstance(answer, LeaseLost)
                assert now.status is JobStatus.QUEUED
        for claim in store.claim(50):
            store.complete(claim.lease)


def test_a_zombie_changes_nothing_in_whatever_order(store: PostgresStore) -> None:
    for second_ends_first in (True, False):
        job = store.create(NewJob(kind="k")).job
        first = claimed(store).lease
        store.reclaim_stale(timedelta(0))
        queued = store.get(job.id)
        assert first in store.heartbeat([first]).lost
        assert store.get(job.id) == queued, "a lost heartbeat must not touch the row"
        second = claimed(store).lease
        held = store.get(job.id)
        assert first in store.heartbeat([first]).lost
        assert store.get(job.id) == held
        if second_ends_first:
            store.complete(second, b"second")
        for write in (
            partial(store.complete, first, b"zombie"),
            partial(store.fail, first, error_code="ZOMBIE"),
            partial(store.release, first),
            partial(store.snooze, first, timedelta(hours=1)),
            partial(store.fan_out, first, [NewJob(kind="child")]),
        ):
            with pytest.raises(LeaseLost):
                write()
        if not second_ends_first:
            store.complete(second, b"second")
        assert store.get(job.id).result == b"second"
        assert store.list(kind="child") == []


def test_cancelling_families_while_their_children_complete(
    store: PostgresStore,
) -> None:
    for _ in range(15):
        store.create(NewJob(kind="parent"))
        parent = claimed(store)
        store.fan_out(parent.lease, [parent.job.child(kind="child") for _ in range(50)])
        leases = [one.lease for one in store.claim(50)]
        results = at_once(
            partial(store.cancel, parent.job.id),
            *(
                partial(store.set_results, [(one, Completed(None)) for one in part])
                for part in (leases[0::3], leases[1::3], leases[2::3])
            ),
        )
        assert not any(isinstance(one, Exception) for one in results), results
        family = [store.get(parent.job.id), *store.list_children(parent.job.id)]
        assert all(one.finished_at for one in family)
        assert family[0].children_open == 0
        assert family[0].status is JobStatus.CANCELLED
        completed = [one for one in family if one.status is JobStatus.COMPLETED]
        assert family[0].children_failed == 50 - len(completed)


def test_fanning_out_while_being_cancelled_leaves_no_orphan(
    store: PostgresStore,
) -> None:
    for _ in range(60):
        store.create(NewJob(kind="parent"))
        parent = claimed(store)
        children = [parent.job.child(kind="child") for _ in range(5)]
        at_once(
            partial(store.fan_out, parent.lease, children),
            partial(store.cancel, parent.job.id),
        )
        assert store.get(parent.job.id).status is JobStatus.CANCELLED
        left = [
            one for one in store.list_children(parent.job.id) if one.finished_at is None
        ]
        assert left == []


def test_pruning_while_requeueing_loses_nothing(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    for _ in range(30):
        job = store.create(NewJob(kind="k", max_attempts=1)).job
        store.fail(claimed(store).lease, error_code="E")
        with connect(dsn) as connection:
            connection.execute(
                f'UPDATE "{schema}".job'
                " SET finished_at = finished_at - '1 day'::interval"
            )
        _, requeued = at_once(
            partial(store.prune, timedelta(hours=1)), partial(store.requeue, job.id)
        )
        if isinstance(requeued, Job):
            assert store.payload(job.id).data == b""
            store.complete(claimed(store).lease)
        else:
            assert isinstance(requeued, LookupError)
        assert store.claim_next() is None


def _wait_for_a_lock(dsn: str) -> None:
    """
    Wait until some session waits for another's transaction.
    """
    with connect(dsn) as connection:
        for _ in range(3000):
            waiting = connection.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
            ).fetchone()
            if waiting and waiting[0]:
                return
            connection.execute("SELECT pg_sleep(0.01)")
    pytest.fail("nobody waited")
