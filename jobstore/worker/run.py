"""
Calling one handler, and turning whatever happens into an outcome. Nothing escapes.
"""

import asyncio
import contextvars
import inspect
import logging
import traceback

from jobstore.errors import JobstoreError, LeaseLost
from jobstore.model import Completed, Failed, Outcome, Released
from jobstore.worker.context import (
    AsyncContext,
    AttemptEnded,
    Context,
    Desk,
    Done,
)
from jobstore.worker.held import Held, Unwritten
from jobstore.worker.registry import Answer, AsyncHandler, SyncHandler

__all__ = ["call_async", "call_sync", "outcome_of"]

_log = logging.getLogger("jobstore.worker")

_NO_RESULT = Completed()
# More of a message than this helps nobody, and it stands in each row of the history.
_LONGEST_MESSAGE = 2_000


async def call_async(
    handler: AsyncHandler, desk: Desk, held: Held
) -> Outcome | Unwritten:
    """
    Await a coroutine function's handler.
    """
    if held.loss is not None:
        return Unwritten.NOTHING
    try:
        answer = await handler(AsyncContext(desk, held))
    except BaseException as error:  # noqa: BLE001 - an outcome, whatever it is
        return _after_error(held, error)
    return _after_answer(held, answer)


def call_sync(handler: SyncHandler, desk: Desk, held: Held) -> Outcome | Unwritten:
    """
    Call a plain function's handler, with context variables of its own.
    """
    if held.loss is not None:
        return Unwritten.NOTHING
    context = Context(desk, held)
    try:
        answer = contextvars.Context().run(handler, context)
    except BaseException as error:  # noqa: BLE001 - an outcome, whatever it is
        return _after_error(held, error)
    return _after_answer(held, answer)


def outcome_of(answer: object) -> Outcome:
    """
    Read what a handler returned. A value of another type is the handler's mistake.
    """
    if answer is None:
        return _NO_RESULT
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return Completed(bytes(answer))
    if isinstance(answer, Outcome):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    kind = type(answer).__name__
    return _invalid(f"the handler returned {kind}, not bytes, None or an outcome")


def _after_answer(held: Held, answer: Answer) -> Outcome | Unwritten:
    if held.own_ending is not None:
        return held.own_ending
    if held.loss is not None:
        return Unwritten.NOTHING
    if answer is None:
        return _NO_RESULT
    if isinstance(answer, Done):
        return Unwritten.VERIFY
    return outcome_of(answer)


def _after_error(held: Held, error: BaseException) -> Outcome | Unwritten:
    if held.own_ending is Unwritten.NOTHING:
        _log.warning(
            "job %s: its handler raised %s after it had ended the job",
            held.lease.job_id,
            type(error).__name__,
        )
        return Unwritten.NOTHING
    if held.loss is not None:
        return Unwritten.NOTHING
    if isinstance(error, AttemptEnded):
        return error.outcome
    if held.is_given_up:
        # Whatever it raised, we made it: not the job's fault.
        return Released()
    if isinstance(error, LeaseLost) and error.job_id == held.lease.job_id:
        # From a write of the handler's own. If it is wrong, VERIFY will tell.
        return Unwritten.VERIFY
    _report(held, error)
    return _failure(error)


def _failure(error: BaseException) -> Failed:
    """
    Describe an exception: its class, by a name that no move of a module changes.
    """
    if isinstance(error, asyncio.CancelledError):
        return Failed("CANCELLED", "the handler was cancelled from within")
    code = error.code if isinstance(error, JobstoreError) else type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a failure must be recordable
        message = "(its message could not be made)"
    return Failed(code, message[:_LONGEST_MESSAGE])


def _invalid(message: str) -> Failed:
    return Failed("INVALID_RESULT", message, final=True)


def _report(held: Held, error: BaseException) -> None:
    """
    Log where a handler failed; its message may quote the payload, and is left out.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    _log.warning(
        "job %s (%s), attempt %d: %s at %s",
        held.lease.job_id,
        held.job.kind,
        held.job.attempts,
        type(error).__name__,
        where,
    )
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s", "".join(traceback.format_list(frames)))
