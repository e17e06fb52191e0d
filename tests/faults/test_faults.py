"""
One fault at a time, put on a running system; its history must be clean after it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from ulid import ULID

from tests.faults import faults
from tests.faults.history import Operation, Reply
from tests.faults.soak import soak
from tests.faults.system import System, running

pytestmark = pytest.mark.postgres

RECLAIMED = "faults.attempt WHERE outcome = 'lease_expired'"


@pytest.fixture
def chance() -> random.Random:
    return random.Random(1)  # noqa: S311 - which process, not a secret


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as made:
        made.start(workers=2, submitters=1)
        made.progress()
        yield made


def _finish(system: System) -> Counter[tuple[Operation, Reply]]:
    """
    Check the history; count what it holds of each kind, so that it is not empty.
    """
    history, violations = system.finish()
    assert violations == []
    counts = Counter((one.operation, one.outcome) for one in history.records)
    for operation in (Operation.CREATE, Operation.CLAIM, Operation.FINISH):
        assert counts[operation, Reply.ACKNOWLEDGED] > 30
    assert counts[Operation.FAN_OUT, Reply.ACKNOWLEDGED] > 0
    assert len(history.changes) > 100
    return counts


def test_a_run_without_faults_is_clean_and_not_empty(system: System) -> None:
    counts = _finish(system)
    # A heartbeat may ask about a lease that has just ended well.
    counts.pop((Operation.HEARTBEAT, Reply.REFUSED), None)
    assert {reply for _, reply in counts} == {Reply.ACKNOWLEDGED}


def test_workers_are_killed(system: System, chance: random.Random) -> None:
    for _ in range(3):
        faults.kill_worker(system, chance)
    _finish(system)
    assert system.count(RECLAIMED) > 0, "no job was held by any of them"


def test_a_worker_wakes_up_after_its_lease_went(
    system: System, chance: random.Random
) -> None:
    tries = (faults.stall_worker(system, chance) for _ in range(20))
    assert any(tries), "no stalled worker tried to write what it had"
    counts = _finish(system)
    assert counts[Operation.FINISH, Reply.REFUSED] > 0, "it wrote nothing afterwards"


def test_sessions_are_ended_by_an_operator(
    system: System, chance: random.Random
) -> None:
    for _ in range(5):
        faults.end_sessions(system, chance)
    _finish(system)


def test_postgresql_is_shut_down_at_once_and_recovers(
    system: System, chance: random.Random
) -> None:
    faults.shut_down_at_once(system, chance)
    faults.shut_down_at_once(system, chance)
    _finish(system)
    log = system.server.embedded.data_dir.rglob("*log*")
    text = "".join(one.read_text() for one in log if one.is_file())
    assert "was not properly shut down" in text, "there was nothing to recover"


def test_postgresql_is_killed_and_recovers(
    system: System, chance: random.Random
) -> None:
    faults.kill_postgresql(system, chance)
    _finish(system)


def test_connections_are_cut_in_the_middle_of_commits(
    system: System, chance: random.Random
) -> None:
    faults.cut_commits(system, chance, times=10)
    _finish(system)


def test_clocks_of_workers_are_stepped(system: System, chance: random.Random) -> None:
    for _ in range(4):
        faults.step_clocks(system, chance)
    _finish(system)
    # The ids tell what clocks their makers saw; no instant does.
    made = [
        ULID.from_str(str(job_id)).timestamp
        for (job_id,) in system.ask("SELECT id FROM faults.job")
    ]
    assert max(made) - min(made) > 500, "no clock was stepped"
    spread = "SELECT max(created_at) - min(created_at) < '5 min' FROM faults.job"
    assert system.ask(spread) == [(True,)]


@pytest.mark.slow
def test_a_short_soak_is_clean(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"SEED={seed}")  # noqa: T201 - to repeat a failure
    report = soak(tmp_path, seconds=20, seed=seed)
    assert report.violations == []
    assert sum(report.injected.values()) >= 3
    assert report.jobs > 100
