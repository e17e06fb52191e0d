"""
OpenTelemetry traces across the queue, on its own API (extra ``jobstore[tracing]``).

A job carries the W3C trace context of whoever submitted it. `sending` puts it there, in
a producer's span; `traced` has each handler run in a consumer's span below it. Where no
SDK is installed or set up, both do nothing, as OpenTelemetry's own API.

Names and attributes follow the semantic conventions for messaging:
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, cast, overload

from jobstore.errors import JobstoreError
from jobstore.model import Failed, Job, NewJob
from jobstore.worker import AsyncContext, Context, Handler, JobFailed
from jobstore.worker.registry import Answer

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ModuleNotFoundError as error:
    _NEEDS = "jobstore.observe.traces needs more: pip install 'jobstore[tracing]'"
    raise ModuleNotFoundError(_NEEDS, name=error.name) from error

__all__ = ["sending", "traced"]

_SYSTEM = {"messaging.system": "jobstore"}
_PROPAGATOR = TraceContextTextMapPropagator()


@overload
def sending(new: NewJob) -> AbstractContextManager[NewJob]: ...


@overload
def sending(new: Sequence[NewJob]) -> AbstractContextManager[list[NewJob]]: ...


def sending(new: NewJob | Sequence[NewJob]) -> AbstractContextManager[Any]:
    """
    Open a producer's span, and lend *new* with its trace context, to be created within.

        with sending(NewJob(kind="page")) as new:
            store.create(new)                  # or: await store.create(new)

    For several jobs there is one span, and a list. A job that has a traceparent
    already, as `Job.child` gives it, gets this one. What is raised within is noted by
    its type; its text may hold what is nobody's business.
    """
    return _sending(new)


@contextmanager
def _sending(new: NewJob | Sequence[NewJob]) -> Iterator[Any]:
    jobs = [new] if isinstance(new, NewJob) else list(new)
    queues = sorted({one.queue for one in jobs})
    attributes: dict[str, str | int] = {
        **_SYSTEM,
        "messaging.operation.name": "create",
        "messaging.operation.type": "send",
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = queues[0]
    if not isinstance(new, NewJob):
        attributes["messaging.batch.message_count"] = len(jobs)
    name = f"create {queues[0]}" if len(queues) == 1 else "create"
    with _span(name, SpanKind.PRODUCER, attributes, traceparent=None):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        traceparent = carrier.get("traceparent")
        if traceparent is not None:
            jobs = [replace(one, traceparent=traceparent) for one in jobs]
        yield jobs[0] if isinstance(new, NewJob) else jobs


def traced(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """
    Have each of *handlers* run in a consumer's span, below that of the job's submitter.

    For `Worker`; handlers of both kinds, each in its own thread or task. An attempt
    that fails is marked with the exception's type, or the error code: its text stays
    out.
    """
    return {kind: _traced(handler) for kind, handler in handlers.items()}


def _traced(handler: Handler) -> Handler:
    call = getattr(handler, "__call__", handler)  # noqa: B004 - objects with one
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        as_coroutine = cast("Callable[[AsyncContext], Awaitable[Answer]]", handler)

        @wraps(as_coroutine)
        async def in_the_loop(context: AsyncContext) -> Answer:
            with _processing(context.job) as span:
                answer = await as_coroutine(context)
                _note(span, answer)
                return answer

        return in_the_loop
    as_function = cast("Callable[[Context], Answer]", handler)

    @wraps(as_function)
    def in_a_thread(context: Context) -> Answer:
        with _processing(context.job) as span:
            answer = as_function(context)
            _note(span, answer)
            return answer

    return in_a_thread


@contextmanager
def _processing(job: Job) -> Iterator[Span]:
    attributes: dict[str, str | int] = {
        **_SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.id,
        "jobstore.job.kind": job.kind,
        "jobstore.job.class": str(job.job_class),
        "jobstore.job.attempt": job.attempts,
    }
    with _span(
        f"process {job.queue}",
        SpanKind.CONSUMER,
        attributes,
        traceparent=job.traceparent,
    ) as span:
        yield span


@contextmanager
def _span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, str | int],
    *,
    traceparent: str | None,
) -> Iterator[Span]:
    parent = (
        None
        if traceparent is None
        else _PROPAGATOR.extract({"traceparent": traceparent})
    )
    with trace.get_tracer("jobstore").start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes=dict(attributes),
        # By default both would write the exception's text.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            _fail(span, _type_of(error))
            raise


def _note(span: Span, answer: object) -> None:
    if isinstance(answer, Failed):
        _fail(span, answer.error_code)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _type_of(error: BaseException) -> str:
    if isinstance(error, JobFailed):
        return error.error_code
    return error.code if isinstance(error, JobstoreError) else type(error).__name__
