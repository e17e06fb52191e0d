"""
Upkeep: what every worker does for all.
"""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from jobstore.errors import StoreFault, StoreUnavailable
from jobstore.lifecycle import JobStatus
from jobstore.model import NewJob
from tests.worker.tools import PATIENCE_SECONDS, Harness, until

SECOND = timedelta(seconds=1)


def test_due_jobs_are_queued_by_a_worker_of_another_queue(at: Harness) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    job_id = at.create(available_at=soon, queue="elsewhere")
    at.worker(lambda _: None)
    until(lambda: at.job(job_id).status is JobStatus.QUEUED)


def test_stale_leases_are_ended(at: Harness) -> None:
    """
    LE-11: any worker does it; RT-01: a job that used up its attempts ends.
    """
    again, dead = at.create(), at.create(max_attempts=1)
    assert len(at.behind.claim(2, worker="gone")) == 2
    worker = at.worker(
        lambda _: b"again", visibility_timeout=SECOND, queues=["default"]
    )
    assert at.ended(again).result == b"again"
    job = at.ended(dead)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "ATTEMPTS_EXHAUSTED")
    assert worker.worker.health().reclaimed == 2


def test_nobody_is_judged_right_after_the_start_or_an_outage(at: Harness) -> None:
    """
    After an outage all leases are stale; whoever holds one gets the time to refresh it.
    """
    gate = threading.Event()
    worker = at.worker(
        lambda _: gate.wait(PATIENCE_SECONDS) and None,
        visibility_timeout=timedelta(seconds=2),
        heartbeat_every=timedelta(seconds=1),
    )
    until(lambda: at.faults.count("reclaim_stale") > 0)
    assert at.faults.count("promote_due") > at.faults.count("reclaim_stale")
    with at.faults.away(lambda: StoreUnavailable("away")):
        until(lambda: worker.worker.health().loops["upkeep"].failure)
        until(lambda: worker.worker.health().loops["heartbeat"].failure is None)
    before = at.faults.count("reclaim_stale")
    promoted = at.faults.count("promote_due")
    until(lambda: at.faults.count("promote_due") > promoted + 3)
    assert at.faults.count("reclaim_stale") == before
    until(lambda: at.faults.count("reclaim_stale") > before)
    gate.set()


def test_old_jobs_are_pruned_if_that_was_asked_for(at: Harness) -> None:
    old = at.create()
    worker = at.worker(lambda _: None, prune_after=SECOND)
    at.ended(old)
    worker.stop()
    assert at.faults.count("prune") <= 1
    from jobstore.errors import JobNotFound

    def is_gone() -> bool:
        try:
            at.job(old)
        except JobNotFound:
            return True
        return False

    # Seldom done, so it takes a worker that was just started.
    def pruned() -> bool:
        one = at.worker(lambda _: None, prune_after=SECOND)
        until(lambda: at.faults.count("prune") and one.worker.health().is_running)
        done = is_gone()
        one.stop()
        at.faults.calls.clear()
        return done

    until(pruned)


def test_without_being_asked_nothing_is_pruned(at: Harness) -> None:
    at.worker(lambda _: None)
    until(
        lambda: at.faults.count("reclaim_stale") or at.faults.count("promote_due") > 5
    )
    assert at.faults.count("prune") == 0


def test_families_are_repaired(at: Harness) -> None:
    at.worker(lambda _: None)
    until(lambda: at.faults.count("repair_families") == 1)


def test_a_chore_that_fails_does_not_stop_the_others(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with at.faults._lock:
        at.faults._faults["promote_due"] = [
            ("always", lambda: StoreFault("permission denied", "42501"))
        ]
    worker = at.worker(lambda _: None, visibility_timeout=SECOND)
    job_id = at.behind.create(NewJob(kind="k", queue="elsewhere")).job.id
    assert at.behind.claim(1, queue="elsewhere")
    until(lambda: at.job(job_id).status is JobStatus.QUEUED)
    until(lambda: worker.worker.health().reclaimed == 1)
    assert caplog.text.count("permission denied") == 1
