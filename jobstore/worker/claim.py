"""
The claimer: takes as many jobs as there are free hands, and hands them on.
"""

import random
import threading
from collections import deque
from collections.abc import Callable

from jobstore.model import Claim
from jobstore.store import Store
from jobstore.worker.pacing import Loop
from jobstore.worker.settings import WorkerSettings

__all__ = ["Claimer", "Slots"]

_LARGEST_BATCH = 500
# While more outcomes wait to be committed than should, look again this soon.
_BACKED_UP_SECONDS = 0.01


class Slots:
    """
    The free hands of a worker. Safe between threads.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._free = number
        # Reentrant: a signal handler may run in the middle of anything.
        self._idle = threading.Condition(threading.RLock())
        self._is_waited_for = True
        self.on_free: Callable[[], None] = lambda: None

    @property
    def free(self) -> int:
        return self._free

    def take(self, number: int) -> None:
        with self._idle:
            self._free -= number

    def give_back(self, number: int = 1) -> None:
        with self._idle:
            was_empty = self._free <= 0
            self._free += number
            if self._free >= self._number:
                self._idle.notify_all()
        if was_empty:
            self.on_free()

    def wait_all_free(self, seconds: float) -> bool:
        """
        Wait until nothing is in hand, *seconds* at most, or until `give_up`.
        """
        with self._idle:
            return self._idle.wait_for(
                lambda: self._free >= self._number or not self._is_waited_for, seconds
            )

    def give_up(self) -> None:
        """
        Wait no longer for what is in hand.
        """
        with self._idle:
            self._is_waited_for = False
            self._idle.notify_all()


class Claimer:
    """
    Claims while hands are free: at once while there is work, else by polling.

    With several queues it begins each round at the next one, so that a busy queue
    cannot keep the others from their turn.
    """

    def __init__(
        self,
        store: Store,
        slots: Slots,
        settings: WorkerSettings,
        *,
        is_backed_up: Callable[[], bool],
        is_stopping: Callable[[], bool],
        hand_over: Callable[[list[Claim]], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._slots = slots
        self._queues = deque(dict.fromkeys(settings.queues))
        self._job_class = settings.job_class
        self._worker = settings.name
        self._poll_every = settings.poll_every.total_seconds()
        self._is_backed_up = is_backed_up
        self._is_stopping = is_stopping
        self._hand_over = hand_over
        self.loop = Loop("claim", self._step, crashed)
        slots.on_free = self.loop.poke

    def wake(self, queue: str | None) -> None:
        """
        Look for work now, if it may be for us.
        """
        if queue is None or queue in self._queues:
            self.loop.poke()

    def _step(self) -> float:
        found = False
        for _ in range(len(self._queues)):
            wanted = min(self._slots.free, _LARGEST_BATCH)
            if wanted <= 0 or self._is_backed_up() or self._is_stopping():
                break
            queue = self._queues[0]
            self._queues.rotate(-1)
            claims = self._store.claim(
                wanted,
                queue=queue,
                job_class=self._job_class,
                worker=self._worker,
            )
            if claims:
                found = True
                self._slots.take(len(claims))
                self._hand_over(claims)
        if self._is_backed_up():
            return _BACKED_UP_SECONDS
        if found and self._slots.free > 0:
            return 0.0
        # Jittered, so that idle workers do not ask in step. When hands get free, or
        # a wake-up comes, the loop is poked.
        return self._poll_every * random.uniform(0.75, 1.25)  # noqa: S311
