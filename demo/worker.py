"""
One worker process of the demonstration: ``python -m demo.worker NAME QUEUE``.

It ends on SIGTERM, and when its standard input does: if the demonstration is killed,
its workers do not stay behind.
"""

import logging
import os
import sys
import threading
from datetime import timedelta

from demo.handlers import handlers
from jobstore import PostgresStore, Worker


def main() -> None:
    name, queue = sys.argv[1:]
    # The demonstration tells the story.
    logging.disable(logging.WARNING)
    worker = Worker(
        PostgresStore(os.environ["JOBSTORE_DSN"]),
        handlers,
        name=name,
        queues=[queue],
        concurrency=2,
        # Short, so that the pages of the dead are recovered while one watches.
        visibility_timeout=timedelta(seconds=2),
        poll_every=timedelta(seconds=0.2),
        grace=timedelta(seconds=2),
    )

    def stop_at_the_end() -> None:
        # Not by sys.stdin, whose lock this thread would hold when Python ends.
        while os.read(0, 1024):
            pass
        # The server is gone as well: there is nothing to finish for.
        worker.stop(at_once=True)

    threading.Thread(target=stop_at_the_end, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main()
