"""
A trace crosses the queue: from the create to the handler, its children and their join.
"""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from jobstore import (
    AsyncContext,
    Context,
    Failed,
    Handlers,
    JobFailed,
    JobStatus,
    MemoryStore,
    NewJob,
    PostgresStore,
    Worker,
)
from jobstore.observe.traces import sending, traced
from jobstore.store import Store
from jobstore.worker import Handler
from tests.worker.conftest import wait_until

ENDED = {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}


class Spans:
    """
    The spans that have ended, by their names.
    """

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        found = self._exporter.get_finished_spans()
        return sorted(
            (one for one in found if one.name == name),
            key=lambda one: one.start_time or 0,
        )


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The global provider can be set once in a process only.
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield Spans(exporter)
    provider.shutdown()


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore()
    yield made
    made.close()


def work(store: Store, handlers: Mapping[str, Handler], *job_ids: str) -> None:
    """
    Work until the jobs have ended.
    """
    worker = Worker(store, traced(handlers))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(
            lambda: all(store.get(one).status in ENDED for one in job_ids),
            "the jobs to end",
        )
    finally:
        worker.stop()
        thread.join(30)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


def test_a_family_is_one_trace(dsn: str, schema: str, spans: Spans) -> None:
    handlers = Handlers()

    @handlers.on("document")
    def document(context: Context) -> Any:
        if context.job.is_resumed:
            return b"joined"
        pages = [context.job.child(kind="page", pages=[n]) for n in range(2)]
        with sending(pages) as sent:
            return context.fan_out(sent)

    @handlers.on("page")
    async def page(_context: AsyncContext) -> bytes:
        await asyncio.sleep(0)
        return b"page"

    store = PostgresStore(dsn, schema=schema)
    try:
        with sending(NewJob(kind="document")) as new:
            job = store.create(new).job
        work(store, handlers, job.id)
        assert store.get(job.id).result == b"joined"
    finally:
        store.close()

    create, batch = spans.named("create default")
    first, *pages, last = spans.named("process default")
    assert len(pages) == 2
    everything = [create, batch, first, *pages, last]
    assert len({one.context.trace_id for one in everything if one.context}) == 1
    assert parent_of(create) is None
    assert parent_of(first) == parent_of(last) == id_of(create)
    assert parent_of(batch) == id_of(first)
    assert [parent_of(one) for one in pages] == [id_of(batch)] * 2
    assert create.kind is SpanKind.PRODUCER
    assert {one.kind for one in (first, last, *pages)} == {SpanKind.CONSUMER}
    assert dict(create.attributes or {}) == {
        "messaging.system": "jobstore",
        "messaging.operation.name": "create",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
    }
    assert (batch.attributes or {})["messaging.batch.message_count"] == 2
    assert dict(first.attributes or {}) == {
        "messaging.system": "jobstore",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "jobstore.job.kind": "document",
        "jobstore.job.class": "batch",
        "jobstore.job.attempt": 1,
    }


SECRET = "s3cr3t-m4rk3r"  # noqa: S105 - to be looked for


def _raise(error: Exception) -> Callable[[Context], bytes]:
    def handler(_context: Context) -> bytes:
        raise error

    return handler


async def _coroutine(_context: AsyncContext) -> bytes:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("handler", "error_type"),
    [
        (_raise(ValueError(SECRET)), "ValueError"),
        (_coroutine, "ValueError"),
        (_raise(JobFailed("E_PDF", SECRET, final=True)), "E_PDF"),
        (lambda _context: Failed("E_PAGE", SECRET, final=True), "E_PAGE"),
    ],
)
def test_a_failure_is_marked_and_its_text_stays_out(
    store: MemoryStore, spans: Spans, handler: Handler, error_type: str
) -> None:
    job = store.create(NewJob(kind="k", max_attempts=1)).job
    work(store, {"k": handler}, job.id)
    (span,) = spans.named("process default")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == error_type
    assert SECRET not in span.to_json()


def test_what_is_raised_while_creating_is_marked(spans: Spans) -> None:
    with pytest.raises(KeyError), sending(NewJob(kind="k", queue="q")):
        raise KeyError(SECRET)
    (span,) = spans.named("create q")
    assert (span.attributes or {})["error.type"] == "KeyError"
    assert SECRET not in span.to_json()


def test_jobs_of_several_queues_have_one_span(spans: Spans) -> None:
    jobs = [NewJob(kind="k", queue=name) for name in ("a", "b")]
    with sending(jobs) as sent:
        pass
    (span,) = spans.named("create")
    assert "messaging.destination.name" not in (span.attributes or {})
    assert len({one.traceparent for one in sent}) == 1
    assert [one.queue for one in sent] == ["a", "b"]


def test_a_job_without_a_trace_begins_one(store: MemoryStore, spans: Spans) -> None:
    job = store.create(NewJob(kind="k")).job
    work(store, {"k": lambda _context: None}, job.id)
    (span,) = spans.named("process default")
    assert span.parent is None


def test_without_an_sdk_nothing_changes(store: MemoryStore) -> None:
    new = NewJob(kind="k", traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    with sending(new) as sent:
        assert sent == new
        job = store.create(sent).job
    work(store, {"k": lambda _context: b"done"}, job.id)
    assert store.get(job.id).result == b"done"


def test_who_lacks_the_extra_is_told_its_name() -> None:
    code = """
        import sys
        sys.modules["opentelemetry"] = None
        import jobstore, jobstore.observe
        try:
            import jobstore.observe.traces
        except ModuleNotFoundError as error:
            print(error)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'jobstore[tracing]'" in ran.stdout
