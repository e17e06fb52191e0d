"""
One story through store, worker and command line; what is private shows up nowhere.

The mark is in payload, result, idempotency key, a handler's error text and the DSN's
password. It may not be in a log record of any library, in an error, in a repr, or on
stderr. Which commands print which of these on purpose is not asked here.
"""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg import sql
from sqlalchemy import make_url

from jobstore import (
    AsyncContext,
    Attempt,
    Completed,
    Context,
    Failed,
    JobFailed,
    JobStatus,
    JobstoreError,
    NewJob,
    PostgresStore,
    RetryPolicy,
    Worker,
)
from jobstore.cli.options import Target
from jobstore.observe import Event, JobFinished, observed
from jobstore.observe.metrics import Metrics, QueueCollector
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli  # noqa: PLC0414 - a fixture

MARK = "m4rked-as-private"
DATA = MARK.encode()
DEAD = f"postgresql://user:{MARK}@127.0.0.1:1/none?connect_timeout=2"

pytestmark = pytest.mark.postgres


@pytest.fixture
def marked(dsn: str, admin: "psycopg.Connection[tuple[object, ...]]") -> Iterator[str]:
    """
    Give a DSN with the mark as its password.
    """
    name = sql.Identifier("Test marked")
    admin.execute(
        sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(
            name, sql.Literal(MARK)
        )
    )
    url = make_url(dsn).set(username="Test marked", password=MARK)
    yield url.render_as_string(hide_password=False)
    admin.execute(sql.SQL("DROP ROLE {}").format(name))


class Records(logging.Handler):
    """
    All that is logged, by whomever, with its arguments and tracebacks.
    """

    def __init__(self) -> None:
        super().__init__(level=1)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = [record.getMessage(), repr(record.args), record.exc_text or ""]
        if record.exc_info and record.exc_info[1] is not None:
            text += traceback.format_exception(record.exc_info[1])
        self.texts.append(f"{record.name}: " + "\n".join(text))

    def marked(self) -> list[str]:
        return [text for text in self.texts if MARK in text]


@pytest.fixture
def records() -> Iterator[Records]:
    kept = Records()
    root = logging.getLogger()
    before = root.level
    root.addHandler(kept)
    root.setLevel(1)
    yield kept
    root.setLevel(before)
    root.removeHandler(kept)


def text_of(error: BaseException) -> str:
    """
    Write an error as anybody might: with all that it drags along.
    """
    told: list[str] = traceback.format_exception(error, chain=True)
    one: BaseException | None = error
    while one is not None:
        told += [str(one), repr(one), repr(one.args)]
        one = one.__cause__ or one.__context__
    return "\n".join(told)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(JobstoreError) as caught:
        call()
    return text_of(caught.value)


def test_no_error_of_a_store_and_no_repr_tells(
    marked: str, schema: str, records: Records
) -> None:
    store = observed(
        PostgresStore(marked, schema=schema, max_payload_bytes=100),
        Metrics(CollectorRegistry()),
    )
    new = NewJob(kind="k", payload=DATA, idem_key=MARK)
    made = store.create(new)
    other = NewJob(kind="k", payload=b"other", idem_key=MARK)
    told = [
        refused(lambda: store.create(other, strict=True)),
        refused(lambda: store.create_many([other], strict=True)),
        refused(lambda: store.create(NewJob(kind="k", payload=DATA * 100))),
        refused(lambda: NewJob(kind="k", idem_key=MARK * 100)),
        refused(lambda: NewJob(kind="k", idem_key=f"{MARK}\x00")),
        refused(lambda: NewJob(kind="k", payload=MARK)),  # type: ignore[arg-type]
        refused(lambda: Completed(MARK)),  # type: ignore[arg-type]
        refused(lambda: PostgresStore(DEAD).list()),
        refused(lambda: PostgresStore(DEAD.replace("postgresql", "mysql"))),
        refused(lambda: PostgresStore(f"postgresql://u:x@{MARK}@h/d")),
        refused(lambda: QueueCollector(DEAD).read()),
    ]
    claim = store.claim_next()
    assert claim is not None
    told.append(refused(lambda: store.complete(claim.lease, DATA * 100)))
    store.fail(claim.lease, error_code="E", error_message=MARK, retry_in=timedelta(0))
    told.append(refused(lambda: store.complete(claim.lease, DATA)))
    again = store.claim_next()
    assert again is not None
    store.complete(again.lease, DATA)
    (attempt,) = store.attempts(made.job.id)
    assert isinstance(attempt, Attempt)
    assert attempt.error_message == MARK, "the mark does travel"
    assert store.get(made.job.id).result == DATA
    values = [
        new,
        made,
        claim,
        claim.lease,
        store.get(made.job.id),
        store.payload(made.job.id),
        attempt,
        Completed(DATA),
        Failed("E", MARK),
        store,
        store._store,
        store._store._engine,  # type: ignore[attr-defined]
        Target(marked, schema, through_pooler=False),
        Worker(store, {"k": lambda _context: None}),
    ]
    told += [repr(value) for value in values] + [str(value) for value in values]
    store.close()
    assert [text for text in told if MARK in text] == []
    assert records.marked() == []


def test_no_log_of_a_worker_tells(
    marked: str,
    schema: str,
    records: Records,
    admin: "psycopg.Connection[tuple[object, ...]]",
) -> None:
    """
    Handlers fail in each way there is, and the database goes away under one of them.
    """
    events: list[Event] = []
    changed = threading.Condition()
    contexts: list[str] = []

    def listener(event: Event) -> None:
        with changed:
            events.append(event)
            changed.notify_all()

    def ends() -> int:
        return sum(isinstance(event, JobFinished) for event in events)

    plain = PostgresStore(
        marked, schema=schema, max_payload_bytes=100, retry=RetryPolicy(jitter=0)
    )
    store = observed(plain, listener)

    def completes(context: Context) -> bytes:
        contexts.append(repr(context))
        return context.payload().data

    def raises(_context: Context) -> None:
        raise RuntimeError(MARK) from ValueError(MARK)

    async def raises_later(context: AsyncContext) -> None:
        contexts.append(repr(context))
        raise JobFailed("E", MARK, final=True)

    def returns_too_much(_context: Context) -> bytes:
        return DATA * 100

    def returns_nonsense(_context: Context) -> Any:
        return MARK

    def loses_the_database(_context: Context) -> bytes:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'Test marked'"
        )
        return DATA

    handlers: dict[str, Any] = {
        "completes": completes,
        "raises": raises,
        "raises_later": raises_later,
        "returns_too_much": returns_too_much,
        "returns_nonsense": returns_nonsense,
        "loses_the_database": loses_the_database,
    }
    jobs = [
        plain.create(
            NewJob(kind=kind, payload=DATA, idem_key=f"{MARK} {kind}", max_attempts=1)
        ).job.id
        for kind in handlers
    ]
    worker = Worker(store, handlers, poll_every=timedelta(milliseconds=50))
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        with changed:
            assert changed.wait_for(lambda: ends() >= len(handlers), 60), events
    finally:
        worker.stop()
        running.join(30)
    statuses = [plain.get(job_id).status for job_id in jobs]
    messages = [plain.get(job_id).error_message or "" for job_id in jobs]
    store.close()
    assert statuses.count(JobStatus.COMPLETED) == 2
    assert sum(MARK in message for message in messages) == 2, "kept with the job"
    assert any("broke off" in text for text in records.texts), "it was told of"
    assert records.marked() == []
    assert MARK not in repr(events)
    assert MARK not in "".join(contexts)


def test_the_command_line_does_not_tell(
    cli: Cli,
    marked: str,
    records: Records,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    other = tmp_path / "other"
    other.write_bytes(b"other")
    monkeypatch.setenv("JOBSTORE_DSN", marked)
    shell = f"echo {MARK} >&2; cat >/dev/null; exit 65"
    submit = ("submit", "--kind", "k", "--key", MARK)
    job_id = cli.ok(*submit, str(file)).out.split()[0]
    told = [cli("-v", *submit, "--strict", str(other)).err]
    told.append(cli("-v", "work", "--until-empty", "--", "sh", "-c", shell).err)
    ended = cli.ok("show", job_id, "--json")
    assert ended.json["job"]["status"] == "failed"
    assert MARK in ended.out, "the message is kept with the job"
    for command in (
        ["show", job_id],
        ["explain", job_id],
        ["list"],
        ["requeue", job_id],
        ["result", job_id],
        ["stats"],
        ["doctor"],
        ["migrate", "check"],
        ["metrics", "--once"],
        ["cancel", job_id],
    ):
        ran = cli("-v", *command)
        told.append(ran.err)
        if command[0] not in {"show", "explain"}:  # which say why it failed
            told.append(ran.out)
    monkeypatch.setenv("JOBSTORE_DSN", DEAD)
    for command in (
        ["list"],
        ["stats", "--json"],
        ["doctor"],
        ["migrate", "up"],
        ["migrate", "check"],
        ["metrics", "--once"],
        ["work", "--until-empty", "--", "true"],
        ["grants", "--apply"],
    ):
        ran = cli("-v", *command)
        assert ran.code == 6, (command, ran.code, ran.err)
        told += [ran.err, ran.out]
    assert [text for text in told if MARK in text] == []
    assert records.marked() == []


def _fails() -> None:
    try:
        int(MARK)
    except ValueError:
        logging.getLogger("jobstore.tests").exception("it failed")
        raise LookupError("other") from None


def test_what_is_told_would_be_found(records: Records) -> None:
    """
    The net itself: an argument, a traceback, a context that is hidden but there.
    """
    logging.getLogger("jobstore.tests").debug("something %s", MARK)
    with pytest.raises(LookupError, match="other") as caught:
        _fails()
    assert len(records.marked()) == 2
    assert MARK in text_of(caught.value)
