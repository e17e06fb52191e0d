"""
Upkeep: what every worker does for all, without a leader.

Each sweep is short, skips what others hold, and may be run by any number of workers at
once; jitter keeps them apart.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from jobstore.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreFault,
    StoreUnavailable,
)
from jobstore.store import Store
from jobstore.worker.loop import Loop

__all__ = ["Upkeep"]

_log = logging.getLogger("jobstore.worker")

_BATCH = 1000
# Families need repair after somebody's hand only, and history is pruned for space.
_SELDOM = timedelta(minutes=1)


@dataclass(slots=True)
class _Chore:
    do: Callable[[], None]
    every: float
    due_at: float
    is_failing: bool = False


class Upkeep:
    """
    Queues due jobs, reclaims stale leases, repairs families, prunes.

    Leases are not reclaimed right after the start or after an outage, nor while this
    worker's own heartbeats are late: whoever could not refresh leases gets the time to
    do it. Otherwise the first worker back after an outage would take all jobs from all
    others.

    Args:
        patience: How long to give others after the start and after an outage.
        may_judge: Whether this worker's own leases are fresh.
    """

    def __init__(
        self,
        store: Store,
        *,
        every: timedelta,
        visibility_timeout: timedelta,
        prune_after: timedelta | None,
        keep_keys_for: timedelta,
        patience: timedelta,
        may_judge: Callable[[], bool],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._visibility_timeout = visibility_timeout
        self._prune_after = prune_after
        self._keep_keys_for = keep_keys_for
        self._patience = patience.total_seconds()
        self._may_judge = may_judge
        self._patient_until = 0.0
        self.reclaimed = 0
        self.pruned = 0
        seldom = max(every, _SELDOM).total_seconds()
        often = every.total_seconds()
        self._chores = [
            _Chore(self._promote, often, 0.0),
            _Chore(self._reclaim, often, 0.0),
            _Chore(self._repair, seldom, time.monotonic() + _jittered(often)),
        ]
        if prune_after is not None:
            first = time.monotonic() + _jittered(often)
            self._chores.append(_Chore(self._prune, seldom, first))
        self._be_patient()
        self.loop = Loop(
            "upkeep",
            self._step,
            crashed,
            # Pruning a long history takes its time.
            allowance=timedelta(minutes=15),
            longest_pause=min(timedelta(seconds=10), max(every, timedelta(seconds=1))),
        )

    def _step(self) -> float:
        for chore in self._chores:
            if not self.loop.is_ending and chore.due_at <= time.monotonic():
                self._do(chore)
        next_at = min(chore.due_at for chore in self._chores)
        return max(0.0, next_at - time.monotonic())

    def _do(self, chore: _Chore) -> None:
        try:
            chore.do()
        except (StoreBusy, StoreFault) as error:
            # The others are not to suffer: it may be forbidden here, or too much at
            # once. It comes round again by itself.
            if not chore.is_failing:
                _log.warning("upkeep: %s (%s)", error, error.code)
            chore.is_failing = True
        except (StoreUnavailable, OutcomeUnknown):
            self._be_patient()
            raise
        else:
            chore.is_failing = False
        chore.due_at = time.monotonic() + _jittered(chore.every)

    def _be_patient(self) -> None:
        self._patient_until = time.monotonic() + self._patience

    def _promote(self) -> None:
        while self._store.promote_due(limit=_BATCH) >= _BATCH:
            if self.loop.is_ending:
                return

    def _reclaim(self) -> None:
        if time.monotonic() < self._patient_until or not self._may_judge():
            return
        done = self._store.reclaim_stale(self._visibility_timeout, limit=_BATCH)
        if done.requeued or done.failed:
            self.reclaimed += done.requeued + done.failed
            _log.warning(
                "stale leases: %d jobs queued again, %d failed for good",
                done.requeued,
                done.failed,
            )

    def _repair(self) -> None:
        if repaired := self._store.repair_families(limit=_BATCH):
            _log.warning("%d waiting parents put right", repaired)

    def _prune(self) -> None:
        assert self._prune_after is not None
        pruned = self._store.prune(
            self._prune_after, keep_keys_for=self._keep_keys_for, limit=_BATCH
        )
        if pruned:
            self.pruned += pruned
            _log.info("%d old jobs pruned", pruned)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - to keep workers apart
