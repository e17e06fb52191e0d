"""
An event loop in a thread of its own, for workers that are run from plain code.

A handler that blocks it can't keep the worker from stopping, nor the process from
ending: the thread is a daemon.
"""

import asyncio
import threading

__all__ = ["EventLoopThread"]

_CLEAN_UP_SECONDS = 1.0


class EventLoopThread:
    """
    Runs *loop* until `stop`.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, name="jobstore-handlers", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """
        End the loop, and what handlers left behind on it; return whether it ended.
        """
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(
                    asyncio.wait(left, timeout=_CLEAN_UP_SECONDS)
                )
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
