"""
What a handler may do, and what becomes of its job.
"""

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from jobstore.errors import InvalidInput
from jobstore.lifecycle import JobStatus
from jobstore.model import (
    AttemptOutcome,
    ChildFailure,
    Completed,
    Failed,
    NewJob,
    Released,
    Snoozed,
)
from jobstore.worker import (
    DONE,
    AsyncContext,
    Context,
    Handlers,
    JobFailed,
    Worker,
)
from tests.worker.tools import Harness, until

PRIVATE = "XXX-private-XXX"


def both(function: Any) -> dict[str, Any]:
    """
    Make a handler of each colour of *function*, which gets the plain context.
    """

    async def coroutine(context: AsyncContext) -> Any:
        await asyncio.sleep(0)
        return function(context)

    return {"sync": function, "async": coroutine}


colours = pytest.mark.parametrize("colour", ["sync", "async"])


@colours
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (None, None),
        (b"", b""),
        (b"a\x00\xff", b"a\x00\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"y"), b"y"),
        (Completed(b"z"), b"z"),
    ],
)
def test_what_a_handler_returns_is_the_result(
    at: Harness, colour: str, answer: Any, result: bytes | None
) -> None:
    job_id = at.create(colour)
    at.worker(both(lambda _: answer))
    job = at.ended(job_id)
    assert (job.status, job.result) == (JobStatus.COMPLETED, result)


@colours
@pytest.mark.parametrize("answer", [1, {"a": 1}, "text", object()])
def test_another_value_fails_the_job_for_good(
    at: Harness, colour: str, answer: object
) -> None:
    job_id = at.create(colour)
    at.worker(both(lambda _: answer))
    job = at.ended(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "INVALID_RESULT")
    assert job.attempts == 1


def test_a_plain_function_that_returns_a_coroutine_is_told_so(at: Harness) -> None:
    async def work() -> None: ...

    job_id = at.create()
    at.worker(lambda _: work())
    job = at.ended(job_id)
    assert job.error_code == "INVALID_RESULT"
    assert "coroutine" in (job.error_message or "")


@colours
def test_a_handler_may_choose_the_outcome(at: Harness, colour: str) -> None:
    job_id = at.create(colour)
    at.worker(both(lambda _: Failed("NO_GOOD", "as said", final=True)))
    job = at.ended(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "NO_GOOD")
    assert job.error_message == "as said"


@colours
def test_job_failed_is_raised_from_however_deep(at: Harness, colour: str) -> None:
    def deep(context: Context) -> NoReturn:
        context.fail("NO_GOOD", "as said", final=True)

    job_id = at.create(colour)
    at.worker(both(deep))
    job = at.ended(job_id)
    assert (job.error_code, job.error_message) == ("NO_GOOD", "as said")


def test_job_failed_says_when_to_try_again(at: Harness) -> None:
    job_id = at.create()

    def handler(_: Context) -> NoReturn:
        raise JobFailed("LATER", retry_in=timedelta(hours=1))

    at.worker(handler)
    until(lambda: at.job(job_id).status is JobStatus.SCHEDULED)
    job = at.job(job_id)
    assert job.available_at - job.updated_at > timedelta(minutes=59)


@colours
def test_a_snooze_is_not_charged(at: Harness, colour: str) -> None:
    job_id = at.create(colour, max_attempts=1)
    times: list[int] = []

    def handler(context: Context) -> bytes:
        times.append(context.job.attempts)
        if len(times) < 3:
            context.snooze(timedelta(milliseconds=1))
        return b"done"

    at.worker(both(handler))
    assert at.ended(job_id).status is JobStatus.COMPLETED
    assert times == [1, 1, 1]


@colours
def test_an_exception_fails_the_attempt_by_its_class(at: Harness, colour: str) -> None:
    job_id = at.create(colour, max_attempts=3)
    seen: list[int] = []

    def handler(context: Context) -> NoReturn:
        seen.append(context.job.attempts)
        raise ZeroDivisionError("by zero")

    at.worker(both(handler))
    job = at.ended(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "ZeroDivisionError")
    assert job.error_message == "by zero"
    assert seen == [1, 2, 3]
    outcomes = [attempt.outcome for attempt in at.behind.attempts(job_id)]
    assert outcomes == [AttemptOutcome.FAILED] * 3


@colours
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError],
)
def test_no_exception_escapes_a_handler(
    at: Harness, colour: str, error: type[BaseException]
) -> None:
    """
    SH-02: what is not an `Exception` settles the job all the same.
    """

    def handler(context: Context) -> bytes:
        if context.job.kind == colour and context.job.tenant == "bad":
            raise error
        return b"fine"

    bad = at.create(colour, max_attempts=1, tenant="bad")
    good = at.create(colour)
    worker = at.worker(both(handler))
    assert at.ended(bad).status is JobStatus.FAILED
    assert at.ended(good).status is JobStatus.COMPLETED
    assert worker.thread.is_alive()


def test_an_exception_that_cannot_be_printed_is_recorded(at: Harness) -> None:
    class Evil(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def handler(_: Context) -> NoReturn:
        raise Evil

    job_id = at.create(max_attempts=1)
    at.worker(handler)
    assert at.ended(job_id).error_code == "Evil"


def test_unstorable_text_in_a_message_is_recorded(at: Harness) -> None:
    def handler(_: Context) -> NoReturn:
        raise ValueError("a\x00b\ud800" * 10_000)

    job_id = at.create(max_attempts=1)
    at.worker(handler)
    job = at.ended(job_id)
    assert job.error_code == "ValueError"
    assert len(job.error_message or "") == 2000


@colours
def test_nothing_private_is_logged(
    at: Harness, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: Context) -> NoReturn:
        raise ValueError(f"bad: {PRIVATE} {context.job.idem_key}")

    caplog.set_level(logging.DEBUG, "jobstore.worker")
    job_id = at.create(
        colour, PRIVATE.encode(), max_attempts=1, idem_key=f"key-{PRIVATE}"
    )
    worker = at.worker(both(handler))
    at.ended(job_id)
    worker.stop()
    assert job_id in caplog.text
    assert PRIVATE not in caplog.text


@colours
def test_a_job_without_its_payload_fails_on_the_counted_path(
    at: Harness, colour: str
) -> None:
    """
    RT-06: what can't be read is not retried without end.
    """
    from jobstore.errors import PayloadMissing

    job_id = at.create(colour, max_attempts=2)
    at.faults.fail("payload", PayloadMissing(job_id), PayloadMissing(job_id))
    at.worker({"sync": lambda context: context.payload(), "async": _read_payload})
    job = at.ended(job_id)
    assert (job.error_code, job.attempts) == ("PAYLOAD_MISSING", 2)


async def _read_payload(context: AsyncContext) -> bytes:
    return (await context.payload()).data


def test_payloads_come_byte_for_byte(at: Harness) -> None:
    payload = bytes(range(256)) * 10
    at.worker({"s": lambda context: context.payload().data, "a": _read_payload})
    for kind in "sa":
        assert at.ended(at.create(kind, payload)).result == payload


# -- kinds ---------------------------------------------------------------------


def test_an_unknown_kind_is_given_back_uncharged_and_told_once(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """
    CL-15: an old worker meets jobs of a newer program.
    """
    ids = [at.create("new") for _ in range(3)]
    known = at.create("old")
    at.worker({"old": lambda _: None})
    at.ended(known)
    until(lambda: all(at.job(one).status is JobStatus.SCHEDULED for one in ids))
    for one in ids:
        job = at.job(one)
        assert job.attempts == 0
        delay = job.available_at - job.updated_at
        assert timedelta(seconds=20) < delay < timedelta(seconds=40)
    assert caplog.text.count("no handler for kind 'new'") == 1


def test_the_star_takes_every_other_kind(at: Harness) -> None:
    at.worker({"a": lambda _: b"a", "*": lambda context: context.job.kind.encode()})
    assert at.ended(at.create("a")).result == b"a"
    assert at.ended(at.create("b")).result == b"b"


def test_a_registry_is_filled_by_decorator() -> None:
    handlers = Handlers({"x": lambda _: None})

    @handlers.on("page", "leaf")
    async def page(_: AsyncContext) -> None: ...

    assert set(handlers) == {"x", "page", "leaf"}
    assert handlers["leaf"] is page
    with pytest.raises(InvalidInput, match="has a handler already"):
        handlers.on("page")(page)
    with pytest.raises(InvalidInput, match="name the kinds"):
        handlers.on(page)  # type: ignore[arg-type]  # the parentheses were forgotten
    with pytest.raises(InvalidInput, match="must be callable"):
        handlers.add("y", "text")  # type: ignore[arg-type]


def test_callable_objects_and_partials_have_their_colour(at: Harness) -> None:
    from functools import partial

    class Sync:
        def __call__(self, _: Context) -> bytes:
            return threading.current_thread().name.encode()

    class Async:
        async def __call__(self, _: AsyncContext) -> bytes:
            asyncio.get_running_loop()
            return b"async"

    async def two(_one: int, _: AsyncContext) -> bytes:
        return b"partial"

    at.worker({"s": Sync(), "a": Async(), "p": partial(two, 1)})
    assert (at.ended(at.create("s")).result or b"").startswith(b"jobstore-handler")
    assert at.ended(at.create("a")).result == b"async"
    assert at.ended(at.create("p")).result == b"partial"


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"queues": "default"},
        {"queues": ()},
        {"queues": ("",)},
        {"job_class": "urgent"},
        {"visibility_timeout": timedelta(milliseconds=10)},
        {"visibility_timeout": 60},
        {"heartbeat_every": timedelta(seconds=31)},
        {"grace": timedelta(seconds=-1)},
        {"poll_every": timedelta(0)},
        {"prune_after": timedelta(0)},
        {"name": ""},
    ],
)
def test_settings_that_do_not_fit_are_refused(
    at: Harness, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        Worker(at.store, {"k": lambda _: None}, **options)


def test_no_handlers_are_refused(at: Harness) -> None:
    with pytest.raises(InvalidInput, match="handlers"):
        Worker(at.store, {})


# -- fan-out -------------------------------------------------------------------


def _document(context: Context) -> Any:
    if context.job.is_resumed:
        return b"".join(child.result or b"?" for child in context.children())
    return context.fan_out(
        [context.job.child(kind="page", payload=b"%d" % n, pages=[n]) for n in range(5)]
    )


async def _async_document(context: AsyncContext) -> Any:
    if context.job.is_resumed:
        return b"".join(child.result or b"?" for child in await context.children())
    await context.fan_out(
        [context.job.child(kind="page", payload=b"%d" % n, pages=[n]) for n in range(5)]
    )
    return b"whatever is returned now is not taken"


@pytest.mark.parametrize("handler", [_document, _async_document])
def test_a_parent_waits_for_its_children_and_joins_them(
    at: Harness, handler: Any
) -> None:
    job_id = at.create("document")
    at.worker({"document": handler, "page": lambda context: context.payload().data})
    job = at.ended(job_id)
    assert (job.status, job.result) == (JobStatus.COMPLETED, b"01234")
    # Neither the parking nor the second call was charged as a failure.
    assert job.attempts == 1


def test_a_fan_out_whose_answer_got_lost_is_found_to_be_done(at: Harness) -> None:
    from jobstore.errors import OutcomeUnknown

    job_id = at.create("document")
    at.faults.fail_after("fan_out", OutcomeUnknown("cut"))
    at.worker({"document": _document, "page": lambda context: context.payload().data})
    job = at.ended(job_id)
    assert (job.result, job.children_total) == (b"01234", 5)


def test_a_fan_out_that_is_refused_can_be_answered(at: Harness) -> None:
    from jobstore.errors import InvalidParent

    def handler(context: Context) -> bytes:
        with pytest.raises(InvalidParent):
            context.fan_out([NewJob(kind="page", tenant="another")])
        return b"handled"

    at.worker(handler)
    assert at.ended(at.create()).result == b"handled"


def test_an_exception_after_a_fan_out_changes_nothing(
    at: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: Context) -> Any:
        if not context.job.is_resumed:
            context.fan_out([context.job.child(kind="page")])
            raise ValueError("too late")
        return b"joined"

    job_id = at.create("document")
    at.worker({"document": handler, "page": lambda _: None})
    assert at.ended(job_id).result == b"joined"
    assert "raised ValueError after it had ended the job" in caplog.text


def test_a_failed_child_fails_its_parent_if_that_was_asked_for(at: Harness) -> None:
    job_id = at.create("document")
    at.worker(
        {
            "document": lambda context: context.fan_out(
                [context.job.child(kind="page", max_attempts=1)],
                on_child_failure=ChildFailure.FAIL,
            ),
            "page": lambda _: Failed("NO_GOOD"),
        }
    )
    assert at.ended(job_id).error_code == "CHILD_FAILED"


# -- ending the job itself -----------------------------------------------------


def test_a_handler_may_end_its_job_itself(at: Harness) -> None:
    def handler(context: Context) -> Any:
        at.behind.complete(context.lease, b"by myself")
        return DONE

    job_id = at.create()
    worker = at.worker(handler)
    until(lambda: worker.worker.health().busy == 0 and at.job(job_id).finished_at)
    assert at.job(job_id).result == b"by myself"


@colours
def test_a_handler_that_says_so_wrongly_fails_the_attempt(
    at: Harness, colour: str
) -> None:
    job_id = at.create(colour, max_attempts=1)
    at.worker(both(lambda _: DONE))
    assert at.ended(job_id).error_code == "NOT_ENDED"


@pytest.mark.postgres
def test_a_handlers_rows_and_the_end_of_its_job_commit_together(
    dsn: str, schema: str
) -> None:
    import sqlalchemy

    from jobstore.postgres import PostgresStore

    store = PostgresStore(dsn, schema=schema)
    engine = sqlalchemy.create_engine(dsn)
    at = Harness(store)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE IF NOT EXISTS nothing (n int)")
    tried: list[str] = []

    def handler(context: Context) -> Any:
        with engine.begin() as connection:
            store.within(connection).complete(context.lease, b"together")
            tried.append(context.job.id)
            if len(tried) == 1:
                raise ValueError("rolled back")
        return DONE

    job_id = at.create(max_attempts=5)
    at.worker(handler)
    try:
        job = at.ended(job_id)
        assert (job.result, tried) == (b"together", [job_id, job_id])
        (attempt,) = store.attempts(job_id)
        assert attempt.error_code == "ValueError"
    finally:
        at.close()
        engine.dispose()
        store.close()


def test_releasing_is_a_handlers_choice_too(at: Harness) -> None:
    seen: list[int] = []

    def handler(context: Context) -> Any:
        seen.append(context.job.attempts)
        return Released() if len(seen) == 1 else None

    at.worker(handler)
    assert at.ended(at.create()).status is JobStatus.COMPLETED
    assert seen == [1, 1]


def test_context_variables_do_not_leak_from_job_to_job(at: Harness) -> None:
    from contextvars import ContextVar

    variable: ContextVar[str] = ContextVar("variable", default="unset")

    def handler(_: Context) -> bytes:
        before = variable.get()
        variable.set("set")
        return before.encode()

    at.worker(handler, concurrency=1)
    for _ in range(3):
        assert at.ended(at.create()).result == b"unset"


def test_snoozed_is_an_outcome_to_return(at: Harness) -> None:
    job_id = at.create()
    at.worker(lambda _: Snoozed(timedelta(hours=1)))
    until(lambda: at.job(job_id).status is JobStatus.SCHEDULED)
    assert at.job(job_id).attempts == 0
