"""
The embedded server's parent process: ends it when nobody uses its folder any more.

Run as a program of its own, with the standard library alone, so that it is small
and starts in a moment. Users hold a shared lock on the folder's ``in-use.lock``;
this process waits to get that lock for itself. It gets it when the last user has
stopped or died, whichever way, so a killed program leaves no server behind.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

_PATIENCE = 60.0


def main() -> None:
    """
    Start the server described by the JSON in the first argument, and stay with it.
    """
    plan: dict[str, Any] = json.loads(sys.argv[1])
    # The starter waits for its child only, and must not be asked to reap a server.
    if os.fork():
        os._exit(0)
    server = subprocess.Popen(  # noqa: S603 - our starter's command, no shell
        plan["command"],
        cwd="/",
        stdin=subprocess.DEVNULL,
        pass_fds=plan["files"],
        **plan["account"],
    )
    # One of them is the lock that says, from here on, that some process of the server
    # is alive: that alone, not that this one is.
    for file in plan["files"]:
        os.close(file)
    alone = threading.Event()
    ender = threading.Thread(
        target=_end_when_unused, args=(server, plan, alone), daemon=True
    )
    ender.start()
    server.wait()
    if alone.is_set():
        ender.join()
    os._exit(0)


def _end_when_unused(
    server: "subprocess.Popen[bytes]", plan: dict[str, Any], alone: threading.Event
) -> None:
    in_use = os.open(plan["in_use_lock"], os.O_RDWR)
    while True:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        # Somebody may be starting at this moment. He holds the start lock and waits
        # for this one: let go, get in line, and look again.
        fcntl.flock(in_use, fcntl.LOCK_UN)
        start = os.open(plan["start_lock"], os.O_RDWR)
        fcntl.flock(start, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        os.close(start)
    alone.set()
    server.send_signal(signal.SIGINT)  # fast shutdown: clients are disconnected
    try:
        server.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)
        server.wait()
    # It may lie in /tmp, where nobody would miss it.
    with contextlib.suppress(OSError):
        os.rmdir(plan["sockets"])  # noqa: PTH106 - pathlib would double our size


if __name__ == "__main__":
    main()
