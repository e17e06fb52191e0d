"""
The table of transitions, its picture, and the schema's CHECK say the same; and the
page's table of what consumes an attempt is what happens.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobstore.errors import InvalidTransition
from jobstore.lifecycle import (
    OPEN,
    REOPENABLE,
    TERMINAL,
    TRANSITIONS,
    JobClass,
    JobStatus,
    check_reopen,
    check_transition,
)
from jobstore.memory import MemoryStore
from jobstore.model import Claim, NewJob
from jobstore.store import Store
from tests import servers

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def drawn() -> set[tuple[str, str, str]]:
    edges = re.findall(
        r"^ +(\S+) --> (\S+?)(?:: (.*))?$", PAGE.read_text(), re.MULTILINE
    )
    assert edges, "the page has a picture"
    return set(edges)


def test_the_picture_shows_the_table() -> None:
    shown = {
        (one, other)
        for one, other, why in drawn()
        if why != "requeue" and "[*]" not in (one, other)
    }
    listed = {(one, other) for one, after in TRANSITIONS.items() for other in after}
    assert shown == listed


def test_the_picture_shows_where_lives_begin_and_end() -> None:
    edges = drawn()
    ended = {one for one, other, _ in edges if other == "[*]"}
    begun = {other for one, other, _ in edges if one == "[*]"}
    reopened = {one for one, _, why in edges if why == "requeue"}
    assert ended == TERMINAL
    assert begun == {JobStatus.QUEUED, JobStatus.SCHEDULED}
    assert reopened == REOPENABLE & TERMINAL


def test_the_page_explains_every_status() -> None:
    rows = re.findall(r"^\| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert set(JobStatus) <= set(rows)


def test_the_schema_knows_the_same_words(dsn: str, schema: str) -> None:
    with servers.connect(dsn) as connection:
        for name, words in (
            ("job_status_check", set(JobStatus)),
            ("job_class_check", set(JobClass)),
        ):
            row = connection.execute(
                "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
                "WHERE conname = %s AND connamespace = %s::regnamespace",
                [name, schema],
            ).fetchone()
            assert row is not None
            assert set(re.findall(r"'(\w+)'", str(row[0]))) == words


def test_every_status_is_open_or_ended() -> None:
    assert OPEN | TERMINAL == set(JobStatus) == set(TRANSITIONS)
    assert not OPEN & TERMINAL
    assert {status for status, after in TRANSITIONS.items() if not after} == TERMINAL


def test_every_open_status_can_end() -> None:
    for status in OPEN:
        assert TRANSITIONS[status] & TERMINAL


@pytest.mark.parametrize("current", JobStatus)
def test_staying_is_always_allowed(current: JobStatus) -> None:
    check_transition("id", current, current)


def test_a_forbidden_transition_says_what_was_found() -> None:
    with pytest.raises(InvalidTransition) as caught:
        check_transition("id", JobStatus.COMPLETED, JobStatus.QUEUED)
    assert (caught.value.current, caught.value.wanted) == ("completed", "queued")
    with pytest.raises(InvalidTransition):
        check_reopen("id", JobStatus.COMPLETED)


def test_classes_rank_in_their_order() -> None:
    assert [job_class.rank for job_class in JobClass] == [0, 1, 2]


# -- what consumes an attempt ------------------------------------------------------

HOUR = timedelta(hours=1)
NOW = timedelta(0)


def by_hand(store: Store, claim: Claim) -> None:
    store.update_status(
        claim.job.id, lambda job: replace(job, status=JobStatus.CANCELLED)
    )


ENDINGS: dict[str, tuple[int, Callable[[Store, Claim], object]]] = {
    "`complete`": (2, lambda store, claim: store.complete(claim.lease)),
    "`fail` with attempts left": (
        2,
        lambda store, claim: store.fail(claim.lease, error_code="E", retry_in=HOUR),
    ),
    "`fail` on the last attempt, or `final`": (
        1,
        lambda store, claim: store.fail(claim.lease, error_code="E"),
    ),
    "the lease expires, attempts left": (2, lambda store, _: store.reclaim_stale(NOW)),
    "the lease expires on the last attempt": (
        1,
        lambda store, _: store.reclaim_stale(NOW),
    ),
    "`release`": (2, lambda store, claim: store.release(claim.lease)),
    "`snooze`": (2, lambda store, claim: store.snooze(claim.lease, HOUR)),
    "`fan_out`": (
        2,
        lambda store, claim: store.fan_out(claim.lease, [claim.job.child(kind="x")]),
    ),
    "`cancel`": (2, lambda store, claim: store.cancel(claim.job.id)),
    "`update_status` out of processing": (2, by_hand),
}
"""For each row of the page: how many attempts the job has, and how this one ends."""


def accounts() -> dict[str, list[str]]:
    """
    Read the page's table of what consumes an attempt.
    """
    text = PAGE.read_text().split("## What consumes an attempt")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    return {row[0]: row[1:] for row in rows[1:]}


def test_the_table_of_attempts_lists_every_ending() -> None:
    assert list(accounts()) == list(ENDINGS)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_table_of_attempts_is_what_happens(ending: str) -> None:
    attempts, history, then = accounts()[ending]
    most, end = ENDINGS[ending]
    store = MemoryStore()
    store.create(NewJob(kind="work", max_attempts=most))
    claim = store.claim_next()
    assert claim is not None
    end(store, claim)
    job = store.get(claim.job.id)
    assert job.attempts == {"charged": 1, "given back": 0}[attempts]
    assert job.fence == 1
    past = [one.outcome for one in store.attempts(job.id)]
    if history == "as the new status says":
        assert (then, past) == ("as asked", ["cancelled"])
    elif history.startswith("none"):
        assert past == []
        assert job.status == then
    else:
        assert past == [history]
        assert job.status == then.split(",", maxsplit=1)[0]
    assert job.error_code is None or job.error_code in (*then.split(", "), "E")
