"""
The processes of the system: a worker and a submitter that record what they are told.

    python -m tests.faults.processes worker|submitter DSN FOLDER NAME SEED

SIGTERM ends either in order. SIGUSR1 and SIGUSR2 step the wall clock that Python shows
to this process by ten minutes, ahead and back.
"""

import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from jobstore import (
    Claim,
    Completed,
    Context,
    Created,
    Heartbeat,
    JobstoreError,
    Lease,
    NewJob,
    OutcomeUnknown,
    PostgresStore,
    RetryPolicy,
    StoreUnavailable,
    Worker,
)
from tests.faults.history import Log, Operation, Reply

VISIBILITY = timedelta(seconds=1)
_STEP_SECONDS = 600


class RecordingStore(PostgresStore):
    """
    Writes each answer to a log before the caller gets it.
    """

    log: Log

    def dedicated(self) -> "PostgresStore":
        made = super().dedicated()
        made.__class__ = RecordingStore
        made.log = self.log  # type: ignore[attr-defined]  # that class has it
        return made

    def claim(self, *args: object, **options: object) -> list[Claim]:
        claims = super().claim(*args, **options)  # type: ignore[arg-type]  # as given
        for claim in claims:
            at = claim.job.started_at
            self.log.write(
                Operation.CLAIM,
                claim.job.id,
                Reply.ACKNOWLEDGED,
                fence=claim.job.fence,
                instant=at.timestamp() if at else None,
            )
        return claims

    def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        answer = super().heartbeat(leases)
        for found, reply in (
            (answer.held, Reply.ACKNOWLEDGED),
            (answer.lost | answer.cancelled, Reply.REFUSED),
        ):
            for lease in found:
                self.log.write(
                    Operation.HEARTBEAT, lease.job_id, reply, fence=lease.fence
                )
        return answer

    def set_results(self, outcomes):  # type: ignore[no-untyped-def]  # the contract's
        outcomes = list(outcomes)
        try:
            answers = super().set_results(outcomes)
        except JobstoreError as error:
            for lease, outcome in outcomes:
                self._finished(lease, outcome, _reply(error))
            raise
        for (lease, outcome), answer in zip(outcomes, answers, strict=True):
            refused = isinstance(answer, JobstoreError)
            self._finished(
                lease, outcome, Reply.REFUSED if refused else Reply.ACKNOWLEDGED
            )
        return answers

    def _finished(self, lease: Lease, outcome: object, reply: Reply) -> None:
        result = outcome.result if isinstance(outcome, Completed) else None
        status = type(outcome).__name__.lower()
        self.log.write(
            Operation.FINISH,
            lease.job_id,
            reply,
            fence=lease.fence,
            status=status,
            result=None if result is None else result.decode(),
        )

    def fan_out(
        self, lease: Lease, children: Sequence[NewJob], **options: object
    ) -> list[Created]:
        try:
            made = super().fan_out(lease, children, **options)  # type: ignore[arg-type]
        except JobstoreError as error:
            reply = _reply(error)
            self.log.write(Operation.FAN_OUT, lease.job_id, reply, fence=lease.fence)
            raise
        reply = Reply.ACKNOWLEDGED
        self.log.write(Operation.FAN_OUT, lease.job_id, reply, fence=lease.fence)
        for child in made:
            self.log.write(Operation.CREATE, child.job.id, reply)
        return made


def _reply(error: JobstoreError) -> Reply:
    return Reply.UNKNOWN if error.outcome == "unknown" else Reply.REFUSED


def work(store: RecordingStore, folder: Path, name: str, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - durations, not secrets
    pause = threading.Event()

    def plain(context: Context) -> bytes:
        pause.wait(chance.choice([0, 0, 0.01, 0.3]))
        return f"{context.job.id} under {context.job.fence} by {name}".encode()

    def held(context: Context) -> bytes:
        # Until whoever submitted it lets this attempt go on, or all of them.
        job = context.job
        signs = [folder / f"{job.id}.{which}" for which in (job.fence, "all")]
        while not any(sign.exists() for sign in signs):
            pause.wait(0.01)
        return plain(context)

    def family(context: Context) -> object:
        if context.job.is_resumed:
            return plain(context)
        return context.fan_out(
            [context.job.child(kind="plain", max_attempts=1000) for _ in range(3)]
        )

    Worker(
        store,
        {"plain": plain, "family": family, "held": held},  # type: ignore[dict-item]  # what it gives
        concurrency=4,
        visibility_timeout=VISIBILITY,
        poll_every=timedelta(milliseconds=50),
        grace=timedelta(seconds=5),
        name=name,
    ).run()


def submit(store: RecordingStore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - kinds and moments, not secrets
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    number = 0
    while not stop.wait(0.02):
        number += 1
        kind = "family" if chance.random() < 0.15 else "plain"
        new = NewJob(kind=kind, max_attempts=1000, idem_key=f"{seed}-{number}")
        try:
            job = store.create(new).job
        except OutcomeUnknown as error:
            store.log.write(Operation.CREATE, error.job_id or "", Reply.UNKNOWN)
        except StoreUnavailable:
            store.log.write(Operation.CREATE, "", Reply.REFUSED)
        else:
            store.log.write(Operation.CREATE, job.id, Reply.ACKNOWLEDGED)


class Clock:
    """
    The wall clock of this process, which can be stepped.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._now = time.time_ns
        time.time_ns = lambda: self._now() + self._offset
        time.time = lambda: time.time_ns() / 1e9
        for number, step in ((signal.SIGUSR1, 1), (signal.SIGUSR2, -1)):
            signal.signal(number, lambda *_, step=step: self._set(step))

    def _set(self, direction: int) -> None:
        self._offset = direction * _STEP_SECONDS * 10**9


def main(role: str, dsn: str, folder: str, name: str, seed: str) -> None:
    Clock()
    log = Log(Path(folder), name)
    store = RecordingStore(
        dsn,
        schema="faults",
        retry=RetryPolicy(initial=timedelta(milliseconds=50), cap=VISIBILITY),
    )
    store.log = log
    print("ready", flush=True)  # noqa: T201 - whoever started it waits for this
    if role == "worker":
        work(store, Path(folder), name, int(seed))
    else:
        submit(store, int(seed))
    store.close()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
