"""
Wake-ups: hints whose threads outlive whatever comes their way.
"""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from jobstore import InvalidInput, NewJob, PostgresStore

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
            store.wake(queue)
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


def test_a_callback_that_raises_hears_the_next_all_the_same(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    ear.raises = ZeroDivisionError()
    with contextlib.closing(store.listen(ear)):
        ear.wait_for(None)
        store.wake("first")
        ear.wait_for("first")
        store.create(NewJob(kind="k", queue="second"))
        ear.wait_for("second")
    assert "ZeroDivisionError" in caplog.text
