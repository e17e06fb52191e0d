"""
The worker: claims jobs, runs their handlers, commits what comes of it.
"""

from jobstore.worker.command import command_handler
from jobstore.worker.context import DONE, AsyncContext, Context, JobFailed
from jobstore.worker.health import WorkerHealth
from jobstore.worker.registry import Answer, Handler, Handlers
from jobstore.worker.worker import Worker, WorkerCrashed

__all__ = [
    "DONE",
    "Answer",
    "AsyncContext",
    "Context",
    "Handler",
    "Handlers",
    "JobFailed",
    "Worker",
    "WorkerCrashed",
    "WorkerHealth",
    "command_handler",
]
