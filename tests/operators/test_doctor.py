"""
The doctor finds what was provoked, and says what to do. Healthy is silent.
"""

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.cli import main
from jobstore.doctor import CHECKS, Finding, Severity, Thresholds, examine
from jobstore.doctor import server as server_checks
from jobstore.doctor.look import looking
from jobstore.embedded import EmbeddedServer
from jobstore.errors import InvalidInput, StoreUnavailable
from jobstore.lifecycle import JobClass
from tests import servers
from tests.operators.support import Place

INSTANT = timedelta(microseconds=1)
USUAL = Thresholds()
EAGER = Thresholds(snapshot=INSTANT, lock_wait=INSTANT, slot_bytes=1)


def found(
    dsn: str, check: str, *, schema: str = "jobstore", thresholds: Thresholds = EAGER
) -> list[Finding]:
    """
    Run one check.
    """
    (chosen,) = [one for one in CHECKS if one.name == check]
    with looking(dsn, schema, thresholds) as look:
        return list(chosen.run(look))


def told(
    place: Place, dsn: str, check: str, thresholds: Thresholds = USUAL
) -> list[tuple[str, str]]:
    """
    Run one check; return subject and severity of what it found.
    """
    findings = found(dsn, check, schema=place.schema, thresholds=thresholds)
    assert all(finding.advice and finding.message for finding in findings)
    return [(finding.subject, str(finding.severity)) for finding in findings]


# -- the queue -----------------------------------------------------------------


def test_healthy_work_is_no_finding(place: Place, dsn: str) -> None:
    for _ in range(3):
        place.add(payload=b"work")
    place.claim()
    place.add("later", available_at=datetime(2100, 1, 1, tzinfo=UTC))
    place.add("parent", queue="families")
    place.fan_out(place.claim(queue="families"), ["child"])
    report = examine(dsn, schema=place.schema)
    # What the server of the tests is set to, and others' sessions, is not ours.
    ours = {"revision", "tables", "indexes", "waits", "leases", "overdue", "families"}
    assert {report.checks[name] for name in ours | {"rows", "bloat"}} == {Severity.OK}


@pytest.mark.parametrize(
    ("job_class", "limit"),
    [("interactive", 30), ("system", 300), ("batch", 3600)],
)
def test_waits(place: Place, dsn: str, job_class: str, limit: int) -> None:
    job = place.add(job_class=JobClass(job_class))
    place.age(job.id, updated_at=timedelta(seconds=limit - 20))
    assert told(place, dsn, "waits") == []
    place.age(job.id, updated_at=timedelta(seconds=20))
    assert told(place, dsn, "waits") == [(f"default/{job_class}", "warning")]
    place.age(job.id, updated_at=timedelta(seconds=3 * limit))
    assert told(place, dsn, "waits") == [(f"default/{job_class}", "critical")]


def test_waits_says_whether_anybody_works(place: Place, dsn: str) -> None:
    for _ in range(2):
        job = place.add()
    place.age(job.id, updated_at=timedelta(days=1))
    (finding,) = found(dsn, "waits", schema=place.schema)
    assert "start workers" in finding.advice
    place.claim()
    (finding,) = found(dsn, "waits", schema=place.schema)
    assert "add workers" in finding.advice


def test_leases(place: Place, dsn: str) -> None:
    place.add()
    place.add()
    dead = place.claim("dead")
    long = place.claim("long", lease=timedelta(hours=1))
    for claim in (dead, long):
        place.silence(claim.job.id, 170)
    assert told(place, dsn, "leases") == []
    for claim in (dead, long):
        place.silence(claim.job.id, 20)
    assert told(place, dsn, "leases") == [("dead", "warning")]
    place.silence(dead.job.id, 3600)
    assert told(place, dsn, "leases") == [("dead", "critical")]


def test_overdue(place: Place, dsn: str) -> None:
    job = place.add(available_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert told(place, dsn, "overdue") == []
    place.ask(
        "UPDATE {s}.job SET available_at = now() - interval '4 min' WHERE id = %s",
        job.id,
    )
    assert told(place, dsn, "overdue") == [("default", "warning")]


def test_families(place: Place, dsn: str) -> None:
    place.add("parent")
    parent = place.claim()
    (child,) = place.fan_out(parent, ["child"])
    assert told(place, dsn, "families") == []
    place.ask("DELETE FROM {s}.job WHERE id = %s", child.id)
    assert told(place, dsn, "families") == [(parent.job.id, "warning")]
    place.store.repair_families()
    assert told(place, dsn, "families") == []


def test_rows(place: Place, dsn: str) -> None:
    job = place.add(max_attempts=1)
    assert told(place, dsn, "rows") == []
    place.ask("DELETE FROM {s}.payload")
    assert told(place, dsn, "rows") == [("payload", "warning")]
    place.ask("UPDATE {s}.job SET attempts = 1")
    assert told(place, dsn, "rows") == []
    place.age(job.id, updated_at=timedelta(minutes=4))
    assert told(place, dsn, "rows") == [("exhausted", "warning")]


def test_lock_waits(place: Place, dsn: str) -> None:
    table = f'"{place.schema}".job'
    with servers.connect(dsn) as reader, servers.connect(dsn) as waiter:
        reader.execute("BEGIN")
        reader.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
        waiter.execute("BEGIN")
        pid = waiter.info.backend_pid

        def wait() -> None:
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                waiter.execute(f"LOCK TABLE {table}".encode())

        thread = threading.Thread(target=wait)
        thread.start()
        _until(
            place,
            "SELECT count(*) FROM pg_locks WHERE pid = %s AND waitstart IS NOT NULL",
            pid,
        )
        (finding,) = found(dsn, "lock_waits", schema=place.schema)
        assert finding.figures["pid"] == pid
        assert finding.figures["blockers"] == str(reader.info.backend_pid)
        place.ask(finding.advice[finding.advice.index("SELECT") :])
        thread.join()
        assert found(dsn, "lock_waits", schema=place.schema) == []


# -- vacuum --------------------------------------------------------------------


def _touch_twice(place: Place, jobs: int) -> None:
    place.ask("ALTER TABLE {s}.job SET (autovacuum_enabled = off)")
    place.ask(
        f"INSERT INTO {{s}}.job (kind) SELECT 'k' FROM generate_series(1, {jobs})"
    )
    place.ask("UPDATE {s}.job SET queue = 'x'")
    place.ask("UPDATE {s}.job SET queue = 'y'")
    place.ask("SELECT pg_stat_force_next_flush()")
    place.ask("SELECT 1")


def test_dead_rows(fresh_place: Place, dsn: str) -> None:
    place = fresh_place
    _touch_twice(place, 1500)
    # Turned off, and over twice the 1,000 at which autovacuum would have come.
    assert told(place, dsn, "dead_rows") == [("job", "critical"), ("job", "warning")]
    place.ask("ALTER TABLE {s}.job RESET (autovacuum_enabled)")
    place.ask("VACUUM {s}.job")
    place.ask("SELECT pg_stat_force_next_flush()")
    assert told(place, dsn, "dead_rows") == []


def test_bloat(fresh_place: Place, dsn: str) -> None:
    place = fresh_place
    _touch_twice(place, 3000)
    small = Thresholds(bloat_bytes=100_000)
    assert told(place, dsn, "bloat", small) == []
    place.ask(
        "DELETE FROM {s}.job WHERE ctid NOT IN (SELECT ctid FROM {s}.job LIMIT 9)"
    )
    assert told(place, dsn, "bloat") == []
    assert told(place, dsn, "bloat", small) == [("job_ready_idx", "warning")]
    (finding,) = found(dsn, "bloat", schema=place.schema, thresholds=small)
    place.ask(finding.advice[finding.advice.index("REINDEX") :])
    assert told(place, dsn, "bloat", small) == []


def test_snapshots_and_idle_transactions(place: Place, dsn: str) -> None:
    with servers.connect(dsn) as idle:
        subject = f"backend {idle.info.backend_pid}"
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")
        for check in ("snapshots", "idle_transactions"):
            assert subject in dict(told(place, dsn, check, EAGER))
            assert subject not in dict(told(place, dsn, check))
        idle.execute("ROLLBACK")
        for check in ("snapshots", "idle_transactions"):
            assert subject not in dict(told(place, dsn, check, EAGER))


# -- the structure -------------------------------------------------------------


def test_revision(dsn: str, empty_schema: str) -> None:
    def grades() -> list[Severity]:
        return [one.severity for one in found(dsn, "revision", schema=empty_schema)]

    assert grades() == [Severity.CRITICAL]
    report = examine(dsn, schema=empty_schema)
    assert report.checks["waits"] is None
    assert report.revision is None
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    assert grades() == [Severity.CRITICAL]
    migrate.upgrade(dsn, schema=empty_schema)
    assert grades() == []
    with servers.connect(dsn) as connection:
        connection.execute(
            f"UPDATE {empty_schema}.jobstore_version SET version_num = '9999'".encode()
        )
    assert grades() == [Severity.CRITICAL]


def test_an_old_schema_is_examined_as_far_as_it_goes(
    dsn: str, empty_schema: str
) -> None:
    migrate.upgrade(dsn, schema=empty_schema, revision="0001")
    report = examine(dsn, schema=empty_schema)
    assert report.checks["revision"] is Severity.CRITICAL
    (finding,) = [one for one in report.findings if one.check == "waits"]
    assert finding.message.startswith("could not be checked: ")


def test_missing_columns_and_constraints(fresh_place: Place, dsn: str) -> None:
    place = fresh_place
    assert told(place, dsn, "tables") == []
    place.ask("ALTER TABLE {s}.job DROP COLUMN pages")
    place.ask("ALTER TABLE {s}.attempt DROP CONSTRAINT attempt_job_fkey")
    place.ask(
        "ALTER TABLE {s}.attempt ADD CONSTRAINT attempt_job_fkey "
        "FOREIGN KEY (job_id) REFERENCES {s}.job (id) NOT VALID"
    )
    findings = found(dsn, "tables", schema=place.schema)
    assert [one.message for one in findings] == [
        "table job lacks pages",
        "constraint attempt.attempt_job_fkey is changed",
    ]


def test_what_else_was_changed_by_hand(fresh_place: Place, dsn: str) -> None:
    place = fresh_place
    place.ask("DROP VIEW {s}.stale")
    place.ask("ALTER FUNCTION {s}.explain_job(text) VOLATILE SECURITY DEFINER")
    place.ask("ALTER TABLE {s}.job RESET (fillfactor)")
    assert dict(told(place, dsn, "tables")) == {
        "stale": "critical",
        "explain_job(text)": "warning",
        "job": "note",
    }


def test_indexes(fresh_place: Place, dsn: str) -> None:
    place = fresh_place
    assert told(place, dsn, "indexes") == []
    place.add()
    place.add()
    with pytest.raises(psycopg.errors.UniqueViolation):
        place.ask(
            "CREATE UNIQUE INDEX CONCURRENTLY job_ready_idx_ccnew ON {s}.job (kind)"
        )
    place.ask("DROP INDEX {s}.job_failed_idx")
    place.ask("DROP INDEX {s}.job_waiting_idx")
    with pytest.raises(psycopg.errors.UniqueViolation):
        place.ask("CREATE UNIQUE INDEX CONCURRENTLY job_waiting_idx ON {s}.job (kind)")
    assert told(place, dsn, "indexes") == [
        ("job_ready_idx_ccnew", "warning"),
        ("job_waiting_idx", "critical"),
        ("job_failed_idx", "critical"),
    ]
    leftover = found(dsn, "indexes", schema=place.schema)[0]
    place.ask(leftover.advice[leftover.advice.index("DROP") :])
    assert "job_ready_idx_ccnew" not in dict(told(place, dsn, "indexes"))


# -- the server ----------------------------------------------------------------


def test_version(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(dsn, "version") == []
    monkeypatch.setattr(server_checks, "_OLDEST_TESTED", 990000)
    assert [one.severity for one in found(dsn, "version")] == [Severity.WARNING]


def test_connections(dsn: str) -> None:
    assert found(dsn, "connections") == []
    few = Thresholds(connections=0.001)
    (finding,) = found(dsn, "connections", thresholds=few)
    assert finding.severity is Severity.WARNING


def test_wraparound(dsn: str) -> None:
    assert found(dsn, "wraparound") == []
    (finding,) = found(dsn, "wraparound", thresholds=Thresholds(transaction_age=1))
    assert finding.severity is Severity.CRITICAL


@pytest.mark.parametrize("ahead", [-3600, -30, 0, 30, 3600])
def test_clock(dsn: str, ahead: int) -> None:
    with looking(dsn, "jobstore", Thresholds()) as look:
        off = replace(look, wall_clock=lambda: time.time() + ahead)
        findings = list(server_checks.clock(off))
    if not ahead:
        assert findings == []
        return
    (finding,) = findings
    assert finding.figures["ahead_seconds"] == pytest.approx(ahead, abs=2)
    assert ("ahead of" if ahead > 0 else "behind") in finding.message


@pytest.fixture
def plain_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """
    Start a server whose settings can be altered: few come with its start.
    """
    choice = servers.choose()
    is_chosen = choice.kind is servers.Kind.PROGRAMS
    server = EmbeddedServer(
        tmp_path / "postgresql",
        settings={"max_prepared_transactions": "5"},
        bin_dir=Path(choice.value) if is_chosen else None,
    ).start()
    yield server
    server.stop()


@pytest.mark.postgres
def test_settings_slots_and_prepared_transactions(plain_server: EmbeddedServer) -> None:
    """
    What only a server of one's own can be made to show.
    """
    dsn = plain_server.admin_dsn
    migrate.upgrade(dsn)

    def subjects(check: str) -> set[str]:
        return {one.subject for one in found(dsn, check)}

    with servers.connect(dsn) as admin:
        _set(admin, fsync="on", full_page_writes="on", autovacuum="on")
        assert subjects("settings") == set()
        bad = {
            "fsync": "off",
            "full_page_writes": "off",
            "autovacuum": "off",
            "track_counts": "off",
            "synchronous_commit": "off",
            "default_transaction_read_only": "on",
        }
        for name, value in bad.items():
            _set(admin, **{name: value})
            assert subjects("settings") == {name}
            _set(admin, **{name: "off" if value == "on" else "on"})
        admin.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        assert subjects("slots") == {"forgotten"}
        (finding,) = found(dsn, "slots")
        admin.execute(finding.advice[finding.advice.index("SELECT") :].encode())
        assert subjects("slots") == set()
        admin.execute("BEGIN")
        admin.execute("INSERT INTO jobstore.job (kind) VALUES ('k')")
        admin.execute("PREPARE TRANSACTION 'half done'")
        assert subjects("snapshots") == {"half done"}
        (finding,) = found(dsn, "snapshots")
        admin.execute(finding.advice[finding.advice.index("ROLLBACK") :].encode())
        assert subjects("snapshots") == set()


def _set(admin: "psycopg.Connection[Any]", **settings: str) -> None:
    for name, value in settings.items():
        admin.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
    admin.execute("SELECT pg_reload_conf()")
    for name, value in settings.items():
        # The postmaster has taken it over when a new session starts with it; this
        # one follows by itself at its next statement.
        for _ in range(100_000):
            if admin.execute(f"SHOW {name}".encode()).fetchone() == (value,):
                break
        else:
            raise AssertionError(f"{name} did not become {value}")


@pytest.fixture
def pgbouncer(dsn: str, tmp_path: Path) -> Iterator[Any]:
    """
    Start poolers before the server of this run, by pool mode.
    """
    program = shutil.which("pgbouncer") or shutil.which(
        "pgbouncer", path="/usr/sbin:/usr/local/sbin"
    )
    if program is None:
        pytest.skip("pgbouncer is not installed")
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        url = make_url(dsn)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        host = url.host or url.query.get("host")
        settings = tmp_path / f"{mode}.ini"
        login = f"user={url.username}" + (
            f" password={url.password}" if url.password else ""
        )
        settings.write_text(
            f"""
            [databases]
            * = host={host} port={url.port or url.query.get("port") or 5432} {login}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {port}
            auth_type = any
            pool_mode = {mode}
            unix_socket_dir =
            {_account(str(host))}
            """.replace("            ", "")
        )
        running.append(subprocess.Popen([program, "-q", str(settings)]))
        pooled = f"postgresql://{url.username}@127.0.0.1:{port}/{url.database}"
        for _ in range(1000):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(pooled).close()
                return pooled
        raise AssertionError("the pooler never answered")

    yield start
    for process in running:
        process.terminate()
        process.wait()


def _account(host: str) -> str:
    """
    Name an account for a pooler started by root that may enter the socket's folder.
    """
    if os.geteuid() != 0:
        return ""
    owner = Path(host).stat().st_uid if host.startswith("/") else 65534
    return f"user = {pwd.getpwuid(owner).pw_name}"


def test_pooler(dsn: str, pgbouncer: Any) -> None:
    assert found(dsn, "pooler") == []
    for mode in ("transaction", "session"):
        (finding,) = found(pgbouncer(mode), "pooler")
        assert (finding.subject, finding.severity) == (mode, Severity.NOTE)


# -- the whole -----------------------------------------------------------------


def test_the_shape_of_the_report(place: Place, dsn: str) -> None:
    """
    Keys are added, never renamed or removed: alerts are built on them.
    """
    job = place.add(job_class=JobClass.INTERACTIVE)
    place.age(job.id, updated_at=timedelta(seconds=60))
    data = json.loads(json.dumps(examine(dsn, schema=place.schema).as_dict()))
    assert list(data) == [
        "shape",
        "status",
        "schema",
        "server_version",
        "revision",
        "expected_revision",
        "checked_at",
        "checks",
        "findings",
    ]
    assert data["shape"] == 1
    assert datetime.fromisoformat(data["checked_at"]).tzinfo is not None
    assert list(data["checks"]) == [
        "version",
        "settings",
        "connections",
        "wraparound",
        "clock",
        "pooler",
        "revision",
        "tables",
        "indexes",
        "dead_rows",
        "bloat",
        "snapshots",
        "idle_transactions",
        "slots",
        "lock_waits",
        "waits",
        "leases",
        "overdue",
        "families",
        "rows",
    ]
    (finding,) = [one for one in data["findings"] if one["check"] == "waits"]
    seconds = finding["figures"]["seconds"]
    assert 60 <= seconds < 120
    assert finding == {
        "check": "waits",
        "severity": "warning",
        "subject": "default/interactive",
        "message": "interactive jobs in queue default wait for up to "
        f"{seconds} s (1 ready, 0 running)",
        "advice": "Nobody works on this queue: start workers for it.",
        "figures": {"seconds": seconds, "ready": 1, "running": 0},
    }


def test_findings_come_worst_first(place: Place, dsn: str) -> None:
    job = place.add()
    place.age(job.id, updated_at=timedelta(days=1))
    place.ask("DELETE FROM {s}.payload")
    report = examine(dsn, schema=place.schema)
    grades = [list(Severity).index(one.severity) for one in report.findings]
    assert grades == sorted(grades, reverse=True)
    assert report.exit_code == 20


def test_what_it_may_not_see_is_a_finding(place: Place, dsn: str) -> None:
    with servers.created_role(dsn) as weak:
        role = make_url(weak).username
        place.ask(f'GRANT USAGE ON SCHEMA {{s}} TO "{role}"')
        place.ask(f'GRANT SELECT ON {{s}}.jobstore_version TO "{role}"')
        report = examine(weak, schema=place.schema)
        (finding,) = [one for one in report.findings if one.check == "waits"]
        assert "permission denied" in finding.message
        assert report.checks["version"] is Severity.OK
        place.ask(f'GRANT SELECT ON ALL TABLES IN SCHEMA {{s}} TO "{role}"')
        report = examine(weak, schema=place.schema)
        assert not [one for one in report.findings if "permission" in one.message]


def test_it_changes_nothing(place: Place, dsn: str) -> None:
    place.add()
    before = place.ask("SELECT xmin::text, ctid::text, * FROM {s}.job")
    examine(dsn, schema=place.schema)
    assert place.ask("SELECT xmin::text, ctid::text, * FROM {s}.job") == before


def test_a_database_that_is_not_there(dsn: str) -> None:
    url = make_url(dsn).set(database="nowhere", password="hush")  # noqa: S106
    with pytest.raises(StoreUnavailable) as caught:
        examine(url.render_as_string(hide_password=False))
    assert "hush" not in str(caught.value)


def test_thresholds_are_checked() -> None:
    with pytest.raises(InvalidInput):
        Thresholds(wait={JobClass.BATCH: timedelta(hours=1)})
    with pytest.raises(InvalidInput):
        Thresholds(critical_factor=0.5)


# -- the command ---------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, capsys.readouterr().out


def test_the_command_says_the_same(
    place: Place, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = place.add(queue="q[red]\x1b", job_class=JobClass.INTERACTIVE)
    place.age(job.id, updated_at=timedelta(hours=1))
    where = ("--dsn", dsn, "--schema", place.schema)
    code, text = run(capsys, "doctor", *where)
    assert code == 20
    assert "interactive jobs in queue q[red]\N{REPLACEMENT CHARACTER} wait" in text
    assert "Nobody works on this queue: start workers for it." in text
    code, text = run(capsys, "doctor", *where, "--json")
    assert code == 20
    assert json.loads(text)["status"] == "critical"
    patient = [*where, "--json", "--wait-interactive", "2h"]
    _, text = run(capsys, "doctor", *patient)
    assert json.loads(text)["checks"]["waits"] == "ok"


def test_exit_codes_tell_alerts_from_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert {grade.exit_code for grade in Severity} == {0, 10, 20}
    nowhere = "postgresql://nobody@127.0.0.1:1/nowhere"
    assert run(capsys, "doctor", "--dsn", nowhere)[0] == 6


def test_explain_command(
    place: Place, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = place.add()
    where = ("--dsn", dsn, "--schema", place.schema)
    code, text = run(capsys, "explain", job.id, *where)
    assert (code, "It is ready" in text) == (0, True)
    code, text = run(capsys, "explain", job.id.lower(), *where, "--json")
    assert json.loads(text)["id"] == job.id
    assert run(capsys, "explain", "01ARZ3NDEKTSV4RRFFQ69G5FAV", *where)[0] == 3


def _until(place: Place, query: str, *parameters: object) -> None:
    for _ in range(100_000):
        if place.value(query, *parameters):
            return
    raise AssertionError("it never came about")
