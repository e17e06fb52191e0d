"""
What a handler returns or raises, and what becomes of its job.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from jobstore import (
    DONE,
    AsyncContext,
    AttemptOutcome,
    ChildFailure,
    Completed,
    Context,
    Failed,
    Handlers,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobStatus,
    LeaseLost,
    NewJob,
    PostgresStore,
    Released,
    Snoozed,
    Worker,
)
from jobstore.ids import new_id
from jobstore.worker import Answer
from tests.servers import connect
from tests.worker.conftest import Start, wait_for, wait_until

ENDED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


@pytest.mark.parametrize(
    ("answer", "result"),
    [(b"x", b"x"), (b"", b""), (None, None), (Completed(b"\x00\xff"), b"\x00\xff")],
)
def test_what_is_returned_is_the_result(
    store: PostgresStore, start: Start, answer: Answer, result: bytes | None
) -> None:
    async def in_the_loop(_context: AsyncContext) -> Answer:
        return answer

    def in_a_thread(_context: Context) -> Answer:
        return answer

    start({"async": in_the_loop, "sync": in_a_thread})
    for kind in ("async", "sync"):
        job = store.create(NewJob(kind=kind)).job
        done = wait_for(store, job.id, *ENDED)
        assert (done.status, done.result) == (JobStatus.COMPLETED, result)


def test_a_handler_reads_its_payload(store: PostgresStore, start: Start) -> None:
    handlers = Handlers()

    @handlers.on("async")
    async def in_the_loop(context: AsyncContext) -> bytes:
        return (await context.payload()).data

    @handlers.on("sync")
    def in_a_thread(context: Context) -> bytes:
        return context.payload().data

    start(handlers)
    every_byte = bytes(range(256)) * 100
    for kind in ("async", "sync"):
        job = store.create(NewJob(kind=kind, payload=every_byte)).job
        assert wait_for(store, job.id, *ENDED).result == every_byte


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("text")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("no good"), "ValueError", "no good"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (SystemExit(3), "SystemExit", "3"),
        (JobFailed("BAD_PAGE", "torn"), "BAD_PAGE", "torn"),
        (RuntimeError("nul \x00 and \ud800"), "RuntimeError", "nul ␀ and ?"),
        (Mute(), "Mute", "(Mute has no text: its str() fails)"),
    ],
)
def test_what_is_raised_is_the_failure(
    store: PostgresStore, start: Start, error: BaseException, code: str, message: str
) -> None:
    async def in_the_loop(_context: AsyncContext) -> None:
        raise error

    def in_a_thread(_context: Context) -> None:
        raise error

    start({"async": in_the_loop, "sync": in_a_thread})
    for kind in ("async", "sync"):
        job = store.create(NewJob(kind=kind, max_attempts=1)).job
        done = wait_for(store, job.id, *ENDED)
        assert done.status is JobStatus.FAILED
        assert (done.error_code, done.error_message) == (code, message)


def test_a_failure_is_tried_again_until_the_attempts_are_used_up(
    store: PostgresStore, start: Start
) -> None:
    starts = []

    def fails(context: Context) -> None:
        starts.append(context.job.attempts)
        raise JobFailed("NO", retry_in=timedelta(0))

    start({"k": fails})
    job = store.create(NewJob(kind="k", max_attempts=3)).job
    done = wait_for(store, job.id, *ENDED)
    assert done.status is JobStatus.FAILED
    assert starts == [1, 2, 3]


def test_a_final_failure_is_not_tried_again(store: PostgresStore, start: Start) -> None:
    starts = []

    def fails(_context: Context) -> None:
        starts.append(1)
        raise JobFailed("NO", final=True)

    start({"k": fails})
    job = store.create(NewJob(kind="k", max_attempts=3)).job
    wait_for(store, job.id, *ENDED)
    assert len(starts) == 1


def test_an_answer_of_another_type_fails_the_job_for_good(
    store: PostgresStore, start: Start
) -> None:
    start({"k": lambda _context: "text"})
    job = store.create(NewJob(kind="k")).job
    done = wait_for(store, job.id, *ENDED)
    assert (done.status, done.error_code) == (JobStatus.FAILED, "INVALID_RESULT")


def test_a_result_that_is_too_large_fails_the_job_for_good(
    dsn: str, schema: str, start: Start
) -> None:
    store = PostgresStore(dsn, schema=schema, max_payload_bytes=10)
    worker = Worker(
        store,
        {"k": lambda _context: b"x" * 11, "ok": lambda _context: b"ok"},
        poll_every=timedelta(milliseconds=20),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        ids = [store.create(NewJob(kind=kind)).job.id for kind in ("ok", "k", "ok")]
        ended = [wait_for(store, job_id, *ENDED) for job_id in ids]
        assert [job.error_code for job in ended] == [None, "INVALID_RESULT", None]
    finally:
        worker.stop()
        thread.join()
        store.close()


def test_a_handler_may_choose_any_outcome(store: PostgresStore, start: Start) -> None:
    def snoozes(context: Context) -> Answer:
        return Snoozed(timedelta(0)) if context.job.fence == 1 else Completed(b"late")

    def releases(context: Context) -> Answer:
        return Released() if context.job.fence == 1 else Completed(b"again")

    def fails(_context: Context) -> Answer:
        return Failed("MINE", final=True)

    start({"snooze": snoozes, "release": releases, "fail": fails})
    ids = {
        kind: store.create(NewJob(kind=kind, max_attempts=1)).job.id
        for kind in ("snooze", "release", "fail")
    }
    done = {kind: wait_for(store, job_id, *ENDED) for kind, job_id in ids.items()}
    assert done["snooze"].result == b"late"
    assert done["release"].result == b"again"
    assert done["fail"].error_code == "MINE"
    assert done["snooze"].attempts == 1, "giving back is not charged"


def test_fan_out_and_join(store: PostgresStore, start: Start) -> None:
    handlers = Handlers()

    @handlers.on("document")
    async def document(context: AsyncContext) -> Answer:
        if context.job.is_resumed:
            children = await context.children()
            return b"".join(child.result or b"" for child in children)
        return await context.fan_out(
            [
                context.job.child(kind="page", payload=bytes([number]), pages=[number])
                for number in range(5)
            ]
        )

    @handlers.on("page")
    def page(context: Context) -> bytes:
        return context.payload().data

    start(handlers)
    job = store.create(NewJob(kind="document", max_attempts=1)).job
    assert wait_for(store, job.id, *ENDED).result == bytes(range(5))
    assert [one.outcome for one in store.attempts(job.id)] == [AttemptOutcome.WAITING]


def test_a_parent_fails_with_its_children_if_it_asked_to(
    store: PostgresStore, start: Start
) -> None:
    def parent(context: Context) -> Answer:
        children = [context.job.child(kind="bad", max_attempts=1)]
        return context.fan_out(children, on_child_failure=ChildFailure.FAIL)

    def bad(_context: Context) -> None:
        raise ValueError

    start({"parent": parent, "bad": bad})
    job = store.create(NewJob(kind="parent")).job
    assert wait_for(store, job.id, *ENDED).error_code == "CHILD_FAILED"


def test_what_is_raised_after_a_fan_out_changes_nothing(
    store: PostgresStore, start: Start
) -> None:
    def parent(context: Context) -> Answer:
        if context.job.is_resumed:
            return b"joined"
        context.fan_out([context.job.child(kind="child")])
        raise ValueError("too late")

    start({"parent": parent, "child": lambda _context: None})
    job = store.create(NewJob(kind="parent", max_attempts=1)).job
    assert wait_for(store, job.id, *ENDED).result == b"joined"


def test_a_handler_ends_its_job_in_a_transaction_of_its_own(
    dsn: str, store: PostgresStore, start: Start
) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(dsn)

    def own(context: Context) -> Answer:
        with engine.begin() as connection:
            store.within(connection).complete(context.lease, b"with my rows")
        return DONE

    start({"k": own})
    job = store.create(NewJob(kind="k")).job
    assert wait_for(store, job.id, *ENDED).result == b"with my rows"
    engine.dispose()


def test_jobs_of_an_unknown_kind_are_given_back_uncharged(
    store: PostgresStore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start({"known": lambda _context: None})
    jobs = [store.create(NewJob(kind="new")).job for _ in range(3)]
    for job in jobs:
        given_back = wait_for(store, job.id, JobStatus.SCHEDULED)
        assert given_back.attempts == 0
        assert given_back.available_at > job.available_at + timedelta(seconds=10)
    told = [one for one in caplog.records if "no handler" in one.message]
    assert len(told) == 1, "once for each kind, not for each job"


def test_a_handler_for_any_kind(store: PostgresStore, start: Start) -> None:
    start({"a": lambda _context: b"a", "*": lambda context: context.job.kind.encode()})
    ids = [store.create(NewJob(kind=kind)).job.id for kind in ("a", "b")]
    assert [wait_for(store, one, *ENDED).result for one in ids] == [b"a", b"b"]


def test_a_job_without_its_payload_fails_on_the_counted_path(
    dsn: str, schema: str, store: PostgresStore, start: Start
) -> None:
    job = store.create(NewJob(kind="k", max_attempts=1)).job
    with connect(dsn) as connection:
        connection.execute(f'DELETE FROM "{schema}".payload')
    start({"k": lambda context: context.payload().data})
    done = wait_for(store, job.id, *ENDED)
    assert (done.status, done.error_code) == (JobStatus.FAILED, "PAYLOAD_MISSING")


def test_a_cancelled_job_interrupts_its_coroutine(
    store: PostgresStore, start: Start
) -> None:
    began, interrupted = threading.Event(), threading.Event()

    async def long(_context: AsyncContext) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    start({"k": long})
    job = store.create(NewJob(kind="k")).job
    assert began.wait(30)
    store.cancel(job.id)
    assert interrupted.wait(30)
    assert store.get(job.id).status is JobStatus.CANCELLED


def test_a_cancelled_job_tells_its_thread(store: PostgresStore, start: Start) -> None:
    began, told = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def long(context: Context) -> bytes:
        began.set()
        wait_until(lambda: context.is_lost, "the lease to be lost")
        try:
            context.check()
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            told.set()
        return b"never taken"

    worker = start({"k": long})
    job = store.create(NewJob(kind="k")).job
    assert began.wait(30)
    store.cancel(job.id, reason="enough")
    assert told.wait(30)
    assert type(errors[0]).__name__ == "JobCancelled"
    wait_until(lambda: worker.health().held == 0, "the job to be let go")
    assert store.get(job.id).error_message == "enough"


def test_two_handlers_for_one_kind_are_refused() -> None:
    handlers = Handlers()
    handlers.on("k")(lambda _context: None)
    with pytest.raises(InvalidInput, match="kind='k'"):
        handlers.on("k")(lambda _context: None)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("concurrency", 0),
        ("concurrency", True),
        ("queues", "default"),
        ("queues", ()),
        ("visibility_timeout", timedelta(0)),
        ("heartbeat_every", timedelta(minutes=1)),
        ("grace", timedelta(-1)),
        ("poll_every", timedelta(0)),
        ("prune_after", timedelta(0)),
        ("name", "nul\x00"),
    ],
)
def test_settings_that_do_not_fit_are_refused(setting: str, value: Any) -> None:
    store = PostgresStore("postgresql://nowhere")
    with pytest.raises(InvalidInput) as refused:
        Worker(store, {"k": lambda _context: None}, **{setting: value})
    assert refused.value.field in {setting, "worker", "queue"}


def test_a_worker_without_handlers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="handlers"):
        Worker(PostgresStore("postgresql://nowhere"), {})


class Odd(JobFailed):
    def __init__(self) -> None:  # not all that JobFailed has
        Exception.__init__(self, "odd")


class Late(JobFailed):
    def __init__(self) -> None:
        super().__init__("LATE")
        self.retry_in = timedelta(-1)


class Bare(LeaseLost):
    def __init__(self) -> None:
        Exception.__init__(self, "bare")


@pytest.mark.parametrize("error", [Odd, Late, Bare])
def test_an_error_that_is_not_what_it_says_fails_the_job_all_the_same(
    store: PostgresStore, start: Start, error: type[Exception]
) -> None:
    def handler(_context: Context) -> Answer:
        raise error

    start({"k": handler})
    job = store.create(NewJob(kind="k", max_attempts=1)).job
    assert wait_for(store, job.id, *ENDED).error_code == error.__name__


def test_a_negative_wait_is_refused_where_it_is_said() -> None:
    with pytest.raises(InvalidInput) as refused:
        JobFailed("E", retry_in=timedelta(-1))
    assert refused.value.field == "retry_in"


@pytest.mark.parametrize("loss", [LeaseLost, JobCancelled])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_loss_of_another_jobs_lease_is_a_failure_like_any(
    store: PostgresStore, start: Start, kind: str, loss: type[LeaseLost]
) -> None:
    other = loss(new_id(), 1, "it was somebody else's")

    async def in_the_loop(_context: AsyncContext) -> Answer:
        raise other

    def in_a_thread(_context: Context) -> Answer:
        raise other

    start({"async": in_the_loop, "sync": in_a_thread})
    job = store.create(NewJob(kind=kind, max_attempts=1)).job
    failed = wait_for(store, job.id, *ENDED)
    assert (failed.status, failed.error_code) == (JobStatus.FAILED, loss.code)
