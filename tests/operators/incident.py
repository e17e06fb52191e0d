"""
A bad night, prepared: what the recipes of docs/operations.md are tried on.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from jobstore.lifecycle import JobClass
from jobstore.model import ChildFailure
from tests import servers
from tests.operators.support import Place

DEAD = "ocr-7.dead"
ALIVE = "ocr-1.alive"


@dataclass
class Incident:
    """
    Who is who in it.
    """

    place: Place
    dsn: str
    ids: dict[str, str] = field(default_factory=dict)
    report: "psycopg.Connection[tuple[Any, ...]] | None" = None
    """A session that forgot its transaction."""

    def words(self) -> dict[str, str]:
        """
        What to put in place of the recipes' ``<words>``.
        """
        deployed = datetime.now(UTC) - timedelta(hours=2)
        return {
            "job": self.ids["waiting longest"],
            "failed job": self.ids["bad input"],
            "parent": self.ids["parent"],
            "worker": DEAD,
            "queue": "ocr",
            "tenant": "acme",
            "key": "invoice 17",
            "reason": "ticket 4711",
            "deployed at": deployed.isoformat(),
        }

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """
        Return each job with all that hangs on it, by id.
        """
        return {
            row[0]: row
            for row in self.place.ask("""
                SELECT job.id, to_jsonb(job), to_jsonb(payload), to_jsonb(key),
                    (SELECT jsonb_agg(attempt ORDER BY fence)
                     FROM {s}.attempt WHERE attempt.job_id = job.id)
                FROM {s}.job
                LEFT JOIN {s}.payload ON payload.job_id = job.id
                LEFT JOIN {s}.idempotency_key AS key ON key.job_id = job.id
            """)
        }

    def named(self, ids: set[str]) -> set[str]:
        """
        Return the names of these jobs, for messages that can be read.
        """
        names = {job_id: name for name, job_id in self.ids.items()}
        return {names.get(job_id, job_id) for job_id in ids}


def prepare(place: Place, dsn: str) -> Incident:
    """
    Bring it about.
    """
    incident = Incident(place, dsn)
    _old_families(incident)
    _failures(incident)
    _family_with_dead_worker(incident)
    _backlog(incident)
    _leftover_index(incident)
    incident.report = servers.connect(dsn)
    incident.report.execute("SET application_name = 'monthly report'")
    incident.report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    incident.report.execute("SELECT 1")
    return incident


def _old_families(incident: Incident) -> None:
    place = incident.place
    for name, days in (("ancient", 60), ("recent", 3), ("half ancient", 60)):
        parent = place.add(f"{name} parent", queue="old")
        (child,) = place.fan_out(place.claim(ALIVE, "old"), [f"{name} child"])
        place.store.complete(place.claim(ALIVE, "old").lease)
        place.store.complete(place.claim(ALIVE, "old").lease)
        incident.ids[f"{name} parent"] = parent.id
        incident.ids[f"{name} child"] = child.id
        for job_id in (parent.id, child.id):
            place.age(job_id, finished_at=timedelta(days=days))
    # Its child ended only yesterday: prune keeps both.
    child_id = incident.ids["half ancient child"]
    place.age(child_id, finished_at=-timedelta(days=59))


def _failures(incident: Incident) -> None:
    place = incident.place
    for name, code, hours in (
        ("timeout 1", "E_TIMEOUT", 20),
        ("timeout 2", "E_TIMEOUT", 19),
        ("bad input", "E_BAD_INPUT", 18),
        ("timeout after the deploy", "E_TIMEOUT", 1),
        ("timeout of last week", "E_TIMEOUT", 100),
    ):
        job = place.add(name, queue="failing", payload=b"scan")
        place.fail(place.claim("ocr-2", "failing"), code=code)
        place.age(job.id, finished_at=timedelta(hours=hours))
        incident.ids[name] = job.id


def _family_with_dead_worker(incident: Incident) -> None:
    place = incident.place
    parent = place.add("parent", queue="ocr", tenant="acme")
    kinds = ["page 1", "page 2", "page 3"]
    children = place.fan_out(place.claim(DEAD, "ocr"), kinds, ChildFailure.RESUME)
    place.store.complete(place.claim(DEAD, "ocr").lease)
    held = place.claim(DEAD, "ocr")
    other = place.add("held", queue="ocr", job_class=JobClass.INTERACTIVE)
    place.claim(DEAD, "ocr")
    live = place.add("live", queue="ocr", job_class=JobClass.INTERACTIVE)
    place.claim(ALIVE, "ocr")
    place.silence(held.job.id, 600)
    place.silence(other.id, 600)
    incident.ids |= {"parent": parent.id, "held": other.id, "live": live.id}
    incident.ids |= {
        kind: child.id for kind, child in zip(kinds, children, strict=True)
    }


def _backlog(incident: Incident) -> None:
    place = incident.place
    first = place.add(
        "waiting longest",
        queue="ocr",
        tenant="acme",
        job_class=JobClass.INTERACTIVE,
        idem_key="invoice 17",
    )
    place.age(first.id, updated_at=timedelta(minutes=40))
    incident.ids["waiting longest"] = first.id
    for number in range(30):
        job = place.add("flood", queue="ocr", tenant="flood")
        incident.ids[f"flood {number}"] = job.id
    later = place.add("later", available_at=datetime(2100, 1, 1, tzinfo=UTC))
    incident.ids["later"] = later.id


def _leftover_index(incident: Incident) -> None:
    try:
        incident.place.ask(
            "CREATE UNIQUE INDEX CONCURRENTLY job_kind_idx_ccnew ON {s}.job (kind)"
        )
    except psycopg.errors.UniqueViolation:
        return
    raise AssertionError("the index was built")
