"""
A checker that accepts everything proves nothing: each rule has a history it refuses.
"""

import dataclasses
from pathlib import Path

import pytest

from tests.faults.checker import Rule, check
from tests.faults.history import (
    Change,
    Final,
    History,
    Log,
    Operation,
    Record,
    Reply,
    read,
)


def _record(
    operation: Operation, job: str = "a", fence: int = 0, **more: str
) -> Record:
    outcome = Reply(more.pop("outcome", "acknowledged"))
    return Record(
        process="w",
        operation=operation,
        job_id=job,
        fence=fence,
        outcome=outcome,
        status=more.get("status"),
        result=more.get("result"),
    )


def _changes(job: str, *steps: tuple[str, int]) -> tuple[Change, ...]:
    """
    Follow one job through states and fences, a second apart.
    """
    before, found = "", []
    for second, (after, fence) in enumerate(steps):
        found.append(
            Change(job_id=job, before=before, after=after, fence=fence, instant=second)
        )
        before = after
    return tuple(found)


CREATE, CLAIM, FINISH = Operation.CREATE, Operation.CLAIM, Operation.FINISH

PLAIN = History(
    records=(
        _record(CREATE),
        _record(CLAIM, fence=1),
        _record(FINISH, fence=1, status="completed", result="r"),
    ),
    changes=_changes("a", ("queued", 0), ("processing", 1), ("completed", 1)),
    final={"a": Final(status="completed", fence=1, result="r")},
)

RECLAIMED = History(
    records=(
        _record(CREATE),
        _record(CREATE, "b", outcome="unknown"),
        _record(CLAIM, fence=1),
        _record(CLAIM, fence=2),
        _record(FINISH, fence=1, status="completed", result="old", outcome="refused"),
        _record(FINISH, fence=2, status="completed", result="r"),
        _record(FINISH, fence=2, status="completed", result="r"),
    ),
    changes=_changes(
        "a",
        ("queued", 0),
        ("processing", 1),
        ("processing", 1),
        ("queued", 1),
        ("processing", 2),
        ("completed", 2),
    ),
    final={"a": Final(status="completed", fence=2, result="r")},
)

FAMILY = History(
    records=(
        _record(CREATE),
        _record(CLAIM, fence=1),
        _record(Operation.FAN_OUT, fence=1),
        _record(FINISH, "b", fence=1, status="completed", result="part"),
        _record(FINISH, fence=2, status="completed", result="whole"),
    ),
    changes=(
        *_changes(
            "a",
            ("queued", 0),
            ("processing", 1),
            ("waiting", 1),
            ("waiting", 1),
            ("queued", 1),
            ("processing", 2),
            ("completed", 2),
        ),
        *_changes("b", ("queued", 0), ("processing", 1), ("completed", 1)),
    ),
    final={
        "a": Final(status="completed", fence=2, result="whole", children_total=1),
        "b": Final(status="completed", fence=1, result="part", parent_id="a"),
    },
)


@pytest.mark.parametrize("good", [History(), PLAIN, RECLAIMED, FAMILY])
def test_good_histories_pass(good: History) -> None:
    assert check(good) == []


def _with(history: History, **changed: object) -> History:
    return dataclasses.replace(history, **changed)  # type: ignore[arg-type]  # by name


BROKEN = {
    "the job is gone": (Rule.CREATE_LOST, _with(PLAIN, final={})),
    "one fence given twice": (
        Rule.TWO_LEASES,
        _with(PLAIN, records=(*PLAIN.records, _record(CLAIM, fence=1))),
    ),
    "claimed while it is held": (
        Rule.TWO_LEASES,
        _with(
            RECLAIMED,
            changes=_changes(
                "a",
                ("queued", 0),
                ("processing", 1),
                ("processing", 2),
                ("completed", 2),
            ),
        ),
    ),
    "a fence that goes down": (
        Rule.TWO_LEASES,
        _with(
            RECLAIMED,
            changes=_changes(
                "a",
                ("queued", 2),
                ("processing", 2),
                ("queued", 2),
                ("processing", 1),
                ("queued", 1),
                ("processing", 2),
                ("completed", 2),
            ),
        ),
    ),
    "a later lease at an earlier instant": (
        Rule.TWO_LEASES,
        _with(
            RECLAIMED,
            changes=(
                *RECLAIMED.changes[:4],
                dataclasses.replace(RECLAIMED.changes[4], instant=-1.0),
                RECLAIMED.changes[5],
            ),
        ),
    ),
    "the first holder is heard after the second": (
        Rule.STALE_RESULT,
        _with(
            RECLAIMED,
            records=(_record(FINISH, fence=1, status="completed", result="r"),),
        ),
    ),
    "refused to the first holder, and stored": (
        Rule.STALE_RESULT,
        _with(
            RECLAIMED,
            records=RECLAIMED.records[:5],
            final={"a": Final(status="completed", fence=2, result="old")},
        ),
    ),
    "a fan-out under a fence that never was": (
        Rule.STALE_RESULT,
        _with(FAMILY, records=(_record(Operation.FAN_OUT, fence=7),)),
    ),
    "completed, then failed": (
        Rule.TWO_ENDS,
        _with(PLAIN, changes=(*PLAIN.changes, *_changes("a", ("failed", 1)))),
    ),
    "two holders told that they completed it": (
        Rule.TWO_ENDS,
        _with(
            PLAIN,
            records=(
                *PLAIN.records,
                _record(FINISH, fence=2, status="completed", result="r"),
            ),
        ),
    ),
    "a parent that waits for ever": (
        Rule.JOIN,
        _with(FAMILY, changes=FAMILY.changes[:3]),
    ),
    "a parent joined twice": (
        Rule.JOIN,
        _with(
            FAMILY,
            changes=_changes(
                "a",
                ("queued", 0),
                ("processing", 1),
                ("waiting", 1),
                ("queued", 1),
                ("waiting", 1),
                ("queued", 1),
                ("processing", 2),
                ("completed", 2),
            ),
        ),
    ),
    "a child is missing": (
        Rule.JOIN,
        _with(FAMILY, final={"a": FAMILY.final["a"]}),
    ),
    "a child is counted as open": (
        Rule.JOIN,
        _with(
            FAMILY,
            final={
                **FAMILY.final,
                "a": dataclasses.replace(FAMILY.final["a"], children_open=1),
            },
        ),
    ),
    "another result is stored": (
        Rule.RESULT_DIFFERS,
        _with(PLAIN, final={"a": Final(status="completed", fence=1, result="x")}),
    ),
    "an acknowledged result is undone": (
        Rule.RESULT_DIFFERS,
        _with(PLAIN, final={"a": Final(status="failed", fence=1)}),
    ),
    "a job is stuck": (
        Rule.NOT_ENDED,
        _with(History(), final={"a": Final(status="queued")}),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_history_is_refused_by_the_name_of_its_rule(name: str) -> None:
    rule, history = BROKEN[name]
    assert rule in {violation.rule for violation in check(history)}


def test_every_rule_has_a_broken_history() -> None:
    assert {rule for rule, _ in BROKEN.values()} == set(Rule)


def test_a_violation_tells_rule_and_job() -> None:
    (lost,) = (
        one for one in check(_with(PLAIN, final={})) if one.rule is Rule.CREATE_LOST
    )
    assert str(lost) == "acknowledged create lost: job a: is not in the store"


def test_what_is_logged_is_read_again_but_for_half_a_line(tmp_path: Path) -> None:
    log = Log(tmp_path, "w")
    log.write(FINISH, "a", Reply.UNKNOWN, fence=3, status="completed", result="r")
    log.close()
    with (tmp_path / "w.jsonl").open("a") as file:
        file.write('{"process": "w", "op')
    assert read(tmp_path) == (
        _record(FINISH, fence=3, status="completed", result="r", outcome="unknown"),
    )
