"""
One worker process of the demonstration: ``python -m demo.worker NAME``.
"""

import logging
import os
import sys
from datetime import timedelta

from demo.handlers import handlers
from jobstore import PostgresStore, Worker


def main() -> None:
    logging.disable(logging.WARNING)
    Worker(
        PostgresStore(os.environ["JOBSTORE_DSN"]),
        handlers,
        name=sys.argv[1],
        concurrency=2,
        visibility_timeout=timedelta(seconds=2),
        poll_every=timedelta(seconds=0.2),
    ).run()


if __name__ == "__main__":
    main()
