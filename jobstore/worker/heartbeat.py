"""
The heartbeat: keeps all leases of this process alive, from a thread of its own.

A busy event loop can't starve it, and neither can handlers that use up a pool: it has
a connection of its own. It is the last thing to stop.
"""

import logging
import time
from collections.abc import Callable

from jobstore.store import MAX_BATCH, Store
from jobstore.worker.held import HeldJobs
from jobstore.worker.pacing import Loop
from jobstore.worker.settings import WorkerSettings

__all__ = ["HeartbeatKeeper"]

_log = logging.getLogger("jobstore.worker")


class HeartbeatKeeper:
    """
    Refreshes the leases of the held jobs, and tells handlers whose lease is gone.
    """

    def __init__(
        self,
        store: Store,
        held: HeldJobs,
        settings: WorkerSettings,
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._held = held
        self._every = settings.heartbeat_every.total_seconds()
        self._visibility_timeout = settings.visibility_timeout.total_seconds()
        self._beaten_at = time.monotonic()
        self.loop = Loop("heartbeat", self._step, crashed)

    def _step(self) -> float:
        started = time.monotonic()
        late = started - self._beaten_at
        held = self._held.all()
        if held and late > self._visibility_timeout:
            _log.warning(
                "last heartbeat was %.1f s ago; leases of %.1f s may be lost",
                late,
                self._visibility_timeout,
            )
        for first in range(0, len(held), MAX_BATCH):
            batch = held[first : first + MAX_BATCH]
            answer = self._store.heartbeat([one.lease for one in batch])
            for lease in (*answer.lost, *answer.cancelled):
                one = self._held.get(lease)
                # A settled one has its outcome on the way: the finisher will be told.
                if one is not None and not one.is_settled:
                    cancelled = lease in answer.cancelled
                    _log.warning(
                        "job %s: %s",
                        lease.job_id,
                        "cancelled" if cancelled else "lease lost",
                    )
                    one.lose(cancelled=cancelled)
                    self._held.drop([lease])
        self._beaten_at = started
        return max(0.0, self._every - (time.monotonic() - started))
