"""
Upkeep: what every worker does for all, without a leader.

Each sweep is short, skips what others hold, and may be run by any number of workers
at once; jitter keeps them apart.
"""

import logging
import random
import time
from collections.abc import Callable

from jobstore.store import Store
from jobstore.worker.pacing import Loop
from jobstore.worker.settings import WorkerSettings

__all__ = ["Upkeep"]

_log = logging.getLogger("jobstore.worker")

_BATCH = 1000
_REPAIR_SECONDS = 60.0
_PRUNE_SECONDS = 600.0


class Upkeep:
    """
    Queues due jobs, reclaims stale leases, repairs families, prunes.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._every = settings.upkeep_every.total_seconds()
        self._visibility_timeout = settings.visibility_timeout
        self._prune_after = settings.prune_after
        self._keep_keys_for = settings.keep_keys_for
        now = time.monotonic()
        self._repair_at = now + _jittered(_REPAIR_SECONDS)
        self._prune_at = now + _jittered(_PRUNE_SECONDS)
        self.reclaimed = 0
        self.loop = Loop("upkeep", self._step, crashed)

    def _step(self) -> float:
        while self._store.promote_due(limit=_BATCH) == _BATCH:
            if self.loop.is_stopping:
                return 0.0
        reclaimed = self._store.reclaim_stale(self._visibility_timeout, limit=_BATCH)
        if reclaimed.requeued or reclaimed.failed:
            self.reclaimed += reclaimed.requeued + reclaimed.failed
            _log.warning(
                "stale leases: %d jobs queued again, %d failed",
                reclaimed.requeued,
                reclaimed.failed,
            )
        now = time.monotonic()
        if now >= self._repair_at:
            self._repair_at = now + _jittered(_REPAIR_SECONDS)
            if repaired := self._store.repair_families(limit=_BATCH):
                _log.warning("%d waiting parents put right", repaired)
        if self._prune_after is not None and now >= self._prune_at:
            self._prune_at = now + _jittered(_PRUNE_SECONDS)
            pruned = self._store.prune(
                self._prune_after, keep_keys_for=self._keep_keys_for, limit=_BATCH
            )
            _log.info("%d old jobs pruned", pruned)
        return _jittered(self._every)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets
