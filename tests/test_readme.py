"""
The Python in README.md runs, against a real database.
"""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

import jobstore
from jobstore import JobStatus, migrate

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
RESULTS = [b"hello, world", b"TWO PAGES", b"billed"]


@pytest.fixture
def migrated(database: str) -> str:
    migrate.upgrade(database)
    return database


def test_every_block_has_its_expected_result() -> None:
    assert len(BLOCKS) == len(RESULTS)


@pytest.mark.parametrize(("block", "result"), list(zip(BLOCKS, RESULTS, strict=False)))
def test_a_block_runs_and_its_job_completes(
    migrated: str, monkeypatch: pytest.MonkeyPatch, block: str, result: bytes
) -> None:
    names: dict[str, Any] = {}

    class UntilDone(jobstore.Worker):
        """
        Stops when the block's job has ended, where a reader would press Ctrl-C.
        """

        def run(self) -> None:
            def look() -> None:
                pause = threading.Event()
                for _ in range(600):
                    if names["store"].get(names["job"].id).finished_at is not None:
                        break
                    pause.wait(0.05)
                self.stop()

            looker = threading.Thread(target=look)
            looker.start()
            super().run()
            looker.join()

    monkeypatch.setattr(jobstore, "Worker", UntilDone)
    url = migrated.replace("postgresql+psycopg://", "postgresql://", 1)
    driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
    code = block.replace("postgresql+psycopg://localhost/app", driver)
    code = code.replace("postgresql://localhost/app", url)
    assert code != block
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - what is tested
    done = names["store"].get(names["job"].id)
    names["store"].close()
    if "engine" in names:
        names["engine"].dispose()
    assert names["created"]
    assert (done.status, done.result) == (JobStatus.COMPLETED, result)
