"""
A worker at work: its parts, put together, started and stopped in order.

Every loop is a thread that drives a synchronous store over connections of its own; only
async handlers run on an event loop. So nothing that a handler does can keep a lease
from being renewed, an outcome from being committed, or the worker from stopping.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from jobstore.model import Claim, Released, Snoozed
from jobstore.store import Listening, Store
from jobstore.worker.claim import Claimer
from jobstore.worker.context import Desk
from jobstore.worker.finish import Finisher
from jobstore.worker.held import Held, HeldJobs
from jobstore.worker.lease import LeaseKeeper
from jobstore.worker.loop import Loop
from jobstore.worker.orders import Orders
from jobstore.worker.registry import AsyncHandler, Choice, SyncHandler
from jobstore.worker.run import call_sync
from jobstore.worker.settings import Settings
from jobstore.worker.tasks import Tasks
from jobstore.worker.threads import Threads
from jobstore.worker.upkeep import Upkeep

__all__ = ["Running"]

_log = logging.getLogger("jobstore.worker")

# Beyond the jobs at work, so many may wait for their commit; then claims pause.
_BACKLOG = 1000
# A kind that nobody here knows is offered again after about this time: by then another
# worker may have met it, or this one was replaced by a newer.
_UNKNOWN_KIND_SECONDS = 30.0
# Threads in which coroutines talk to the store: payloads, children, fan-out.
_CALL_THREADS = 8

# What the parts of a stop may take, beside the grace time for handlers.
_CLAIM_SECONDS = 1.0
_BREAK_OFF_SECONDS = 5.0
_LAST_CLAIM_SECONDS = 5.0
_COMMIT_SECONDS = 15.0
_JOIN_SECONDS = 2.0


class Running:
    """
    The parts of one worker.

    Args:
        store: The user's store, which handlers use through their context.
        event_loop: Where async handlers run; None if there are none.
    """

    def __init__(
        self,
        settings: Settings,
        handlers: Choice,
        store: Store,
        orders: Orders,
        event_loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._orders = orders
        self._unknown: set[str] = set()
        crashed = orders.crashed
        # Heartbeats share a connection with nothing else, whatever the pool's size.
        self._own_store = store.dedicated()
        self._lease_store = store.dedicated()
        self.jobs = HeldJobs(concurrency=settings.concurrency, backlog=_BACKLOG)
        self._threads = Threads("jobstore-handler", settings.concurrency, crashed)
        self._call_threads = Threads("jobstore-call", _CALL_THREADS, crashed)
        self._desk = Desk(store, self.jobs, self._call_threads)
        self.tasks = (
            Tasks(event_loop, self._desk, self.jobs, crashed)
            if event_loop is not None
            else None
        )
        self.finisher = Finisher(self._own_store, self.jobs, crashed)
        self._keeper = LeaseKeeper(
            self._lease_store,
            self.jobs,
            every=settings.beat,
            visibility_timeout=settings.visibility_timeout,
            on_lost=self._interrupt,
            crashed=crashed,
        )
        self.upkeep = Upkeep(
            self._own_store,
            every=settings.sweep,
            visibility_timeout=settings.visibility_timeout,
            prune_after=settings.prune_after,
            keep_keys_for=settings.keep_keys_for,
            # By then every worker has tried a heartbeat again.
            patience=settings.beat,
            may_judge=lambda: not self._keeper.is_late,
            crashed=crashed,
        )
        self.claimer = Claimer(
            self._own_store,
            self.jobs,
            queues=settings.queues,
            job_class=settings.job_class,
            worker=settings.name,
            poll_every=settings.poll_every,
            may_claim=self._may_claim,
            hand_on=self._hand_on,
            crashed=crashed,
        )
        self.jobs.on_ended = self.finisher.put
        self.jobs.on_room = self.claimer.loop.wake
        self.jobs.on_idle = orders.ring
        self._listening: Listening | None = None

    @property
    def loops(self) -> Mapping[str, Loop]:
        return {
            one.name: one
            for one in (
                self.claimer.loop,
                self.finisher.loop,
                self._keeper.loop,
                self.upkeep.loop,
            )
        }

    def work(self) -> None:
        """
        Work until told to stop; then stop, in bounded time.
        """
        try:
            self._start()
            self._orders.wait_for(lambda: self._orders.is_stopping)
        finally:
            self._wind_down()

    def _start(self) -> None:
        # Whoever takes jobs comes last.
        for loop in (
            self._keeper.loop,
            self.finisher.loop,
            self.upkeep.loop,
            self.claimer.loop,
        ):
            loop.start()
        if self.tasks is not None:
            self.tasks.start()
        if self._settings.wake_ups:
            self._listening = self._own_store.listen(self.claimer.wake)

    # -- claims ----------------------------------------------------------------

    def _may_claim(self) -> bool:
        return not (
            self._orders.is_stopping or self.finisher.is_full or self._keeper.is_late
        )

    def _hand_on(self, claims: list[Claim], asked_at: float) -> None:
        """
        Bring claims to their handlers; called by the claimer's thread.
        """
        jobs = self.jobs.take(claims, asked_at)
        if self._orders.is_stopping:
            # After the flag nobody else may come for them.
            self._release(jobs)
            return
        batch: list[tuple[AsyncHandler, Held]] = []
        refused: list[Held] = []
        for held in jobs:
            chosen = self._handlers.of(held.job.kind)
            if chosen is None:
                refused.append(held)
            elif chosen.is_async:
                batch.append((chosen.handler, held))
            else:
                self._threads.submit(partial(self._run, chosen.handler, held))
        if batch:
            assert self.tasks is not None
            self.tasks.submit(batch)
        if refused:
            self._refuse(refused)

    def _run(self, handler: SyncHandler, held: Held) -> None:
        if self.jobs.begin([held]):
            self.jobs.end([(held, call_sync(handler, self._desk, held))])

    def _refuse(self, jobs: list[Held]) -> None:
        for kind in {held.job.kind for held in jobs} - self._unknown:
            self._unknown.add(kind)
            _log.warning("no handler for kind %r: its jobs are given back", kind)
        self.jobs.end(
            [
                (
                    held,
                    Snoozed(
                        timedelta(seconds=_UNKNOWN_KIND_SECONDS)
                        * random.uniform(0.75, 1.25)  # noqa: S311 - to spread them
                    ),
                )
                for held in jobs
            ]
        )

    def _release(self, jobs: list[Held]) -> None:
        if jobs:
            self.jobs.end([(held, Released()) for held in jobs])

    def _interrupt(self, jobs: list[Held]) -> None:
        if self.tasks is not None:
            self.tasks.cancel(jobs)

    # -- stop ------------------------------------------------------------------

    def _wind_down(self) -> None:
        """
        Stop in order: claims first, heartbeats last.
        """
        orders = self._orders
        orders.stop()
        self.jobs.is_stopping = True
        self.claimer.loop.end()
        self.upkeep.loop.end()
        # Takes about a second, and nobody needs to wait for it.
        deaf = threading.Thread(target=self._stop_listening, daemon=True)
        deaf.start()
        # A claim that is under way would take again what is given back here.
        self.claimer.loop.join(_CLAIM_SECONDS)
        self._release(self.jobs.unstarted())
        self._drain()
        if not self.claimer.loop.join(_LAST_CLAIM_SECONDS):
            _log.warning(
                "a claim is not back yet; what it took is free again after %s",
                self._settings.visibility_timeout,
            )
        self._commit()
        self.upkeep.loop.join(_JOIN_SECONDS)
        self._keeper.loop.end()
        self._keeper.loop.join(_JOIN_SECONDS)
        deaf.join(_JOIN_SECONDS)
        for threads in (self._threads, self._call_threads):
            threads.close()
        self._keeper.close()
        if self.tasks is not None:
            self.tasks.close()
        for store in (self._own_store, self._lease_store):
            store.close()

    def _drain(self) -> None:
        """
        Let handlers finish in the grace time, tell the rest to break off, then release.
        """
        orders, jobs = self._orders, self.jobs
        grace = self._settings.grace.total_seconds()
        if not orders.is_at_once and jobs.busy:
            _log.info("stopping: %d jobs have %g s to finish", jobs.busy, grace)
            orders.wait_for(lambda: jobs.busy == 0 or orders.is_at_once, grace)
        self._interrupt(jobs.give_up())
        orders.wait_for(lambda: jobs.busy == 0, _BREAK_OFF_SECONDS)
        # Threads can't be interrupted, and some coroutines won't be: the lease is given
        # back all the same, and what they return will not be taken.
        left = jobs.unended()
        for held in left:
            _log.warning(
                "job %s: its handler goes on; the job is given back", held.lease.job_id
            )
        self._release(left)

    def _commit(self) -> None:
        self._orders.wait_for(
            lambda: len(self.jobs) == 0 or self.finisher.loop.has_crashed,
            _COMMIT_SECONDS,
        )
        if left := len(self.jobs):
            _log.error(
                "%d outcomes could not be committed; the jobs are free again after %s",
                left,
                self._settings.visibility_timeout,
            )
        self.finisher.loop.end()
        self.finisher.loop.join(_JOIN_SECONDS)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
