"""
Metrics need no more than the reader's role.
"""

from contextlib import closing

from jobstore.observe.metrics import QueueCollector
from tests.grants.conftest import Granted


def test_a_reader_may_scrape(granted: Granted) -> None:
    with closing(QueueCollector(granted.reader)) as collector:
        assert [family.name for family in collector.read()] == [
            "jobstore_open_jobs",
            "jobstore_oldest_wait_seconds",
            "jobstore_expired_leases",
            "jobstore_recent_jobs",
        ]
