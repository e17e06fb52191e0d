"""
explain_job says why a job is where it is, and what comes next.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobstore.model import ChildFailure
from tests.operators import test_functions as made
from tests.operators.support import Place

GOLDEN = Path(__file__).with_name("explanations.txt")


def overdue(place: Place) -> str:
    job = place.add(available_at=datetime(2100, 1, 1, tzinfo=UTC))
    place.ask(
        "UPDATE {s}.job SET available_at = now() - interval '90 minutes' WHERE id = %s",
        job.id,
    )
    return job.id


def queued_behind_others(place: Place) -> str:
    place.add()
    place.add()
    place.claim()
    return place.add().id


def queued_after_failures(place: Place) -> str:
    place.add()
    claim = place.claim()
    place.store.fail(
        claim.lease,
        error_code="E_BROKEN",
        error_message="it broke",
        retry_in=timedelta(0),
    )
    return claim.job.id


def silent(place: Place) -> str:
    place.add()
    job = place.claim().job
    place.silence(job.id, 3 * 3600)
    return job.id


def silent_on_last_attempt(place: Place) -> str:
    place.add(max_attempts=1)
    job = place.claim().job
    place.silence(job.id, 3 * 86400)
    return job.id


def last_attempt(place: Place) -> str:
    place.add(max_attempts=1)
    return place.claim().job.id


def failed_after_all_attempts(place: Place) -> str:
    place.add(max_attempts=1)
    claim = place.claim()
    place.fail(claim, final=False)
    return claim.job.id


def waiting_to_fail(place: Place) -> str:
    parent, _ = made.family(place, 2, ChildFailure.FAIL)
    place.fail(place.claim())
    return parent


def waiting_for_nobody(place: Place) -> str:
    parent, _ = made.family(place, 1)
    place.ask("UPDATE {s}.job SET children_open = 0 WHERE id = %s", parent)
    return parent


def cancelled_without_reason(place: Place) -> str:
    job = place.add()
    place.store.cancel(job.id)
    return job.id


def silent_worker_reclaimed(place: Place) -> str:
    job_id = silent(place)
    place.store.reclaim_stale(timedelta(seconds=60))
    return job_id


def unknown(place: Place) -> str:
    return made.UNKNOWN


def no_id(place: Place) -> str:
    return "invoice 17"


SITUATIONS: list[Callable[[Place], str]] = [
    made.queued,
    queued_behind_others,
    queued_after_failures,
    silent_worker_reclaimed,
    made.exhausted,
    made.scheduled,
    made.retrying,
    overdue,
    made.processing,
    last_attempt,
    silent,
    silent_on_last_attempt,
    made.waiting,
    made.waiting_with_held_child,
    made.waiting_with_failed_child,
    waiting_to_fail,
    waiting_for_nobody,
    made.completed,
    made.failed,
    failed_after_all_attempts,
    made.failed_parent,
    made.one_of_three_children,
    made.cancelled,
    cancelled_without_reason,
    made.cancelled_while_held,
    unknown,
    no_id,
]


def explained(place: Place, situation: Callable[[Place], str]) -> str:
    """
    Explain the job, with everything that differs from run to run replaced.
    """
    said: str = place.value("SELECT {s}.explain_job(%s)", situation(place))
    ids = dict.fromkeys(re.findall(r"\b[0-7][0-9A-Z]{25}\b", said))
    for number, job_id in enumerate(ids):
        said = said.replace(job_id, f"<job {number}>")
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<instant>", said)
    said = re.sub(r"\b[0-9] s\b", "<a moment>", said)
    return re.sub(r"in \d{5} d \d+ h", "in <years>", said)


@pytest.mark.parametrize(
    "situation", SITUATIONS, ids=lambda situation: situation.__name__
)
def test_explanations(place: Place, situation: Callable[[Place], str]) -> None:
    golden = dict(part.split("\n", 1) for part in GOLDEN.read_text().split("== ")[1:])
    assert explained(place, situation) == golden[situation.__name__].strip()


def test_explaining_changes_nothing(place: Place) -> None:
    job_id = silent(place)
    place.ask("SET default_transaction_read_only = on")
    assert place.value("SELECT {s}.explain_job(%s)", job_id.lower()).startswith("Job ")
    place.ask("RESET default_transaction_read_only")


def test_it_never_says_a_payload_or_a_key(place: Place) -> None:
    job = place.add(payload=b"s3cr3t", idem_key="s3cr3t")
    place.store.complete(place.claim().lease, b"s3cr3t")
    said = place.value("SELECT {s}.explain_job(%s)", job.id)
    assert "completed" in said
    assert "s3cr3t" not in said
