"""
A handler that runs a command: payload on stdin, result on stdout, exit code decides.

Any language can work jobs this way. The command is executed as it is, by no shell, in
a process group of its own that is ended with the lease: by SIGTERM, and SIGKILL five
seconds later. When the worker is killed (SIGKILL, out of memory) its commands are ended
in the same way; see `jobstore.worker.leash`. Out of reach is what a command moved into
a process group of its own, and a command that was started in that very moment.

| exit code | what becomes of the job |
| --- | --- |
| 0 | completed; stdout is its result |
| 65 (EX_DATAERR) | failed for good: the data is no good, trying again won't help |
| 75 (EX_TEMPFAIL), any other | this attempt failed; tried again if any is left |
| ended by a signal | the same, with error code SIGNAL_n |

The command finds in its environment: JOBSTORE_JOB_ID, JOBSTORE_TENANT, JOBSTORE_QUEUE,
JOBSTORE_KIND, JOBSTORE_CLASS, JOBSTORE_ATTEMPT, JOBSTORE_MAX_ATTEMPTS, JOBSTORE_FENCE,
JOBSTORE_PARENT_ID (empty if none), JOBSTORE_PAGES (with commas; left out if it would be
too long for an environment), JOBSTORE_CONTENT_TYPE, and TRACEPARENT if the job has a
trace context. No connection string is passed on.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from jobstore.errors import InvalidInput
from jobstore.model import (
    Completed,
    Failed,
    Job,
    Outcome,
    check_count,
    check_duration,
)
from jobstore.store import DEFAULT_MAX_PAYLOAD_BYTES
from jobstore.worker.context import AsyncContext
from jobstore.worker.leash import leash

__all__ = ["EX_DATAERR", "EX_TEMPFAIL", "command_handler"]

EX_DATAERR = 65
EX_TEMPFAIL = 75

_CHUNK_BYTES = 1024 * 1024
_STDERR_BYTES = 4000
_SHORTEST_TIMEOUT = timedelta(milliseconds=1)
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
# Linux refuses a variable of 128 KiB.
_LONGEST_VARIABLE = 100_000
# Secrets of the worker that are none of the command's business.
_WITHHELD = ("JOBSTORE_DSN", "PGPASSWORD")
# Set for some jobs only: those of an outer job must not pass for this one's.
_OF_THE_JOB = ("JOBSTORE_PAGES", "TRACEPARENT")


def command_handler(
    argv: Sequence[str],
    *,
    timeout: timedelta | None = None,
    max_output_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
) -> Callable[[AsyncContext], Awaitable[Outcome]]:
    """
    Make a handler of a command line.

    Args:
        argv: The program and its arguments.
        timeout: End the command after this long and fail the attempt; None: never.
        max_output_bytes: More output than this fails the job for good.

    Raises:
        InvalidInput: There is no such program, or an argument does not fit.
    """
    program = _program_of(argv)
    if timeout is not None:
        check_duration("timeout", timeout, shortest=_SHORTEST_TIMEOUT)
    check_count("max_output_bytes", max_output_bytes, 0, sys.maxsize)
    seconds = None if timeout is None else timeout.total_seconds()

    async def run(context: AsyncContext) -> Outcome:
        payload = await context.payload()
        if not leash.is_ready:
            await asyncio.to_thread(leash.make_ready)
        process = await asyncio.create_subprocess_exec(
            program,
            *argv[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(context.job, payload.content_type),
            start_new_session=True,
        )
        with leash.held(process.pid):
            try:
                async with asyncio.timeout(seconds):
                    return await _conversation(process, payload.data, max_output_bytes)
            except TimeoutError:
                return Failed("TIMEOUT", f"the command took longer than {timeout}")
            finally:
                # Also when the handler is cancelled because the lease is gone.
                await _end(process)

    return run


def _program_of(argv: Sequence[str]) -> str:
    given: object = argv
    is_one = isinstance(given, (str, bytes)) or not isinstance(given, Sequence)
    if is_one or not argv:
        raise InvalidInput("argv", argv, "must be a program and its arguments")
    words: Sequence[object] = argv
    for word in words:
        if not isinstance(word, str) or "\x00" in word:
            raise InvalidInput("argv", word, "must be text without NUL")
    program = shutil.which(argv[0])
    if program is None:
        raise InvalidInput("argv", argv[0], "is no program that can be run")
    return program


async def _conversation(
    process: asyncio.subprocess.Process, payload: bytes, max_output_bytes: int
) -> Outcome:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # All three at once: a command that writes before it has read all, or the other
    # way round, must not lock up against us.
    feeding = asyncio.create_task(_feed(process.stdin, payload))
    complaints = asyncio.create_task(_tail(process.stderr))
    # What it leaves behind must not keep its pipes, and with them us, from ending.
    tidying = asyncio.create_task(_tidy(process))
    try:
        output = await _collect(process.stdout, max_output_bytes)
        if output is None:
            return Failed(
                "RESULT_TOO_LARGE",
                f"the command wrote more than {max_output_bytes:,} bytes",
                final=True,
            )
        code = await process.wait()
        return _verdict(code, output, await complaints)
    finally:
        feeding.cancel()
        complaints.cancel()
        tidying.cancel()


async def _tidy(process: asyncio.subprocess.Process) -> None:
    # Looked at, since wait() itself waits for the pipes to close.
    while process.returncode is None:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(_LOOK_SECONDS)
    _signal_group(process, signal.SIGKILL)


def _verdict(code: int, output: bytes, complaint: str) -> Outcome:
    if code == 0:
        return Completed(output)
    if code < 0:
        # The real-time signals have no names.
        names = {int(one): one.name for one in signal.Signals}
        name = names.get(-code, f"signal {-code}")
        return Failed(f"SIGNAL_{-code}", complaint or f"ended by {name}")
    message = complaint or f"exit code {code}"
    return Failed(f"EXIT_{code}", message, final=code == EX_DATAERR)


async def _feed(stdin: asyncio.StreamWriter, payload: bytes) -> None:
    # A command may end without reading its input: that is its right.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        view = memoryview(payload)
        for start in range(0, len(view), _CHUNK_BYTES):
            stdin.write(view[start : start + _CHUNK_BYTES])
            await stdin.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.close()
        await stdin.wait_closed()


async def _collect(stdout: asyncio.StreamReader, limit: int) -> bytes | None:
    output = bytearray()
    while chunk := await stdout.read(_CHUNK_BYTES):
        output += chunk
        if len(output) > limit:
            return None
    return bytes(output)


async def _tail(stderr: asyncio.StreamReader) -> str:
    last = b""
    while chunk := await stderr.read(_CHUNK_BYTES):
        last = (last + chunk)[-_STDERR_BYTES:]
    return last.decode(errors="replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    """
    See to it that nothing of the command's process group is left.
    """
    try:
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
    finally:
        # What it started and left behind, or what ignored SIGTERM; also if somebody
        # would not wait for it.
        _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _environment(job: Job, content_type: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _WITHHELD and name not in _OF_THE_JOB
    }
    optional = {"TRACEPARENT": job.traceparent} if job.traceparent else {}
    pages = ",".join(map(str, job.pages))
    if len(pages) <= _LONGEST_VARIABLE:
        optional["JOBSTORE_PAGES"] = pages
    return (
        inherited
        | optional
        | {
            "JOBSTORE_JOB_ID": job.id,
            "JOBSTORE_TENANT": job.tenant,
            "JOBSTORE_QUEUE": job.queue,
            "JOBSTORE_KIND": job.kind,
            "JOBSTORE_CLASS": str(job.job_class),
            "JOBSTORE_ATTEMPT": str(job.attempts),
            "JOBSTORE_MAX_ATTEMPTS": str(job.max_attempts),
            "JOBSTORE_FENCE": str(job.fence),
            "JOBSTORE_PARENT_ID": job.parent_id or "",
            "JOBSTORE_CONTENT_TYPE": content_type,
        }
    )
