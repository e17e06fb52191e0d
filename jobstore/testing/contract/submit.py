"""
The contract of create, create_many and payload.
"""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from jobstore.errors import (
    IdempotencyConflict,
    InvalidInput,
    InvalidParent,
    JobNotFound,
    JobPruned,
    PayloadMissing,
)
from jobstore.ids import new_id
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.model import ChildFailure, NewJob
from jobstore.store import MAX_BATCH, Store
from jobstore.testing.contract.steps import (
    NO_ID,
    Contract,
    create,
    hold,
    in_status,
    later,
)
from jobstore.testing.harness import MAX_PAYLOAD_BYTES, Harness

__all__ = ["SubmitContract"]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class SubmitContract(Contract):
    """
    What create, create_many and payload promise.
    """

    def test_a_new_job_has_what_was_asked_for_and_defaults(self, store: Store) -> None:
        new = NewJob(
            kind="ocr",
            payload=b"x",
            tenant="acme",
            idem_key="k",
            queue="fast",
            job_class=JobClass.SYSTEM,
            max_attempts=7,
            pages=(3, 1, 2),
            traceparent=TRACE,
        )
        job, created = store.create(new)
        assert created
        assert store.get(job.id) == job
        for name in (
            "kind",
            "tenant",
            "idem_key",
            "queue",
            "job_class",
            "max_attempts",
            "pages",
            "traceparent",
            "parent_id",
        ):
            assert getattr(job, name) == getattr(new, name), name
        assert job.status is JobStatus.QUEUED
        assert (job.attempts, job.fence) == (0, 0)
        assert (job.children_total, job.children_open, job.children_failed) == (0, 0, 0)
        assert job.on_child_failure is ChildFailure.RESUME
        assert job.created_at == job.updated_at == job.available_at
        assert job.created_at.tzinfo is UTC
        for name in (
            "result",
            "error_code",
            "error_message",
            "started_at",
            "heartbeat_at",
            "finished_at",
            "worker",
        ):
            assert getattr(job, name) is None, name

    def test_a_job_that_is_due_later_is_scheduled(self, store: Store) -> None:
        at = later().replace(microsecond=123456)
        job = create(store, available_at=at)
        assert job.status is JobStatus.SCHEDULED
        assert store.get(job.id).available_at == at
        assert store.claim_next() is None

    def test_a_delay_counts_from_the_creation(self, store: Store) -> None:
        delay = timedelta(days=40, seconds=1, microseconds=1)
        one = create(store, delay=delay)
        many = store.create_many(
            [NewJob(kind="k", delay=delay), NewJob(kind="k", delay=timedelta(0))]
        )
        later_on, at_once = (created.job for created in many)
        for job in (one, later_on):
            assert job == store.get(job.id)
            assert job.available_at - job.created_at == delay
            assert job.status is JobStatus.SCHEDULED
        assert at_once == store.get(at_once.id)
        assert at_once.status is JobStatus.QUEUED

    def test_a_job_whose_time_has_passed_is_queued(self, store: Store) -> None:
        at = datetime(2020, 2, 29, tzinfo=timezone(timedelta(hours=5)))
        job = create(store, available_at=at)
        assert job.status is JobStatus.QUEUED
        assert store.get(job.id).available_at == at

    @pytest.mark.parametrize(
        "data", [b"", bytes(range(256)), b"\x00", b"\xff" * 1000, b"\\x41"]
    )
    def test_a_payload_comes_back_byte_for_byte(
        self, store: Store, data: bytes
    ) -> None:
        job = create(store, payload=data, content_type="text/x; a=b")
        payload = store.payload(job.id)
        assert (payload.data, payload.content_type) == (data, "text/x; a=b")

    def test_a_payload_of_the_largest_size_is_taken(self, store: Store) -> None:
        job = create(store, payload=b"x" * MAX_PAYLOAD_BYTES)
        assert len(store.payload(job.id).data) == MAX_PAYLOAD_BYTES

    def test_a_larger_payload_is_refused(self, store: Store) -> None:
        new = NewJob(kind="work", payload=b"x" * (MAX_PAYLOAD_BYTES + 1))
        with pytest.raises(InvalidInput, match="payload"):
            store.create(new)
        with pytest.raises(InvalidInput, match="payload"):
            store.create_many([NewJob(kind="work"), new])
        assert store.list() == []

    @pytest.mark.parametrize("bad", [None, "x", {"kind": "x"}, [NewJob(kind="x")]])
    def test_only_new_jobs_can_be_created(self, store: Store, bad: Any) -> None:
        with pytest.raises(InvalidInput):
            store.create(bad)
        with pytest.raises(InvalidInput):
            store.create_many([bad])

    # -- idempotency -----------------------------------------------------------

    def test_a_known_key_finds_the_first_job(self, store: Store) -> None:
        new = NewJob(kind="work", payload=b"1", idem_key="k")
        first = store.create(new)
        again = store.create(new)
        assert (first.created, again.created) == (True, False)
        assert again.job == first.job
        assert again.payload_matches
        assert len(store.list()) == 1

    def test_a_known_key_finds_its_job_in_whatever_state(self, store: Store) -> None:
        for status in JobStatus:
            job = in_status(store, status, idem_key=f"k-{status}")
            found, created = store.create(NewJob(kind="work", idem_key=f"k-{status}"))
            assert not created
            assert found == store.get(job.id)
            assert found.status is status

    @pytest.mark.parametrize(
        "change",
        [{"payload": b"2"}, {"kind": "other"}, {"content_type": "text/plain"}],
        ids=lambda change: next(iter(change)),
    )
    def test_a_key_with_other_content_is_visible(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        new = NewJob(kind="work", payload=b"1", idem_key="k")
        first, _ = store.create(new)
        again = store.create(replace(new, **change))
        assert again.job == first
        assert not again.created
        assert not again.payload_matches
        assert store.payload(first.id).data == b"1"

    def test_strict_refuses_a_key_with_other_content(self, store: Store) -> None:
        new = NewJob(kind="work", payload=b"1", idem_key="k", tenant="acme")
        job, _ = store.create(new, strict=True)
        assert store.create(new, strict=True).job == job
        with pytest.raises(IdempotencyConflict) as caught:
            store.create(replace(new, payload=b"2"), strict=True)
        assert (caught.value.job_id, caught.value.tenant) == (job.id, "acme")

    def test_strict_refuses_a_key_under_another_parent(self, store: Store) -> None:
        parent = create(store)
        new = NewJob(kind="work", idem_key="k")
        store.create(new)
        with pytest.raises(IdempotencyConflict):
            store.create(replace(new, parent_id=parent.id), strict=True)
        assert store.get(parent.id).children_total == 0

    def test_fields_that_are_no_content_do_not_conflict(self, store: Store) -> None:
        new = NewJob(kind="work", idem_key="k")
        job, _ = store.create(new)
        other = replace(new, queue="q", max_attempts=1, job_class=JobClass.SYSTEM)
        again = store.create(other, strict=True)
        assert (again.job, again.payload_matches) == (job, True)

    def test_keys_count_within_one_tenant(self, store: Store) -> None:
        one = create(store, idem_key="k", tenant="a")
        other = create(store, idem_key="k", tenant="b")
        assert one.id != other.id

    @pytest.mark.parametrize(
        "pair",
        [("k", "k "), ("k", "K"), ("k", "k\u200b"), ("\u00e9", "e\u0301")],
        ids=ascii,
    )
    def test_keys_are_compared_byte_for_byte(
        self, store: Store, pair: tuple[str, str]
    ) -> None:
        one, other = (create(store, idem_key=key) for key in pair)
        assert one.id != other.id

    @pytest.mark.parametrize("key", [None, ""])
    def test_without_a_key_every_create_inserts(
        self, store: Store, key: str | None
    ) -> None:
        new = NewJob(kind="work", idem_key=key)
        one, other = store.create(new), store.create(new)
        assert one.created
        assert other.created
        assert one.job.id != other.job.id
        assert one.job.idem_key is None

    def test_the_key_of_a_deleted_job_is_not_given_again(
        self, store: Store, harness: Harness
    ) -> None:
        job = create(store, idem_key="k")
        harness.delete(job.id)
        with pytest.raises(JobPruned) as caught:
            create(store, idem_key="k")
        assert caught.value.job_id == job.id
        assert store.list() == []

    def test_the_longest_key_is_found_again(self, store: Store) -> None:
        key = "é" * 512
        job = create(store, idem_key=key)
        assert store.create(NewJob(kind="work", idem_key=key)).job == job
        assert job.idem_key == key

    # -- a chosen id -----------------------------------------------------------

    def test_a_create_can_be_repeated_by_its_id(self, store: Store) -> None:
        chosen = new_id()
        new = NewJob(kind="work", payload=b"1")
        first = store.create(new, job_id=chosen.lower())
        again = store.create(new, job_id=chosen)
        assert first.job.id == chosen
        assert first.created
        assert not again.created
        assert again.job == first.job
        assert len(store.list()) == 1

    @pytest.mark.parametrize(
        "change",
        [{"payload": b"2"}, {"kind": "other"}, {"idem_key": "k"}, {"tenant": "b"}],
        ids=lambda change: next(iter(change)),
    )
    def test_an_id_of_another_job_is_refused(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        new = NewJob(kind="work", payload=b"1")
        job, _ = store.create(new)
        with pytest.raises(IdempotencyConflict):
            store.create(replace(new, **change), job_id=job.id)
        assert store.list() == [job]

    def test_a_known_key_goes_before_a_chosen_id(self, store: Store) -> None:
        job = create(store, idem_key="k")
        again = store.create(NewJob(kind="work", idem_key="k"), job_id=new_id())
        assert (again.job, again.created) == (job, False)

    @pytest.mark.parametrize("bad", ["", "x", "é" * 26, NO_ID + "0", 17])
    def test_an_id_must_be_a_ulid(self, store: Store, bad: Any) -> None:
        with pytest.raises((JobNotFound, InvalidInput)):
            store.create(NewJob(kind="work"), job_id=bad)
        assert store.list() == []

    # -- many ------------------------------------------------------------------

    def test_many_come_back_in_their_order(self, store: Store) -> None:
        kinds = [f"k{number}" for number in range(50)]
        created = store.create_many([NewJob(kind=kind) for kind in kinds])
        assert [one.job.kind for one in created] == kinds
        ids = [one.job.id for one in created]
        assert ids == sorted(ids)
        assert [claim.job.id for claim in store.claim(100)] == ids
        assert [store.payload(job_id).data for job_id in ids] == [b""] * 50

    def test_many_keep_each_its_own_fields(self, store: Store) -> None:
        new = [
            NewJob(kind="a", payload=b"\x00", pages=(1, 2), traceparent=TRACE),
            NewJob(kind="b", payload=b"", pages=(), available_at=later()),
            NewJob(kind="c", tenant="é", job_class=JobClass.INTERACTIVE),
        ]
        created = store.create_many(new)
        for wanted, (job, _) in zip(new, created, strict=True):
            assert store.get(job.id) == job
            assert job.pages == wanted.pages
            assert job.tenant == wanted.tenant
            assert job.job_class is wanted.job_class
            assert job.traceparent == wanted.traceparent
            assert store.payload(job.id).data == wanted.payload
        assert [one.job.status for one in created] == ["queued", "scheduled", "queued"]

    def test_many_may_be_none(self, store: Store) -> None:
        assert store.create_many([]) == []

    def test_more_than_a_batch_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="new"):
            store.create_many([NewJob(kind="work")] * (MAX_BATCH + 1))
        assert store.list() == []

    def test_a_key_twice_in_one_batch_is_created_once(self, store: Store) -> None:
        known = create(store, idem_key="known")
        created = store.create_many(
            [
                NewJob(kind="work", idem_key="twice"),
                NewJob(kind="work", idem_key="known"),
                NewJob(kind="other", idem_key="twice"),
            ]
        )
        assert [one.created for one in created] == [True, False, False]
        assert [one.payload_matches for one in created] == [True, True, False]
        assert created[0].job.id == created[2].job.id
        assert created[0].job.kind == "work"
        assert created[1].job == known

    def test_one_strict_conflict_refuses_all(self, store: Store) -> None:
        job = create(store, idem_key="k")
        new = [NewJob(kind="work"), NewJob(kind="other", idem_key="k")]
        with pytest.raises(IdempotencyConflict):
            store.create_many(new, strict=True)
        assert store.list() == [job]
        new = [NewJob(kind=kind, idem_key="l") for kind in ("work", "other")]
        with pytest.raises(IdempotencyConflict):
            store.create_many(new, strict=True)
        assert store.list() == [job]
        assert store.create(NewJob(kind="third", idem_key="l"), strict=True).created

    # -- under a parent --------------------------------------------------------

    def test_children_are_counted_at_their_parent(self, store: Store) -> None:
        parent = create(store)
        created = store.create_many(
            [
                parent.child(kind="page", pages=[1], idem_key="k"),
                parent.child(kind="page", pages=[2]),
                parent.child(kind="page", pages=[3], idem_key="k"),
            ]
        )
        assert [one.created for one in created] == [True, True, False]
        store.create(parent.child(kind="page"))
        after = store.get(parent.id)
        assert (after.children_total, after.children_open) == (3, 3)
        assert after.status is JobStatus.QUEUED
        assert not after.is_resumed

    @pytest.mark.parametrize("status", sorted(TERMINAL))
    def test_an_ended_parent_takes_no_children(
        self, store: Store, status: JobStatus
    ) -> None:
        parent = in_status(store, status)
        with pytest.raises(InvalidParent) as caught:
            store.create(parent.child(kind="page"))
        assert caught.value.parent_id == parent.id
        assert store.list() == [parent]

    @pytest.mark.parametrize("status", sorted(TERMINAL))
    def test_an_ended_parents_child_is_found_by_its_key(
        self, store: Store, status: JobStatus
    ) -> None:
        parent = create(store)
        new = parent.child(kind="page", idem_key="a")
        child, _ = store.create(new)
        if status is JobStatus.CANCELLED:
            store.cancel(parent.id)
        else:
            lease = next(one.lease for one in store.claim(2) if one.job.id == parent.id)
            if status is JobStatus.COMPLETED:
                store.complete(lease)
            else:
                store.fail(lease, error_code="E", final=True)
        assert store.get(parent.id).status is status
        again = store.create(new)
        assert (again.job.id, again.created) == (child.id, False)
        with pytest.raises(InvalidParent):
            store.create_many([new, parent.child(kind="page", idem_key="b")])
        assert len(store.list_children(parent.id)) == 1

    def test_a_source_that_never_ends_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="10,000") as refused:
            store.create_many(itertools.repeat(NewJob(kind="k")))  # type: ignore[arg-type]
        assert refused.value.field == "new"
        assert store.list() == []

    def test_an_unknown_or_foreign_parent_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidParent):
            create(store, parent_id=NO_ID)
        parent = create(store)
        with pytest.raises(InvalidParent):
            store.create_many(
                [
                    NewJob(kind="work"),
                    NewJob(kind="work", parent_id=parent.id, tenant="other"),
                ]
            )
        assert store.list() == [parent]

    def test_a_child_has_tenant_queue_class_and_trace_of_its_parent(
        self, store: Store
    ) -> None:
        parent = create(
            store,
            tenant="acme",
            queue="q",
            job_class=JobClass.INTERACTIVE,
            max_attempts=3,
            traceparent=TRACE,
        )
        child, _ = store.create(parent.child(kind="page", pages=[4]))
        for name in ("tenant", "queue", "job_class", "max_attempts", "traceparent"):
            assert getattr(child, name) == getattr(parent, name), name
        assert (child.parent_id, child.pages) == (parent.id, (4,))

    # -- payload ---------------------------------------------------------------

    def test_the_payload_of_no_job_is_not_found(self, store: Store) -> None:
        with pytest.raises(JobNotFound):
            store.payload(NO_ID)

    def test_a_removed_payload_is_missing(self, store: Store, harness: Harness) -> None:
        job = create(store, payload=b"x")
        harness.remove_payload(job.id)
        with pytest.raises(PayloadMissing) as caught:
            store.payload(job.id)
        assert caught.value.job_id == job.id
        assert hold(store).job.id == job.id
