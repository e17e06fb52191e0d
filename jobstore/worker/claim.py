"""
Claiming: as many jobs as there are free hands, from several queues by turns.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from jobstore.lifecycle import JobClass
from jobstore.model import Claim
from jobstore.store import MAX_BATCH, Store
from jobstore.worker.held import HeldJobs
from jobstore.worker.loop import Loop

__all__ = ["Claimer"]

# With fewer than half of its hands free, the claimer waits this long for more of them:
# short jobs then come in batches, long ones do not notice.
_GATHER_SECONDS = 0.002
# After wake-ups that came to nothing, the next is answered with a random delay that
# doubles up to this: of many idle workers, a few then answer first, and the others
# find nothing less often.
_LONGEST_HESITATION_SECONDS = 0.05
_FIRST_HESITATION_SECONDS = 0.002


class Claimer:
    """
    Claims while hands are free: at once while there is work, else by polling.

    Each round begins with another queue, in the order given, and a round ends when all
    hands are full. So each queue is the first to be asked equally often, and none can
    keep the others from their turn. A queue that came back empty is not asked again
    until its next poll or wake-up.
    """

    def __init__(
        self,
        store: Store,
        jobs: HeldJobs,
        *,
        queues: Sequence[str],
        job_class: JobClass | None,
        worker: str,
        poll_every: timedelta,
        may_claim: Callable[[], bool],
        hand_on: Callable[[list[Claim], float], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._queues = list(queues)
        self._job_class = job_class
        self._worker = worker
        self._poll_seconds = poll_every.total_seconds()
        self._may_claim = may_claim
        self._hand_on = hand_on
        self._turn = 0
        self._ask_at = dict.fromkeys(queues, 0.0)
        self._lock = threading.Lock()
        self._wakes = dict.fromkeys(queues, 0)
        self._fruitless = 0
        self._gathering_since: float | None = None
        self.claimed = 0
        self.loop = Loop(
            "claim",
            self._step,
            crashed,
            allowance=timedelta(seconds=30) + 2 * poll_every,
        )

    def wake(self, queue: str | None = None) -> None:
        """
        Look for work in *queue* now; None: in all. From any thread.
        """
        with self._lock:
            for name in self._queues if queue is None else [queue]:
                if name in self._wakes:
                    self._wakes[name] += 1
        self.loop.wake()

    def _step(self) -> float:
        if self._jobs.room() <= 0 or not self._may_claim():
            self._gathering_since = None
            return self._poll_seconds
        queues, pause = self._queues_to_ask()
        if not queues:
            return pause
        if (pause := self._gather()) > 0:
            return pause
        for queue in queues:
            room = self._jobs.room()
            if room <= 0 or not self._may_claim():
                break
            self._claim(queue, min(room, MAX_BATCH))
        self._turn = (self._turn + 1) % len(self._queues)
        return 0.0

    def _queues_to_ask(self) -> tuple[list[str], float]:
        now = time.monotonic()
        in_turn = self._queues[self._turn :] + self._queues[: self._turn]
        with self._lock:
            woken = [queue for queue in in_turn if self._wakes[queue]]
        if woken and self._fruitless:
            self._hesitate()
        queues = [
            queue for queue in in_turn if queue in woken or self._ask_at[queue] <= now
        ]
        return queues, max(0.0, min(self._ask_at.values()) - now)

    def _gather(self) -> float:
        """
        Return how long to wait for more free hands.
        """
        if self._jobs.room() * 2 >= self._jobs.concurrency:
            self._gathering_since = None
            return 0.0
        now = time.monotonic()
        if self._gathering_since is None:
            self._gathering_since = now
        left = self._gathering_since + _GATHER_SECONDS - now
        if left <= 0:
            self._gathering_since = None
        return max(0.0, left)

    def _hesitate(self) -> None:
        longest = min(
            _FIRST_HESITATION_SECONDS * 2 ** min(self._fruitless, 10),
            _LONGEST_HESITATION_SECONDS,
        )
        time.sleep(random.uniform(0, longest))  # noqa: S311 - to keep workers apart

    def _claim(self, queue: str, limit: int) -> None:
        with self._lock:
            wakes, self._wakes[queue] = self._wakes[queue], 0
        asked_at = time.monotonic()
        claims = self._store.claim(
            limit, queue=queue, job_class=self._job_class, worker=self._worker
        )
        if claims:
            self._fruitless = 0
            self._ask_at[queue] = 0.0
            self.claimed += len(claims)
            self._hand_on(claims, asked_at)
            return
        if wakes:
            self._fruitless += 1
        # Jittered, so that idle workers do not ask in step. A wake-up that came during
        # the claim still counts: it may be for a job that the claim did not see.
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets
        self._ask_at[queue] = time.monotonic() + self._poll_seconds * jitter
