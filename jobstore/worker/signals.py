"""
SIGTERM and SIGINT stop a worker; a second one stops it at once.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["stopped_by_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[bool], None]) -> Iterator[None]:
    """
    Call *stop* on a signal, with whether it is the second; put things back afterwards.

    Outside the main thread nothing is changed: Python delivers signals only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, object] = {}
    seen = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        stop(seen > 1)

    for number in _SIGNALS:
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was set by other than Python code, and can't be named here.
            signal.signal(number, handler or signal.SIG_DFL)  # type: ignore[arg-type]
