"""
Wake-ups: hints whose threads outlive whatever comes their way.
"""

import contextlib
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy

from jobstore import InvalidInput, NewJob, PostgresStore
from jobstore.postgres.notify import Notifier, channel_of, connect_apart
from jobstore.postgres.schema import Schema

PATIENCE_SECONDS = 30


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    with contextlib.closing(PostgresStore(dsn, schema=schema)) as made:
        yield made


class Ear:
    """
    A callback that notes what it hears, and raises what it is told to.
    """

    def __init__(self) -> None:
        self.raises: BaseException | None = None
        self._heard: list[str | None] = []
        self._changed = threading.Condition()

    def __call__(self, queue: str | None) -> None:
        with self._changed:
            self._heard.append(queue)
            self._changed.notify()
        if self.raises is not None:
            raise self.raises

    def wait_for(self, queue: str | None) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: queue in self._heard, timeout=PATIENCE_SECONDS
            )


@pytest.mark.parametrize("queue", [5, None, "", "a\x00", "x" * 129])
def test_what_is_no_queue_is_refused_and_the_next_is_told(
    store: PostgresStore, queue: str
) -> None:
    ear = Ear()
    with contextlib.closing(store.listen(ear)):
        ear.wait_for(None)
        with pytest.raises(InvalidInput) as refused:
            store.wake("bad", queue)
        assert refused.value.field == "queue"
        store.wake("good")
        ear.wait_for("good")


def test_wake_ups_that_come_at_once_are_all_heard(store: PostgresStore) -> None:
    ear = Ear()
    names = [f"queue-{n}" for n in range(50)]
    with contextlib.closing(store.listen(ear)):
        ear.wait_for(None)
        store.create_many([NewJob(kind="k", queue=name) for name in names])
        for name in names:
            ear.wait_for(name)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_callback_that_raises_hears_the_next_all_the_same(
    store: PostgresStore,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
) -> None:
    ear = Ear()
    ear.raises = error()
    with contextlib.closing(store.listen(ear)):
        ear.wait_for(None)
        store.wake("first")
        ear.wait_for("first")
        store.create(NewJob(kind="k", queue="second"))
        ear.wait_for("second")
    assert error.__name__ in caplog.text


def test_without_a_thread_a_job_is_created_and_the_next_is_told(
    store: PostgresStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ear = Ear()

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with contextlib.closing(store.listen(ear)):
        ear.wait_for(None)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            assert store.create(NewJob(kind="k", queue="untold")).created
        assert "can't start new thread" in caplog.text
        store.create(NewJob(kind="k", queue="told"))
        ear.wait_for("told")


# What ends the thread is meant to be seen by nobody else.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_followed_by_another(
    dsn: str, schema: str, store: PostgresStore
) -> None:
    engine = sqlalchemy.create_engine(dsn)
    threads: list[threading.Thread] = []

    def connect() -> sqlalchemy.PoolProxiedConnection:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise SystemExit
        return connect_apart(engine)

    notifier = Notifier(connect, channel_of(Schema(schema)))
    ear = Ear()
    with contextlib.closing(store.listen(ear)), contextlib.closing(notifier):
        ear.wait_for(None)
        notifier.wake("lost with its thread")
        while not threads:
            threading.Event().wait(0.01)
        threads[0].join()
        notifier.wake("good")
        ear.wait_for("good")
    engine.dispose()
