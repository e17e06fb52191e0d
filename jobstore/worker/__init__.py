"""
The worker: claims jobs, runs their handlers, commits what comes of it.
"""

from jobstore.worker.command import command_handler
from jobstore.worker.context import (
    DONE,
    AsyncContext,
    AttemptEnded,
    Context,
    Done,
    JobFailed,
)
from jobstore.worker.health import LoopHealth, WorkerHealth, WorkerState
from jobstore.worker.registry import (
    Answer,
    AsyncHandler,
    Handler,
    Handlers,
    SyncHandler,
)
from jobstore.worker.worker import Worker, WorkerCrashed

__all__ = [
    "DONE",
    "Answer",
    "AsyncContext",
    "AsyncHandler",
    "AttemptEnded",
    "Context",
    "Done",
    "Handler",
    "Handlers",
    "JobFailed",
    "LoopHealth",
    "SyncHandler",
    "Worker",
    "WorkerCrashed",
    "WorkerHealth",
    "WorkerState",
    "command_handler",
]
