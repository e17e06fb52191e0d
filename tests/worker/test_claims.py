"""
Claiming: how many, from where, and when.
"""

import threading
from datetime import timedelta

import pytest

from jobstore.lifecycle import JobClass, JobStatus
from jobstore.worker import AsyncContext, Context
from tests.worker.tools import PATIENCE_SECONDS, Harness, until

HOUR = timedelta(hours=1)


def _limits(at: Harness) -> list[int]:
    return [args[0] for verb, args, _ in list(at.faults.calls) if verb == "claim"]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_no_more_handlers_run_at_once_than_were_allowed(
    at: Harness, colour: str
) -> None:
    import asyncio

    lock = threading.Lock()
    now = most = 0

    def enter(step: int) -> None:
        nonlocal now, most
        with lock:
            now += step
            most = max(most, now)

    def function(_: Context) -> None:
        enter(+1)
        threading.Event().wait(0.005)
        enter(-1)

    async def coroutine(_: AsyncContext) -> None:
        enter(+1)
        await asyncio.sleep(0.005)
        enter(-1)

    ids = [at.create(colour) for _ in range(40)]
    at.worker({"sync": function, "async": coroutine}, concurrency=4)
    for job_id in ids:
        at.ended(job_id)
    assert most == 4
    assert max(_limits(at)) == 4


def test_a_batch_is_as_large_as_there_are_free_hands(at: Harness) -> None:
    gate = threading.Event()
    for _ in range(3):
        at.create()
    worker = at.worker(lambda _: gate.wait(PATIENCE_SECONDS) and None, concurrency=10)
    until(lambda: worker.worker.health().busy == 3)
    until(lambda: _limits(at)[-1] == 7)
    gate.set()


def test_jobs_begin_in_the_order_of_their_claim(at: Harness) -> None:
    begun: list[str] = []

    async def coroutine(context: AsyncContext) -> None:
        begun.append(context.job.id)

    ids = [at.create() for _ in range(30)]
    worker = at.worker(coroutine, concurrency=7)
    until(lambda: worker.worker.health().completed == 30)
    assert begun == ids


def test_a_class_may_be_reserved(at: Harness) -> None:
    batch = at.create(job_class=JobClass.BATCH)
    urgent = at.create(job_class=JobClass.INTERACTIVE)
    worker = at.worker(lambda _: None, job_class="interactive")
    at.ended(urgent)
    claims = at.faults.count("claim")
    until(lambda: at.faults.count("claim") > claims + 2)
    assert at.job(batch).status is JobStatus.QUEUED
    worker.stop()


def test_a_busy_queue_does_not_starve_the_others(at: Harness) -> None:
    order: list[str] = []
    for queue in ("busy", "quiet", "calm"):
        for _ in range(15 if queue == "busy" else 3):
            at.create(queue=queue)
    worker = at.worker(
        lambda context: order.append(context.job.queue),
        queues=["busy", "quiet", "calm"],
        concurrency=1,
    )
    until(lambda: worker.worker.health().completed == 21)
    # Each round begins with another queue; so all have had their turn by now.
    assert sorted(order[:9]) == ["busy"] * 3 + ["calm"] * 3 + ["quiet"] * 3


def test_an_empty_queue_is_not_asked_while_another_is_busy(at: Harness) -> None:
    for _ in range(20):
        at.create(queue="busy")
    worker = at.worker(
        lambda _: None, queues=["busy", "empty"], concurrency=1, poll_every=HOUR
    )
    until(lambda: worker.worker.health().completed == 20)
    asked = [
        options["queue"] for verb, _, options in at.faults.calls if verb == "claim"
    ]
    assert asked.count("empty") == 1


def test_an_idle_worker_polls_with_jitter(at: Harness) -> None:
    at.worker(lambda _: None, poll_every=timedelta(milliseconds=10))
    until(lambda: at.faults.count("claim") >= 5)
    assert at.ended(at.create()).status is JobStatus.COMPLETED


def test_wake_makes_an_idle_worker_look(at: Harness) -> None:
    worker = at.worker(
        lambda _: None, queues=["default", "other"], poll_every=HOUR
    ).worker
    until(lambda: at.faults.count("claim") == 2)
    worker.wake("default")
    until(lambda: at.faults.count("claim") == 3)
    worker.wake("unknown")
    worker.wake()
    until(lambda: at.faults.count("claim") == 5)
    job_id = at.create(queue="other")
    worker.wake("other")
    at.ended(job_id)


def test_a_wake_up_during_a_claim_is_not_lost(at: Harness) -> None:
    """
    The job was committed after the claim looked, and the hint came before it ended.
    """
    with at.faults.hanging("claim", after=True) as hangs:
        worker = at.worker(lambda _: None, poll_every=HOUR).worker
        assert hangs.wait(PATIENCE_SECONDS)
        job_id = at.create()
        worker.wake("default")
    at.ended(job_id)


def test_a_worker_listens_where_the_store_can_tell(at: Harness) -> None:
    at.worker(lambda _: None, poll_every=HOUR, wake_ups=True)
    until(lambda: at.faults.count("listen") and at.faults.count("claim"))
    for _ in range(3):
        at.ended(at.create())


def test_half_free_hands_are_enough_to_claim(at: Harness) -> None:
    """
    A worker of long jobs does not wait for more of them to end.
    """
    gates = [threading.Event() for _ in range(4)]

    def handler(context: Context) -> None:
        assert gates[context.job.pages[0]].wait(PATIENCE_SECONDS)

    ids = [at.create(pages=(number,)) for number in range(4)]
    worker = at.worker({"k": handler, "next": lambda _: None}, concurrency=4)
    until(lambda: worker.worker.health().busy == 4)
    later = at.create("next")
    gates[0].set()
    at.ended(later)
    for gate in gates:
        gate.set()
    for job_id in ids:
        at.ended(job_id)
