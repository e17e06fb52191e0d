"""
Fifty deaths: workers killed at any moment lose nothing and double nothing.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest

from jobstore import JobStatus, NewJob, PostgresStore

# Each acknowledged outcome goes to a file outside the database, synced, before the
# worker goes on: what stands there must be true of the database ever after.
WORKER = """
import json, os, sys
from jobstore import PostgresStore
store = PostgresStore(sys.argv[1], schema=sys.argv[2], wake_ups=False)
log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
print("ready", flush=True)
while True:
    for claim in store.claim(3):
        result = f"{claim.job.id} by {os.getpid()} under {claim.job.fence}"
        store.complete(claim.lease, result.encode())
        entry = {"id": claim.job.id, "fence": claim.job.fence, "result": result}
        os.write(log, (json.dumps(entry) + "\\n").encode())
        os.fsync(log)
"""


@pytest.mark.slow
def test_fifty_rounds_of_kill_9(dsn: str, schema: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("JOBSTORE_TEST_SEED", "0")) or random.randrange(2**32)  # noqa: S311
    print(f"JOBSTORE_TEST_SEED={seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    store = PostgresStore(dsn, schema=schema, wake_ups=False)
    log = tmp_path / "acknowledged"
    pause = threading.Event()
    submitted = []
    for _ in range(50):
        created = store.create_many([NewJob(kind="k", max_attempts=100)] * 40)
        submitted += [one.job.id for one in created]
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, dsn, schema, str(log)],
            stdout=subprocess.PIPE,
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            pause.wait(chance.uniform(0, 0.15))
            worker.send_signal(signal.SIGKILL)
        store.reclaim_stale(timedelta(0))
    while claims := store.claim(500):
        for claim in claims:
            store.complete(claim.lease, b"the last one")

    acknowledged = defaultdict(list)
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        acknowledged[entry["id"]].append(entry)
    assert 100 < len(acknowledged) < len(submitted), f"too one-sided: {seed=}"
    for job_id in submitted:
        job = store.get(job_id)
        assert job.status is JobStatus.COMPLETED, seed
        assert len(acknowledged[job_id]) <= 1, f"two acknowledged ends: {seed=}"
        for entry in acknowledged[job_id]:
            assert (job.result, job.fence) == (entry["result"].encode(), entry["fence"])
        # Every claim that came to nothing stands in the history, and no other.
        assert len(store.attempts(job_id)) == job.fence - 1, seed
    store.close()
