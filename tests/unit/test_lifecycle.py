"""
The table of transitions, its picture, and the schema's CHECK say the same.
"""

import re
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
