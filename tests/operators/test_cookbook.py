"""
Every recipe of docs/operations.md runs, says what it should, and touches nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.embedded import EmbeddedServer
from jobstore.errors import LeaseLost
from jobstore.model import Lease
from tests import servers
from tests.operators.incident import ALIVE, DEAD, Incident, prepare
from tests.operators.support import Rows, open_place

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@dataclass(frozen=True)
class Recipe:
    """
    One fenced block, under the heading it stands below.
    """

    title: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.title} {self.number}"


def _recipes() -> list[Recipe]:
    recipes: list[Recipe] = []
    title = ""
    for part in re.split(r"^(#+ .*)$", PAGE.read_text(), flags=re.MULTILINE):
        if part.startswith("#"):
            title = part.lstrip("# ")
            continue
        blocks = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", part)
        recipes += [
            Recipe(title, number, language, text)
            for number, (language, text) in enumerate(blocks, 1)
        ]
    return recipes


RECIPES = _recipes()


@pytest.fixture
def incident(database: str) -> Iterator[Incident]:
    migrate.upgrade(database)
    for place in open_place(database, "jobstore"):
        made = prepare(place, database)
        yield made
        assert made.report is not None
        made.report.close()


@dataclass
class Tried:
    """
    What a recipe came to.
    """

    incident: Incident
    columns: list[str]
    rows: Rows
    output: str
    code: int
    changed: set[str]
    """Names of jobs that changed in any way."""

    def column(self, name: str) -> list[Any]:
        return [row[self.columns.index(name)] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def names(self) -> set[str]:
        return self.incident.named(set(self.column("id")))


# -- what each must come to ----------------------------------------------------


def doctor(tried: Tried) -> None:
    assert tried.code == 20
    assert "interactive jobs in queue ocr wait" in tried.output
    assert f"hold 2 jobs that no sweep took back: {DEAD}" in tried.output
    assert "index job_kind_idx_ccnew of job is invalid" in tried.output


def since_when(tried: Tried) -> None:
    worst = tried.dicts()[0]
    assert (worst["queue"], worst["job_class"], worst["ready"]) == (
        "ocr",
        "interactive",
        1,
    )
    assert worst["oldest_wait"] > timedelta(minutes=39)
    batch = tried.dicts()[1]
    assert (batch["ready"], batch["running"], batch["expired_leases"]) == (31, 1, 1)


def whose(tried: Tried) -> None:
    assert tried.column("tenant") == ["flood", "acme", "default"]
    assert tried.column("ready") == [30, 2, 0]
    assert tried.column("waiting") == [0, 1, 0]


def flood(tried: Tried) -> None:
    assert tried.rows[0] == ("flood", "flood", 30)


def explained(tried: Tried) -> None:
    said = tried.rows[0][0]
    assert "ready and waits to be claimed, since 40 min" in said
    assert "first in its queue" in said


def in_line(tried: Tried) -> None:
    assert tried.column("place") == [1]
    assert tried.column("kind") == ["waiting longest"]


def anybody(tried: Tried) -> None:
    assert tried.column("worker") == [DEAD, ALIVE]
    assert tried.column("running") == [2, 1]


def connected(tried: Tried) -> None:
    assert "jobstore" in tried.column("application_name")


def what_did_it_do(tried: Tried) -> None:
    did = {(row["what"], row["kind"]) for row in tried.dicts()}
    assert did == {
        ("attempt waiting", None),
        ("completed", "page 1"),
        ("holds", "page 2"),
        ("holds", "held"),
    }


def deploy(tried: Tried) -> None:
    counts = {
        (row["kind"], row["error_code"]): (row["before"], row["after"])
        for row in tried.dicts()
    }
    assert tried.rows[0][0] == "timeout after the deploy"
    assert counts == {
        ("timeout after the deploy", "E_TIMEOUT"): (0, 1),
        ("timeout 1", "E_TIMEOUT"): (1, 0),
        ("timeout 2", "E_TIMEOUT"): (1, 0),
        ("bad input", "E_BAD_INPUT"): (1, 0),
    }


def revision(tried: Tried) -> None:
    assert tried.rows == [(migrate.head(),)]


def revision_command(tried: Tried) -> None:
    assert tried.output.strip() == migrate.head()


def how_long(tried: Tried) -> None:
    by_class = {row["job_class"]: row for row in tried.dicts()}
    assert by_class["batch"]["ready"] == 31
    assert by_class["batch"]["done_in"] is None
    assert by_class["batch"]["new_per_minute"] > by_class["batch"]["done_per_minute"]


def key(tried: Tried) -> None:
    ids = tried.incident.ids
    assert tried.column("job_id") == [ids["waiting longest"]]
    assert tried.column("status") == ["queued"]


def dead_rows(tried: Tried) -> None:
    assert {"job", "payload", "attempt"} <= set(tried.column("table_name"))


def waits_for(tried: Tried) -> None:
    assert tried.columns == ["wait_event_type", "wait_event", "state", "count"]
    assert tried.rows


def snapshot(tried: Tried) -> None:
    report = tried.incident.report
    assert report is not None
    (holder,) = [row for row in tried.dicts() if row["application"] == "monthly report"]
    assert holder["state"] == "idle in transaction"
    tried.incident.place.ask(holder["to_end_it"])
    with pytest.raises(psycopg.OperationalError):
        report.execute("SELECT 1")


def vacuum_late(tried: Tried) -> None:
    assert set(tried.column("late")) == {False}


def vacuumed(tried: Tried) -> None:
    assert tried.incident.place.value(
        "SELECT last_vacuum_at IS NOT NULL FROM {s}.table_health "
        "WHERE table_name = 'job'"
    )


def nobody_blocks(tried: Tried) -> None:
    assert tried.rows == []


def invalid(tried: Tried) -> None:
    assert tried.rows == [("job", ["job_kind_idx_ccnew"])]


def shows_release(tried: Tried) -> None:
    assert tried.names() == {"page 2", "held"}
    assert set(tried.column("becomes")) == {"queued"}


def releases(tried: Tried) -> None:
    shows_release(tried)
    assert tried.changed == {"page 2", "held"}
    store = tried.incident.place.store
    job = store.get(tried.incident.ids["held"])
    assert (job.status, job.attempts, job.fence) == ("queued", 0, 1)
    with pytest.raises(LeaseLost):
        store.complete(Lease(job.id, 1))


def shows_retry(tried: Tried) -> None:
    assert tried.names() == {"timeout 1", "timeout 2", "timeout after the deploy"}


def retries(tried: Tried) -> None:
    shows_retry(tried)
    assert tried.changed == tried.names()


def requeues(tried: Tried) -> None:
    assert tried.names() == tried.changed == {"bad input"}
    job_id = tried.incident.ids["bad input"]
    assert tried.incident.place.store.get(job_id).status == "queued"
    assert tried.incident.place.store.payload(job_id).data == b"scan"


def shows_cancel(tried: Tried) -> None:
    assert tried.names() == {"parent", "page 2", "page 3"}


def cancels(tried: Tried) -> None:
    shows_cancel(tried)
    # The page that had completed keeps its result.
    assert tried.changed == {"parent", "page 2", "page 3"}
    parent = tried.incident.place.store.get(tried.incident.ids["parent"])
    assert (parent.status, parent.error_message) == ("cancelled", "ticket 4711")


def audit(tried: Tried) -> None:
    # Nobody has done anything yet.
    assert tried.columns == ["at", "who", "action", "reason", "jobs", "first"]
    assert tried.rows == []


def shows_prune(tried: Tried) -> None:
    assert [row[:2] for row in tried.rows] == [("completed", 2)]


def prunes(tried: Tried) -> None:
    assert tried.changed == {"ancient parent", "ancient child"}
    assert tried.output.strip() == "2 jobs deleted"


def log_settings(tried: Tried) -> None:
    assert len(tried.rows) == 5


def table_settings(tried: Tried) -> None:
    assert ("job", "fillfactor=80") in [(row[0], row[1][0]) for row in tried.rows]


def connection_counts(tried: Tried) -> None:
    assert "monthly report" in tried.column("application_name")


def dumped(tried: Tried) -> None:
    assert tried.code == 0


CHECKS: dict[tuple[str, int], Callable[[Tried], None]] = {
    ("What is stuck?", 1): doctor,
    ("Since when, in which queue and class?", 1): since_when,
    ("Whose is it?", 1): whose,
    ("Which tenant floods us?", 1): flood,
    ("Why is this job not running?", 1): explained,
    ("Where in line is it?", 1): in_line,
    ("Is anybody working?", 1): anybody,
    ("Is anybody working?", 2): connected,
    ("What did worker X do?", 1): what_did_it_do,
    ("Did the deploy break it?", 1): deploy,
    ("Which revision is the schema at?", 1): revision,
    ("Which revision is the schema at?", 2): revision_command,
    ("How long until the backlog is done?", 1): how_long,
    ("Is this idempotency key in use?", 1): key,
    ("Why is it slow?", 1): dead_rows,
    ("Why is it slow?", 2): waits_for,
    ("Who holds the oldest snapshot?", 1): snapshot,
    ("Is vacuum keeping up?", 1): vacuum_late,
    ("Is vacuum keeping up?", 2): vacuumed,
    ("Who blocks the claim?", 1): nobody_blocks,
    ("Are there invalid indexes?", 1): invalid,
    ("Give back the jobs of a dead worker", 1): shows_release,
    ("Give back the jobs of a dead worker", 2): releases,
    ("Retry yesterday's failures", 1): shows_retry,
    ("Retry yesterday's failures", 2): retries,
    ("Run one job again", 1): requeues,
    ("Cancel a job and its family", 1): shows_cancel,
    ("Cancel a job and its family", 2): cancels,
    ("Who did what by hand?", 1): audit,
    ("What will prune delete?", 1): shows_prune,
    ("What will prune delete?", 2): prunes,
    ("Settings of the server", 1): log_settings,
    ("Settings of the server", 2): table_settings,
    ("Settings of the server", 3): connection_counts,
    ("Backup and restore", 1): dumped,
}

CHANGING = {releases, retries, requeues, cancels, prunes}


def test_every_recipe_is_checked() -> None:
    assert [(one.title, one.number) for one in RECIPES] == list(CHECKS)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_recipe(recipe: Recipe, incident: Incident, tmp_path: Path) -> None:
    check = CHECKS[recipe.title, recipe.number]
    before = incident.rows()
    text = re.sub(r"<([a-z ]+)>", lambda word: incident.words()[word[1]], recipe.text)
    tried = Tried(incident, [], [], "", 0, set())
    if recipe.language == "sql":
        cursor = incident.place.connection.execute(text.encode())
        tried.columns = [column.name for column in cursor.description or ()]
        tried.rows = cursor.fetchall() if cursor.description else []
    else:
        tried.code, tried.output = run_shell(text, incident.dsn, tmp_path)
    after = incident.rows()
    tried.changed = incident.named(
        {job_id for job_id in before if before[job_id] != after.get(job_id)}
    )
    assert set(after) <= set(before)
    if check not in CHANGING:
        assert tried.changed == set()
    audited = incident.place.value("SELECT count(*) FROM {s}.audit")
    assert audited == (check in CHANGING - {prunes})
    check(tried)


def run_shell(text: str, dsn: str, folder: Path) -> tuple[int, str]:
    """
    Run a recipe with `jobstore` being this one, and pg_dump one that is new enough.
    """
    program = folder / "jobstore"
    program.write_text(f"#!{sys.executable}\nfrom jobstore.cli import main\nmain()\n")
    program.chmod(0o755)
    url = make_url(dsn).set(drivername="postgresql")
    environment = {
        **os.environ,
        "JOBSTORE_DSN": url.render_as_string(hide_password=False),
        "PATH": f"{folder}:{programs()}:{os.environ['PATH']}",
        "PYTHONPATH": str(PAGE.parents[1]),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", text],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def programs() -> str:
    """
    Find the newest programs of PostgreSQL at hand: those of the embedded server.
    """
    return str(EmbeddedServer(Path("unused")).binaries.folder)


def test_who_blocks_the_claim(incident: Incident) -> None:
    """
    An ALTER TABLE that waits for a reader, and a claim that waits for that.
    """
    (recipe,) = [one for one in RECIPES if one.title == "Who blocks the claim?"]
    with (
        servers.connect(incident.dsn) as reader,
        servers.connect(incident.dsn) as changer,
    ):
        reader.execute("SET application_name = 'reader'")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobstore.job")
        changer.execute("SET application_name = 'changer'")

        def change() -> None:
            try:
                changer.execute("ALTER TABLE jobstore.job SET (fillfactor = 80)")
                changer.execute("LOCK TABLE jobstore.job")
            except psycopg.Error:
                return

        def lock() -> None:
            changer.execute("BEGIN")
            change()

        thread = threading.Thread(target=lock)
        thread.start()
        for _ in range(100_000):
            rows = incident.place.ask(recipe.text)
            if rows:
                break
        waiting = rows[0]
        assert (waiting[1], waiting[4]) == ("changer", "reader")
        assert waiting[3] == reader.info.backend_pid
        incident.place.ask("SELECT pg_cancel_backend(%s)", waiting[0])
        thread.join()
        assert incident.place.ask(recipe.text) == []


def test_the_json_of_the_doctor_is_for_alerting(
    incident: Incident, tmp_path: Path
) -> None:
    code, output = run_shell("jobstore doctor --json", incident.dsn, tmp_path)
    assert code == 20
    assert json.loads(output)["status"] == "critical"


def test_the_page_names_what_there_is(incident: Incident) -> None:
    """
    Names in running text are right too.
    """
    words = set(re.findall(r"`(?:jobstore\.)?([a-z_]+)`", PAGE.read_text()))
    known = {
        name
        for (name,) in incident.place.ask("""
            SELECT relname::text FROM pg_class
            UNION SELECT proname FROM pg_proc
            UNION SELECT attname FROM pg_attribute
            UNION SELECT name FROM pg_settings
            UNION SELECT rolname FROM pg_roles
        """)
    }
    own = {
        "deploy",
        "jobstore",
        "psql",
        "pg_dump",
        "prune",
        "pool_size",
        "wake_ups",
        "terse",
    }
    in_recipes = set(re.findall(r"\w+", " ".join(one.text for one in RECIPES)))
    assert words - known - own - in_recipes <= {"on", "failed_before"}


def test_pg_dump_is_there() -> None:
    assert shutil.which("pg_dump", path=programs())
