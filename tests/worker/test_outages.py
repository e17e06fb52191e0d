"""
A store that fails: nothing is lost, nothing is charged, and everything resumes.
"""

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import (
    InvalidInput,
    JobstoreError,
    OutcomeUnknown,
    StoreBusy,
    StoreFault,
    StoreUnavailable,
)
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed
from jobstore.worker import AsyncContext, Context
from tests.worker.tools import PATIENCE_SECONDS, Harness, until

QUICK = {"heartbeat_every": timedelta(milliseconds=50)}


def _away() -> JobstoreError:
    return StoreUnavailable("the database is away")


def _cut() -> JobstoreError:
    return OutcomeUnknown("the connection broke")


@pytest.mark.parametrize("error", [_away, _cut])
def test_an_outage_at_the_moment_of_completion_loses_nothing(
    at: Harness, error: Any
) -> None:
    """
    CN-12: the outcomes are kept, and written when the database is back.
    """
    entered, go_on = threading.Barrier(6), threading.Event()

    def handler(context: Context) -> bytes:
        entered.wait(PATIENCE_SECONDS)
        go_on.wait(PATIENCE_SECONDS)
        return context.job.id.encode()

    ids = [at.create() for _ in range(5)]
    worker = at.worker(handler, **QUICK)
    entered.wait(PATIENCE_SECONDS)
    with at.faults.away(error):
        go_on.set()
        until(lambda: worker.worker.health().waiting_for_commit == 5)
        until(lambda: worker.worker.health().loops["finish"].failure)
        assert not worker.worker.health().is_healthy()
    for job_id in ids:
        job = at.ended(job_id)
        assert (job.result, job.attempts, job.fence) == (job_id.encode(), 1, 1)
    until(lambda: worker.worker.health().is_healthy())
    assert worker.worker.health().completed == 5


def test_an_outcome_whose_answer_got_lost_is_not_written_twice(at: Harness) -> None:
    """
    CN-02, LC-03.
    """
    at.faults.fail_after("set_results", _cut())
    job_id = at.create()
    worker = at.worker(lambda _: b"once")
    job = at.ended(job_id)
    until(lambda: worker.worker.health().waiting_for_commit == 0)
    assert (job.status, job.result) == (JobStatus.COMPLETED, b"once")
    assert worker.worker.health().dropped == 0


def test_every_loop_outlives_an_outage_and_says_so_once(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """
    CN-15: backoff for ever, red meanwhile, resumed unaided, without a flood of logs.
    """
    caplog.set_level(logging.INFO, "jobstore.worker")
    gate = threading.Event()
    at.create("slow")
    worker = at.worker(
        {"slow": lambda _: gate.wait(PATIENCE_SECONDS) and None, "k": lambda _: None},
        **QUICK,
    )
    until(lambda: worker.worker.health().busy == 1)
    with at.faults.away(_away):
        until(
            lambda: (
                {
                    name
                    for name, loop in worker.worker.health().loops.items()
                    if loop.failure
                }
                == {"claim", "heartbeat", "upkeep"}
            )
        )
        calls = at.faults.count("claim")
        until(lambda: at.faults.count("claim") > calls + 2)
    gate.set()
    at.ended(at.create())
    until(lambda: worker.worker.health().is_healthy())
    assert worker.thread.is_alive()
    for name in ("claim", "heartbeat", "upkeep"):
        told = [
            record.getMessage()
            for record in caplog.records
            if record.getMessage().startswith(f"{name}: ")
        ]
        assert len(told) == 2, told
        assert "works again" in told[1]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_outage_while_a_handler_reads_is_not_charged(
    at: Harness, colour: str
) -> None:
    async def coroutine(context: AsyncContext) -> bytes:
        return (await context.payload()).data

    job_id = at.create(colour, b"text", max_attempts=1)
    at.faults.fail("payload", _away(), StoreBusy("pool"), _cut())
    at.worker({"sync": lambda context: context.payload().data, "async": coroutine})
    job = at.ended(job_id)
    assert (job.status, job.result) == (JobStatus.COMPLETED, b"text")


def test_a_claim_whose_answer_got_lost_comes_back(at: Harness) -> None:
    """
    CN-02: the lease was granted to nobody; the visibility timeout frees it.
    """
    at.faults.fail_after("claim", _cut())
    job_id = at.create()
    at.worker(
        lambda _: None,
        visibility_timeout=timedelta(seconds=1),
        heartbeat_every=timedelta(milliseconds=50),
    )
    job = at.ended(job_id)
    assert (job.attempts, job.fence) == (2, 2)


# -- outcomes that can't be written --------------------------------------------


def test_a_result_that_is_refused_ends_its_job_and_no_other(at: Harness) -> None:
    """
    DA-02: of one batch, one result is not to be had.
    """
    _fail_those(at, lambda: InvalidInput("result", b"", "is over the limit"))
    ids = _batch(at)
    assert [at.ended(job_id).status for job_id in ids] == [
        JobStatus.COMPLETED,
        JobStatus.FAILED,
        JobStatus.COMPLETED,
        JobStatus.COMPLETED,
    ]
    bad = at.job(ids[1])
    assert (bad.error_code, bad.attempts) == ("INVALID_RESULT", 1)


def test_a_value_that_the_database_refuses_is_an_invalid_result(at: Harness) -> None:
    _fail_those(at, lambda: StoreFault("too large", "54000"))
    ids = _batch(at)
    assert at.ended(ids[1]).error_code == "INVALID_RESULT"
    assert at.ended(ids[3]).status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    "error",
    [lambda: StoreBusy("a lock"), lambda: StoreFault("no space left", "53100")],
)
def test_an_outcome_that_cannot_be_written_now_is_kept_and_holds_up_no_other(
    at: Harness, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    is_over = threading.Event()
    _fail_those(at, lambda: None if is_over.is_set() else error())
    ids = _batch(at)
    for number in (0, 2, 3):
        assert at.ended(ids[number]).status is JobStatus.COMPLETED
    assert at.job(ids[1]).status is JobStatus.PROCESSING
    is_over.set()
    job = at.ended(ids[1])
    assert (job.result, job.attempts) == (b"bad", 1)
    assert caplog.text.count("not written yet") == 1


def test_a_kept_outcome_is_dropped_when_its_lease_is_lost(at: Harness) -> None:
    from dataclasses import replace

    _fail_those(at, lambda: StoreFault("no space left", "53100"))
    ids = _batch(at, **QUICK, upkeep_every=timedelta(hours=1))
    at.ended(ids[3])
    at.behind.update_status(
        ids[1], lambda job: replace(job, status=JobStatus.QUEUED, queue="elsewhere")
    )
    worker = at.running[-1].worker
    until(lambda: worker.health().dropped == 1)
    assert worker.health().waiting_for_commit == 0


def _fail_those(at: Harness, error: Any) -> None:
    """
    Have `set_results` raise when one of the outcomes is the result ``bad``.
    """

    def fault(outcomes: Any) -> BaseException | None:
        if any(outcome == Completed(b"bad") for _, outcome in outcomes):
            refusal: BaseException | None = error()
            return refusal
        return None

    at.faults.judge("set_results", fault)


def _batch(at: Harness, **options: Any) -> list[str]:
    """
    Complete four jobs in one batch, the second with a result that is not to be had.
    """
    ids = [at.create(kind) for kind in ("a", "bad", "c", "d")]
    with at.faults.hanging("set_results", keep=True) as hangs:

        def handler(context: Context) -> bytes:
            # The first job's outcome is being written: the others wait for its end.
            hangs.wait(PATIENCE_SECONDS)
            return context.job.kind.encode()

        first = at.create("first")
        at.worker({"first": lambda _: None, "*": handler}, **options)
        worker = at.running[-1].worker
        until(lambda: worker.health().waiting_for_commit == 5)
    at.ended(first)
    return ids


# -- bounds --------------------------------------------------------------------


def test_results_that_pile_up_stop_further_claims(
    at: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobstore.worker import finish

    monkeypatch.setattr(finish, "_MOST_WAITING_BYTES", 1000)
    for _ in range(20):
        at.create()
    with at.faults.hanging("set_results") as hangs:
        worker = at.worker(lambda _: bytes(600), concurrency=1)
        assert hangs.wait(PATIENCE_SECONDS)
        until(lambda: worker.worker.health().waiting_for_commit == 2)
        claims = at.faults.count("claim")
        until(lambda: worker.worker.health().busy == 0)
        assert at.faults.count("claim") == claims
    until(lambda: worker.worker.health().completed == 20)


def test_claimed_and_uncommitted_jobs_are_bounded(
    at: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobstore.worker import running

    monkeypatch.setattr(running, "_BACKLOG", 5)
    for _ in range(30):
        at.create()
    with at.faults.hanging("set_results") as hangs:
        worker = at.worker(lambda _: None, concurrency=3)
        assert hangs.wait(PATIENCE_SECONDS)
        until(lambda: worker.worker.health().held == 8)
        until(lambda: worker.worker.health().busy == 0)
        assert worker.worker.health().claimed == 8
    until(lambda: worker.worker.health().completed == 30)


def test_large_results_are_written_a_few_at_a_time(
    at: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobstore.worker import finish

    monkeypatch.setattr(finish, "_LARGEST_BATCH_BYTES", 1000)
    for _ in range(6):
        at.create()
    with at.faults.hanging("set_results") as hangs:
        worker = at.worker(lambda _: bytes(400), concurrency=6)
        assert hangs.wait(PATIENCE_SECONDS)
        until(lambda: worker.worker.health().waiting_for_commit == 6)
    until(lambda: worker.worker.health().completed == 6)
    sizes = [len(args[0]) for verb, args, _ in at.faults.calls if verb == "set_results"]
    assert max(sizes) <= 2
