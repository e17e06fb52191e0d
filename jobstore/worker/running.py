"""
A worker's parts while it runs, and how jobs pass between them.

    claimer ─ claims ─▶ event loop / threads ─ outcomes ─▶ finisher
                 heartbeat keeps what is between the two alive
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from jobstore.model import Claim, Outcome, Released
from jobstore.store import Listening, Store
from jobstore.worker.claim import Claimer, Slots
from jobstore.worker.finish import Finisher
from jobstore.worker.heartbeat import HeartbeatKeeper
from jobstore.worker.held import Held, HeldJobs
from jobstore.worker.pacing import Loop
from jobstore.worker.registry import Handler
from jobstore.worker.run import Runner
from jobstore.worker.settings import WorkerSettings
from jobstore.worker.upkeep import Upkeep

__all__ = ["Running"]

_log = logging.getLogger("jobstore.worker")

# How long each thread may take to end, and interrupted handlers to clean up.
_JOIN_SECONDS = 5.0
_CLEAN_UP_SECONDS = 5.0
# Outcomes that are still to be written when everything else has stopped.
_FLUSH_SECONDS = 15.0
# More outcomes than this waiting for their commit: claim no more for now.
_BACKLOG = 1000


class Running:
    """
    Claimer, runner, finisher, heartbeat and upkeep, put together.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        handlers: Mapping[str, Handler],
        store: Store,
        *,
        loop: asyncio.AbstractEventLoop,
        is_stopping: Callable[[], bool],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._is_stopping = is_stopping
        self._grace = settings.grace.total_seconds()
        self._listening: Listening | None = None
        backlog = max(_BACKLOG, 2 * settings.concurrency)
        self.held = HeldJobs()
        self.slots = Slots(settings.concurrency)
        self.finisher = Finisher(store, self.held, crashed)
        self.runner = Runner(handlers, store, loop, self._finished)
        self.heartbeat = HeartbeatKeeper(store, self.held, settings, crashed)
        self.upkeep = Upkeep(store, settings, crashed)
        self.claimer = Claimer(
            store,
            self.slots,
            settings,
            is_backed_up=lambda: self.finisher.backlog > backlog,
            is_stopping=is_stopping,
            hand_over=self._hand_over,
            crashed=crashed,
        )

    @property
    def loops(self) -> list[Loop]:
        """
        The loops, in the order in which they are stopped.
        """
        return [
            self.claimer.loop,
            self.finisher.loop,
            self.upkeep.loop,
            self.heartbeat.loop,
        ]

    def start(self) -> None:
        """
        Begin: heartbeats first, claims last.
        """
        for one in reversed(self.loops):
            one.start()
        self._listening = self._store.listen(self.claimer.wake)

    async def wind_down(self) -> None:
        """
        End in order: claims first, heartbeats last. Bounded, whatever handlers do.
        """
        claims, *others = self.loops
        await asyncio.to_thread(claims.stop, _JOIN_SECONDS)
        await asyncio.to_thread(self.slots.wait_all_free, self._grace)
        await self.runner.cancel_all(_CLEAN_UP_SECONDS)
        for one in self.held.all():
            # Threads can't be interrupted, and some coroutines won't be: the lease
            # is given back all the same, and what they return will not be taken.
            if one.settle():
                _log.warning("job %s released: out of time", one.lease.job_id)
                self.finisher.put(one, Released())
        if not await asyncio.to_thread(self.finisher.flush, _FLUSH_SECONDS):
            _log.error(
                "%d outcomes not committed; their jobs come back by the visibility "
                "timeout",
                self.finisher.backlog,
            )
        for loop in others:
            await asyncio.to_thread(loop.stop, _JOIN_SECONDS)
        if self._listening is not None:
            await asyncio.to_thread(self._listening.close)

    def _hand_over(self, claims: list[Claim]) -> None:
        """
        From the claimer's thread to the event loop, a batch at a time.
        """
        held = [Held(claim) for claim in claims]
        self.held.add(held)
        self._loop.call_soon_threadsafe(self._start_all, held)

    def _start_all(self, held: list[Held]) -> None:
        for one in held:
            if self._is_stopping():
                self.runner.settle(one, Released())
            else:
                self.runner.start(one)

    def _finished(self, held: Held, outcome: Outcome | None) -> None:
        if outcome is not None:
            self.finisher.put(held, outcome)
        elif not held.has_outcome:
            self.held.drop([held.lease])
        self.slots.give_back()
