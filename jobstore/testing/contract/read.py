"""
The contract of get, attempts, list and stats.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobstore.errors import InvalidInput, JobNotFound
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.model import NewJob, QueueStats
from jobstore.store import MAX_BATCH, Store
from jobstore.testing.contract.steps import (
    HOUR,
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
)
from jobstore.testing.harness import Harness

__all__ = ["ReadContract"]


class ReadContract(Contract):
    """
    What get, attempts, list and stats promise.
    """

    def test_an_id_is_found_in_either_case(self, store: Store) -> None:
        job = create(store)
        assert store.get(job.id.lower()) == job

    def test_a_job_is_a_frozen_value(self, store: Store) -> None:
        job = create(store)
        with pytest.raises(FrozenInstanceError):
            job.status = JobStatus.FAILED  # type: ignore[misc]
        hold(store)
        assert job.status is JobStatus.QUEUED

    @pytest.mark.parametrize("bad", [None, 5, b"x", object])
    def test_an_id_must_be_text(self, store: Store, bad: Any) -> None:
        for verb in (store.get, store.payload, store.attempts, store.list_children):
            with pytest.raises((InvalidInput, JobNotFound)):
                verb(bad)

    def test_all_instants_are_utc(self, store: Store) -> None:
        job = in_status(store, JobStatus.FAILED)
        (past,) = store.attempts(job.id)
        for at in (
            job.created_at,
            job.updated_at,
            job.available_at,
            job.started_at,
            job.finished_at,
            past.started_at,
            past.ended_at,
        ):
            assert at is not None
            assert at.tzinfo is UTC
            assert abs(at - datetime.now(UTC)) < HOUR

    def test_attempts_come_oldest_first(self, store: Store) -> None:
        job = create(store, max_attempts=3)
        assert store.attempts(job.id) == []
        store.release(hold(store).lease)
        store.fail(hold(store).lease, error_code="E", retry_in=timedelta(0))
        store.snooze(hold(store).lease, timedelta(0))
        store.complete(hold(store).lease)
        assert [
            (past.fence, past.attempt, past.outcome) for past in store.attempts(job.id)
        ] == [(1, 1, "released"), (2, 1, "failed"), (3, 2, "snoozed")]

    # -- list ------------------------------------------------------------------

    def test_a_list_is_newest_first_and_in_pages(self, store: Store) -> None:
        ids = [one.job.id for one in store.create_many([NewJob(kind="x")] * 7)]
        assert [job.id for job in store.list()] == ids[::-1]
        for oldest_first, line in ((False, ids[::-1]), (True, ids)):
            read: list[str] = []
            while page := store.list(
                after=read[-1] if read else None, limit=3, oldest_first=oldest_first
            ):
                assert len(page) <= 3
                read += [job.id for job in page]
            assert read == line

    def test_a_list_goes_on_after_an_id_that_is_gone(
        self, store: Store, harness: Harness
    ) -> None:
        ids = [one.job.id for one in store.create_many([NewJob(kind="x")] * 3)]
        harness.delete(ids[1])
        assert [job.id for job in store.list(after=ids[1])] == ids[:1]
        assert [job.id for job in store.list(after=ids[1], oldest_first=True)] == ids[
            2:
        ]

    @pytest.mark.parametrize(
        "fields",
        [
            {"tenant": "acme"},
            {"queue": "other"},
            {"kind": "other"},
            {"job_class": JobClass.SYSTEM},
            {"idem_key": "k"},
            {"tenant": "100%_"},
            {"kind": "a'b\\"},
        ],
        ids=str,
    )
    def test_a_list_is_filtered(self, store: Store, fields: dict[str, Any]) -> None:
        create(store)
        create(store, tenant="100xy", kind="a'b")
        job = create(store, **fields)
        assert store.list(**fields) == [job]
        assert store.list(**fields, status=JobStatus.FAILED) == []

    def test_a_list_is_filtered_by_how_jobs_went(self, store: Store) -> None:
        jobs = {status: in_status(store, status) for status in JobStatus}
        store.cancel(store.list(queue="pages")[0].id)
        for status in set(JobStatus) - {JobStatus.WAITING, JobStatus.CANCELLED}:
            assert jobs[status].id in [job.id for job in store.list(status=status)]
            assert {job.status for job in store.list(status=status)} == {status}
        assert {job.status for job in store.list(status=TERMINAL)} == TERMINAL
        assert store.list(error_code="BROKEN") == [jobs[JobStatus.FAILED]]
        worker = jobs[JobStatus.PROCESSING].worker
        assert jobs[JobStatus.PROCESSING] in store.list(worker=worker)
        assert store.list(worker="nobody") == []

    def test_the_results_of_a_list_may_be_left_out(self, store: Store) -> None:
        job = in_status(store, JobStatus.COMPLETED)
        assert store.list() == [job]
        (bare,) = store.list(with_result=False)
        assert (bare.result, job.result) == (None, b"done")

    @pytest.mark.parametrize(
        "arguments",
        [
            {"limit": 0},
            {"limit": MAX_BATCH + 1},
            {"status": "unknown"},
            {"status": []},
            {"status": 5},
            {"status": [5]},
            {"job_class": "unknown"},
            {"tenant": ""},
            {"queue": "\x00"},
            {"kind": 5},
            {"worker": "\ud800"},
            {"idem_key": "x" * 1025},
        ],
        ids=str,
    )
    def test_a_list_that_does_not_fit_is_refused(
        self, store: Store, arguments: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            store.list(**arguments)

    def test_a_page_begins_after_an_id(self, store: Store) -> None:
        create(store)
        assert len(store.list(after=NO_ID, oldest_first=True)) == 1
        for after in ("", "x", "\x00", NO_ID + "0"):
            with pytest.raises(JobNotFound):
                store.list(after=after)
        with pytest.raises(InvalidInput):
            store.list(after=5)  # type: ignore[arg-type]

    def test_pages_stay_whole_while_jobs_go_on(self, store: Store) -> None:
        ids = [one.job.id for one in store.create_many([NewJob(kind="x")] * 9)]
        read: list[str] = []
        while len(read) < len(ids):
            page = store.list(
                after=read[-1] if read else None, limit=2, oldest_first=True
            )
            read += [job.id for job in page]
            store.complete(hold(store).lease)
            create(store, queue="new")
        assert read[: len(ids)] == ids

    # -- stats -----------------------------------------------------------------

    def test_an_empty_store_has_no_stats(self, store: Store) -> None:
        assert store.stats() == []

    def test_stats_count_by_queue_class_and_status(self, store: Store) -> None:
        first = create(store, queue="b")
        create(store, queue="b")
        urgent = create(store, queue="b", job_class=JobClass.INTERACTIVE)
        store.cancel(create(store, queue="b").id)
        other = create(store, queue="a")
        store.fail(hold(store, queue="a").lease, error_code="E", final=True)
        lines = store.stats()
        assert [
            (line.queue, line.job_class, line.status, line.jobs) for line in lines
        ] == [
            ("a", "batch", "failed", 1),
            ("b", "interactive", "queued", 1),
            ("b", "batch", "queued", 2),
            ("b", "batch", "cancelled", 1),
        ]
        assert lines[0].oldest_at == store.get(other.id).finished_at
        assert lines[1].oldest_at == urgent.created_at
        assert lines[2].oldest_at == first.created_at

    def test_stats_know_every_status(self, store: Store) -> None:
        jobs = [in_status(store, status, queue="q") for status in reversed(JobStatus)]
        lines = [line for line in store.stats() if line.queue == "q"]
        assert [line.status for line in lines] == list(JobStatus)
        assert all(line.jobs == 1 for line in lines)
        assert len(jobs) == len(lines)

    def test_stats_count_what_has_no_attempts_left(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store)
        create(store)
        harness.edit(job.id, attempts=5)
        assert store.stats() == [
            QueueStats(
                queue="default",
                job_class=JobClass.BATCH,
                status=JobStatus.QUEUED,
                jobs=2,
                oldest_at=job.created_at,
            )
        ]

    @pytest.mark.parametrize("status", sorted(TERMINAL), ids=str)
    def test_stats_forget_old_successes_but_not_failures(
        self, store: Store, harness: Harness, status: JobStatus
    ) -> None:
        job = in_status(store, status)
        harness.age(job.id, HOUR)
        counted = [line.status for line in store.stats()]
        assert counted == ([status] if status is JobStatus.FAILED else [])
        assert [line.status for line in store.stats(window=2 * HOUR)] == [status]

    @pytest.mark.parametrize("window", [timedelta(-1), timedelta(days=3651), 5, None])
    def test_stats_check_their_window(self, store: Store, window: Any) -> None:
        with pytest.raises(InvalidInput):
            store.stats(window=window)

    # -- connect ---------------------------------------------------------------

    def test_a_dedicated_store_works_on_the_same_jobs(self, store: Store) -> None:
        job = create(store)
        twin = store.dedicated()
        assert twin.get(job.id) == job
        claim = hold(twin)
        twin.close()
        twin.close()
        assert store.complete(claim.lease) is JobStatus.COMPLETED

    def test_listening_can_be_ended(self, store: Store) -> None:
        heard: list[str | None] = []
        listening = store.listen(heard.append)
        listening.close()
        listening.close()
        count = len(heard)
        create(store)
        assert len(heard) == count

    @pytest.mark.parametrize("callback", [None, 5, "f"])
    def test_what_cannot_be_called_back_is_refused(
        self, store: Store, callback: Any
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            store.listen(callback)
        assert refused.value.field == "callback"

    def test_reading_changes_nothing(self, store: Store) -> None:
        job = create(store, payload=b"x")
        reads: list[Callable[[], object]] = [
            lambda: store.get(job.id),
            lambda: store.payload(job.id),
            lambda: store.attempts(job.id),
            lambda: store.list_children(job.id),
            store.list,
            store.stats,
        ]
        first = [read() for read in reads]
        assert [read() for read in reads] == first
        with pytest.raises(JobNotFound):
            store.get(NO_ID)
        assert store.get(job.id) == job
