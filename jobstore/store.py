"""
The contract: what every store promises, verb by verb.

`Store` and its async twin `jobstore.async_store.AsyncStore` are protocols.
`jobstore.memory` and
`jobstore.postgres` implement them, `jobstore.testing` proves a store against them.
The full text stands here once; implementations refer to it.

Five words recur under *Guarantees*: *Atomic*: what succeeds or fails together.
*Isolation*: what concurrent callers see and what is locked. *Clock*: whose time
counts. *Repeat*: what a second identical call does. *Bounds*: limits on rows, size
and waiting.

Every verb may raise `StoreUnavailable` (nothing was done: repeat with a backoff),
its subclass `StoreBusy` (nothing was done: repeat), `OutcomeUnknown` (writes only:
repeat as described there), `StoreFault` and `SchemaError`. A memory store raises
none of these. `InvalidInput` always comes before anything is sent.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from jobstore.errors import JobNotFound, LeaseLost
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.model import (
    Attempt,
    ChildFailure,
    Claim,
    Created,
    Heartbeat,
    Job,
    Lease,
    NewJob,
    Outcome,
    Payload,
    QueueStats,
    Reclaimed,
)

__all__ = [
    "DEFAULT_MAX_PAYLOAD_BYTES",
    "MAX_BATCH",
    "Creator",
    "Finisher",
    "Listening",
    "Store",
]

MAX_BATCH = 10_000
"""Most jobs, leases or rows that one call takes or returns."""

DEFAULT_MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
"""Largest payload or result a store takes unless told otherwise: 256 MiB."""


class Listening(Protocol):
    """
    An ongoing `Store.listen`.
    """

    def close(self) -> None:
        """
        Stop calling back. Twice is fine.
        """
        ...


class Creator(Protocol):
    """
    The verbs that submit. A store has them, and so has a caller's transaction.
    """

    def create(
        self, new: NewJob, *, strict: bool = False, job_id: str | None = None
    ) -> Created:
        """
        Store a job, or find the one that already has its idempotency key.

        A new job is queued, or scheduled if its `available_at` lies ahead. With a
        known (tenant, idem_key) nothing is inserted and nothing is changed: the
        first job comes back, with ``created=False`` and with ``payload_matches``
        saying whether its kind, content type and payload are those of *new*.
        Under a parent, the parent's count of open children grows with it.

        Args:
            new: The job. None or "" as its key means that every create inserts.
            strict: Raise `IdempotencyConflict` instead of returning a job whose
                content differs from *new*, or whose parent does.
            job_id: A ULID to store the job under, for repeating a create whose
                outcome is unknown. None: the store makes one.

        Returns:
            The stored job and whether this call created it. Use the id from here.

        Raises:
            InvalidInput: the payload is over the store's ``max_payload_bytes``.
            IdempotencyConflict: see *strict*; also when *job_id* belongs to a job
                with another key or other content.
            InvalidParent: the parent is unknown, has ended, or is another tenant's.
            JobPruned: the key is known, but its job was pruned since.

        Guarantees:
            Atomic: The job, its payload and its key appear together or not at all.
            Isolation: Of any number of concurrent creates with one key exactly one
                inserts; the others wait for it (no longer than the lock timeout,
                then `StoreBusy`) and return its job. Other keys never wait.
            Clock: The database's.
            Repeat: With a key or the same *job_id*, finds the first job; else
                inserts another.
        """
        ...

    def create_many(
        self, new: Sequence[NewJob], *, strict: bool = False
    ) -> list[Created]:
        """
        Store many jobs with one statement; one result for each, in their order.

        As `create` for each of them. A key that stands twice in *new* is created
        once and found once. Jobs created together keep their order: their ids grow.

        Args:
            new: 0 to 10,000 jobs.
            strict: As in `create`; one conflict refuses all.

        Guarantees:
            Atomic: All or none.
            Bounds: One statement, whatever the number, and one look-up for known
                keys.
        """
        ...


class Finisher(Protocol):
    """
    The verbs that end an attempt. A store has them, and so has a caller's transaction.

    All are fenced: they write only while the lease is the job's present one.
    """

    def set_result(self, lease: Lease, outcome: Outcome) -> JobStatus:
        """
        End the attempt with *outcome*; the one door behind the verbs below.

        Returns:
            What the job became: completed, failed, queued or scheduled.

        Raises:
            LeaseLost: The lease is not the job's any more; nothing was changed.
                Drop the outcome, do not retry. `JobCancelled` if that is the cause.
            JobNotFound: The job was deleted.
            InvalidInput: The result is over ``max_payload_bytes``; end the job
                with `fail` instead. Or the lease is none that a claim could have
                given.

        Guarantees:
            Atomic: The outcome, the row in the history of attempts, and the
                parent's bookkeeping (see `fan_out`) change together.
            Isolation: Of several writers the first wins, the others raise.
            Clock: The database's.
            Repeat: The same outcome with the same lease succeeds and changes
                nothing, also after the job has moved on; so a call whose answer
                got lost can be made again. Another outcome raises `LeaseLost`.
                The same means: completed with the same result; failed with the
                same code and message, whatever *final* and *retry_in* say;
                released; snoozed, however long. The answer is then the job's
                present status, or queued once somebody has claimed it again.
        """
        ...

    def complete(self, lease: Lease, result: bytes | None = None) -> JobStatus:
        """
        End the job well, with *result* kept byte for byte. See `set_result`.
        """
        ...

    def fail(
        self,
        lease: Lease,
        *,
        error_code: str,
        error_message: str = "",
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> JobStatus:
        """
        End the attempt badly. See `set_result`.

        The job is tried again after *retry_in* (None: by the store's `RetryPolicy`)
        while it has attempts left and *final* is False; else it is failed for good.
        """
        ...

    def release(self, lease: Lease) -> JobStatus:
        """
        Give the job back to its place in line, the attempt not charged.
        """
        ...

    def snooze(self, lease: Lease, delay: timedelta) -> JobStatus:
        """
        Give the job back, due again after *delay*, the attempt not charged.

        Nothing bounds how often a handler may snooze; each time is a row in the
        history of attempts.
        """
        ...

    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """
        End many attempts at once; one answer for each, in their order.

        Returns:
            For each its new status, or the `LeaseLost` or `JobNotFound` that
            `set_result` would have raised. One lost lease does not hold up the rest.

        Guarantees:
            Atomic: All that can be written is committed together.
            Bounds: 0 to 10,000 outcomes, each lease once; a few statements,
                whatever the number.
        """
        ...

    def fan_out(
        self,
        lease: Lease,
        children: Sequence[NewJob],
        *,
        on_child_failure: ChildFailure = ChildFailure.RESUME,
    ) -> list[Created]:
        """
        Create the children of a job and park it until all of them have ended.

        The job becomes waiting, its lease ends, and its attempt is not charged.
        When the last child ends (completed, failed, cancelled, or reclaimed to
        death) it is queued again exactly once; its next holder sees
        ``job.is_resumed``. With ``ChildFailure.FAIL`` it fails instead, with error
        code CHILD_FAILED, if any child did not complete.

        Args:
            lease: Of the job that becomes the parent.
            children: 0 to 10,000; build them with `Job.child`. Their ``parent_id``
                must be this job or None, their tenant this job's. More: create
                them with ``parent_id`` in batches first and give the rest here. With no
                open child at all, the job is queued at once.
            on_child_failure: Resume or fail.

        Raises:
            LeaseLost: As in `set_result`; no child was created.
            InvalidParent: A child is another tenant's.
            IdempotencyConflict: A child's key belongs to a job with another parent.

        Guarantees:
            Atomic: All children and the parking, or nothing. A crash before the
                commit leaves no child behind, so a retried parent does not double
                them.
            Repeat: A second call with the same lease and the same keyed children
                finds them; without keys it raises `LeaseLost` and creates nothing.
        """
        ...


class Store(Creator, Finisher, Protocol):
    """
    A durable job store. Safe to share between threads.
    """

    # -- read ------------------------------------------------------------------

    def get(self, job_id: str) -> Job:
        """
        Return the job as it is now.

        Raises:
            JobNotFound: No job has this id (any text that is no ULID included).
        """
        ...

    def payload(self, job_id: str) -> Payload:
        """
        Return the job's payload, byte for byte as submitted.

        Raises:
            JobNotFound: No job has this id.
            PayloadMissing: The job is there, but somebody removed its payload.
        """
        ...

    def list_children(
        self,
        parent_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_result: bool = True,
    ) -> list[Job]:
        """
        Return the parent's children, ordered by created_at, then id.

        Args:
            after: Id of the last child of the page before. Should that child be
                gone by now, nothing follows it: begin again.
            limit: 1 to 10,000; None returns all that follow.

        Raises:
            JobNotFound: No job has the id *parent_id*, or *after* is no id.
        """
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """
        Return the attempts that did not end in success, oldest first.

        Raises:
            JobNotFound: No job has this id.
        """
        ...

    def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """
        Count jobs by queue, class and status.

        Open and failed jobs are counted whole; completed and cancelled ones only
        if they ended within *window*, so that a long history costs nothing.

        Returns:
            Sorted by queue, class rank and the order of `JobStatus`.
        """
        ...

    def list(
        self,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        job_class: JobClass | None = None,
        status: JobStatus | Iterable[JobStatus] | None = None,
        worker: str | None = None,
        error_code: str | None = None,
        idem_key: str | None = None,
        after: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
        with_result: bool = True,
    ) -> builtins.list[Job]:
        """
        Return one page of the jobs that match every filter, newest first by id.

        Args:
            after: Id of the last job of the page before; None: the first page.
            limit: 1 to 10,000.
            with_result: False leaves `Job.result` None, however large it is.

        Raises:
            JobNotFound: *after* is text that is no id. The id of a job that is
                gone is fine.

        Guarantees:
            Isolation: Each page is one snapshot. Ids are made before their jobs
                are committed, so do not use *after* as a cursor for "what is new".
        """
        ...

    # -- claim -----------------------------------------------------------------

    def claim_next(
        self,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> Claim | None:
        """
        Take the best ready job of *queue*, or None. See `claim`.
        """
        ...

    def claim(
        self,
        limit: int,
        *,
        queue: str = "default",
        job_class: JobClass | None = None,
        worker: str | None = None,
        lease: timedelta | None = None,
    ) -> builtins.list[Claim]:
        """
        Take up to *limit* ready jobs of *queue* and hold each under a lease.

        Each becomes processing; its attempts and its fence grow by one; started_at
        and heartbeat_at are now. It stays yours while you `heartbeat` it more often
        than the visibility timeout of whoever calls `reclaim_stale`.

        Args:
            limit: 1 to 10,000.
            queue: The queue to claim from.
            job_class: Only this class; None looks at all, best class first.
            worker: Who is asking, for operators; plays no part in fencing. None:
                a name of this process start (`jobstore.ids.process_name`).
            lease: The job cannot be reclaimed earlier than this after its last
                heartbeat, whatever visibility timeout is used, 1 s to 3,650 days.
                For long jobs that do not heartbeat. None: the visibility timeout
                alone counts.

        Returns:
            The claims, best first: by class rank, then created_at, then id. Fewer
            than *limit*, or none, when no more are ready or others are claiming
            them at this moment.

        Guarantees:
            Atomic: Choosing and marking is one statement in its own transaction.
            Isolation: Two calls never return the same claim. Rows locked by
                others are skipped, not waited for. No lock outlives the call.
            Clock: The database's.
            Repeat: Takes further jobs.
            Bounds: Never more than *limit*. The order is exact among jobs that
                were committed and not being claimed by others; docs/guarantees.md
                says by how much a late commit can be late.
        """
        ...

    def heartbeat(self, leases: Sequence[Lease]) -> Heartbeat:
        """
        Refresh all leases of a process in one statement, and learn which are left.

        Args:
            leases: 0 to 10,000.

        Guarantees:
            Isolation: A lease that is not the job's present one touches nothing.
                A row locked by another (its own finish, say) is not waited for; it
                counts as held.
            Repeat: Harmless.
        """
        ...

    # -- upkeep ----------------------------------------------------------------

    def promote_due(self, *, limit: int = 1000) -> int:
        """
        Queue up to *limit* scheduled jobs whose time has come; return how many.

        `claim` does this by itself often enough; a worker's upkeep helps.
        """
        ...

    def reclaim_stale(
        self, visibility_timeout: timedelta, *, limit: int = 1000
    ) -> Reclaimed:
        """
        End every lease whose last heartbeat is older than *visibility_timeout*.

        A job with attempts left is queued again at its old place in line (its
        attempts are not changed: the next claim counts); one whose attempts are
        used up is failed with error code ATTEMPTS_EXHAUSTED. Any process may call
        this at any time; there is no leader.

        Args:
            visibility_timeout: 0 to 3,650 days. Never cuts short a longer lease
                that `claim` granted.
            limit: Rows for each of the short transactions this works in.

        Guarantees:
            Atomic: Batch by batch; what was done stays done.
            Isolation: Rows locked by others are skipped: their holder is alive.
            Clock: The database's.
        """
        ...

    def repair_families(self, *, limit: int = 1000) -> int:
        """
        Put right waiting parents whose count of open children is off.

        The verbs keep the count exact; a row that was edited or deleted by hand
        does not. Looks at the *limit* parents that waited longest, recounts, resumes
        those with no open child, and returns how many it changed.
        """
        ...

    def prune(
        self,
        older_than: timedelta,
        *,
        status: Iterable[JobStatus] = TERMINAL,
        keep_keys_for: timedelta = timedelta(0),
        limit: int = 1000,
    ) -> int:
        """
        Delete ended jobs that finished more than *older_than* ago; return how many.

        With them go payload and history. Only whole families go: a parent and all
        below it must have ended that long ago, in one of *status*. Idempotency keys go
        with their jobs, or later if *keep_keys_for* says so.

        Args:
            older_than: At least 1 s. Deleting everything is not offered.
            status: Terminal statuses only.
            keep_keys_for: How long an idempotency key is good for, counted from its
                first use. One that outlives its job makes a create with it raise
                `JobPruned`: the work was done. Its time up, a later prune drops it.
            limit: Jobs for each of the short transactions this works in.

        Guarantees:
            Atomic: Batch by batch; what was done stays done.
            Isolation: Skips what others hold. Never deletes a job that has not ended.
        """
        ...

    # -- operate ---------------------------------------------------------------

    def update_status(self, job_id: str, fn: Callable[[Job], Job]) -> Job:
        """
        Change a job under its row lock, by a function of its present value.

        *fn* gets the job and returns the changed one (`dataclasses.replace`). It may
        change status, result, error_code, error_message, available_at,
        max_attempts, job_class and queue; updated_at always moves. What it raises
        passes through, and nothing is changed. It runs inside the transaction:
        keep it short.

        For operators and tools: it needs no lease. Leaving processing ends the
        lease of whoever holds it. It cannot grant a lease, and cannot reopen an
        ended job; `claim` and `requeue` do. Only a scheduled job is given another
        available_at. A job with open children is not cancelled so: `cancel` ends
        the family.

        Raises:
            JobNotFound: No job has this id.
            InvalidTransition: The change of status is not in the table of
                `jobstore.lifecycle`.
            InvalidInput: Another field was changed, or a value does not fit.
        """
        ...

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        """
        End a job that has not ended, and what is left of its family below it.

        A worker that holds one of them learns at its next heartbeat; its outcome is
        refused with `JobCancelled`.

        Returns:
            The job, cancelled. Its error_message is *reason*.

        Raises:
            JobNotFound: No job has this id.
            InvalidTransition: It completed or failed before; its `current` says which.

        Guarantees:
            Atomic: The whole family, and the count of the job's own parent.
            Repeat: Cancelling a cancelled job changes nothing and succeeds.
        """
        ...

    def requeue(self, job_id: str) -> Job:
        """
        Reopen a failed or cancelled job with fresh attempts, or run a scheduled one.

        It takes its old place in line. Its fence stays, so old leases stay dead. A
        parent counts it as open again; one that has ended itself stays so.

        Raises:
            JobNotFound: No job has this id.
            InvalidTransition: It is in another state.
        """
        ...

    # -- connect ---------------------------------------------------------------

    def listen(self, callback: Callable[[str | None], None]) -> Listening:
        """
        Call *callback* when a queue has got work; with None: look at all of them.

        A hint that makes idle workers quicker, never a promise: polling must do.
        The callback comes from another thread and must not block.
        """
        ...

    def dedicated(self) -> "Store":
        """
        Return a store on the same jobs with connections of its own; close it yourself.

        For a worker's loops: heartbeats must not wait for a connection that handlers
        hold.
        """
        ...

    def close(self) -> None:
        """
        Give back connections; the store cannot be used after. Twice is fine.
        """
        ...
