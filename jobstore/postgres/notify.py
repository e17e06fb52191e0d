"""
Wake-ups by LISTEN and NOTIFY: a hint that a queue has work, never a promise.

Polling alone finds every job; this only makes it sooner. NOTIFY inside the creating
transaction would take a lock that all notifying commits of the server share, so it is
sent after the commit, from a connection of its own, and once for any number of jobs
that were created in the meantime. The channel belongs to the schema; the message is
the name of the queue.
"""

import contextlib
import hashlib
import logging
import os
import random
import threading
from collections.abc import Callable
from typing import TypeAlias

import psycopg
from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import SQLAlchemyError

from jobstore.postgres.schema import Schema

__all__ = ["Connect", "Listener", "Notifier", "channel_of", "connect_apart"]

Connect: TypeAlias = Callable[[], PoolProxiedConnection]

_log = logging.getLogger("jobstore.notify")

# Jobs created within this time of each other share one NOTIFY.
_COALESCE_SECONDS = 0.01
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
# A connection that died without a word is found out within this time.
_QUIET_SECONDS = 20.0
_SELF_TEST_SECONDS = 5.0
_SELF_TEST = "\x01jobstore-self-test"

_LONGEST_CHANNEL = 63


def channel_of(schema: Schema) -> str:
    """
    Name the channel of *schema*; different schemas never share one.
    """
    name = f"jobstore:{schema.name}"
    if len(name.encode()) <= _LONGEST_CHANNEL:
        return name
    # PostgreSQL refuses longer names; this one can't be mistaken for a short one.
    return f"jobstore#{hashlib.sha256(schema.name.encode()).hexdigest()[:40]}"


def connect_apart(engine: Engine) -> PoolProxiedConnection:
    """
    Make a connection the way *engine* does, and keep it out of its pool.
    """
    connection = engine.raw_connection()
    connection.detach()
    try:
        _driver(connection).autocommit = True
    except psycopg.Error:
        _drop(connection)
        raise
    return connection


class Notifier:
    """
    Sends wake-ups from a thread of its own; never blocks and never raises.

    A wake-up that can't be sent is dropped: workers poll.
    """

    def __init__(self, connect: Connect, channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._condition = threading.Condition()
        self._queues: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False

    def wake(self, queue: str) -> None:
        """
        Have the workers of *queue* look for work.
        """
        if self._pid != os.getpid():
            self._start_over()
        if queue in self._queues:
            # Not sent yet, so it will tell of this job too. Each time that the thread
            # is woken it takes turns with whoever creates jobs here.
            return
        with self._condition:
            if self._closed:
                return
            self._queues.add(queue)
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            self._condition.notify()

    def close(self) -> None:
        """
        Stop, after what is waiting was sent. Twice is fine.
        """
        with self._condition:
            self._closed = True
            thread, self._thread = self._thread, None
            self._condition.notify()
        if thread is not None and self._pid == os.getpid():
            thread.join(timeout=_SELF_TEST_SECONDS)

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="jobstore-notify", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # No more threads, or the interpreter is ending. The job is committed, and
            # its create must say so; the next wake-up tries again.
            _log.warning("wake-ups are not sent: %s", error)
            self._queues.clear()
        else:
            self._thread = thread

    def _start_over(self) -> None:
        # After a fork the thread is gone and the lock may be held by it.
        self._condition = threading.Condition()
        self._queues = set()
        self._thread = None
        self._pid = os.getpid()

    def _run(self) -> None:
        connection: PoolProxiedConnection | None = None
        pause = _FIRST_PAUSE_SECONDS
        try:
            while queues := self._next():
                try:
                    connection = connection or self._connect()
                    _driver(connection).execute(
                        "SELECT pg_notify(%s, queue) FROM unnest(%s::text[]) AS queue",
                        (self._channel, queues),
                    )
                    pause = _FIRST_PAUSE_SECONDS
                    gap = _COALESCE_SECONDS
                except Exception as error:  # noqa: BLE001 - a hint; its thread goes on
                    _tell_of(error, "a wake-up was not sent")
                    _drop(connection)
                    connection = None
                    gap = pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                with self._condition:
                    self._condition.wait_for(lambda: self._closed, timeout=gap)
        finally:
            _drop(connection)

    def _next(self) -> list[str]:
        """
        Wait for queues to tell of; none: it is closed, and all was told.
        """
        with self._condition:
            while not self._queues and not self._closed:
                self._condition.wait()
            queues, self._queues = self._queues, set()
        return sorted(queues)


class Listener:
    """
    Calls back for each wake-up of a schema, from a thread of its own.

    It reconnects by itself, with capped backoff, and calls back with None after each
    reconnect, since wake-ups may have been missed: then look at every queue.
    """

    def __init__(
        self, connect: Connect, channel: str, callback: Callable[[str | None], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._callback = callback
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobstore-listen", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """
        Stop listening. Twice is fine.
        """
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_SELF_TEST_SECONDS)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._closed.is_set():
            connection: PoolProxiedConnection | None = None
            try:
                connection = self._connect()
                pause = _FIRST_PAUSE_SECONDS
                self._listen(_driver(connection))
            except Exception as error:  # noqa: BLE001 - it begins again, whatever it was
                _tell_of(error, "listening broke off")
            finally:
                _drop(connection)
            self._closed.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _tell(self, queue: str | None) -> None:
        try:
            self._callback(queue)
        except BaseException:  # noqa: BLE001 - SystemExit too would end this thread
            _log.exception("a listener of wake-ups raised")

    def _listen(self, connection: psycopg.Connection) -> None:
        name = self._channel.replace('"', '""')
        connection.execute(f'LISTEN "{name}"'.encode())
        self._tell(None)
        # Behind a pooler in transaction mode LISTEN succeeds and nothing ever comes.
        # The message is this listener's own, and tells the two apart.
        connection.execute("SELECT pg_notify(%s, %s)", (self._channel, _SELF_TEST))
        heard_itself = False
        waited = 0.0
        while not self._closed.is_set():
            waited += 1.0
            # All that came at once are given out, before it looks at stop_after.
            for notify in connection.notifies(timeout=1.0, stop_after=1):
                waited = 0.0
                if notify.payload == _SELF_TEST:
                    heard_itself = True
                else:
                    self._tell(notify.payload)
            if waited >= _SELF_TEST_SECONDS and not heard_itself:
                heard_itself = True
                _log.warning(
                    "wake-ups don't arrive (a pooler in transaction mode?); "
                    "jobs are found by polling"
                )
            if waited >= _QUIET_SECONDS:
                connection.execute("SELECT 1")
                waited = 0.0


def _tell_of(error: Exception, what: str) -> None:
    # A database that is away is told by every verb; another error only here.
    is_usual = isinstance(error, (psycopg.Error, SQLAlchemyError, OSError))
    if is_usual:
        _log.debug("%s: %s", what, type(error).__name__)
    else:
        _log.warning("%s", what, exc_info=error)


def _driver(connection: PoolProxiedConnection) -> psycopg.Connection:
    driver: object = connection.dbapi_connection
    assert isinstance(driver, psycopg.Connection), "jobstore speaks through psycopg 3"
    return driver


def _drop(connection: PoolProxiedConnection | None) -> None:
    if connection is not None:
        with contextlib.suppress(psycopg.Error, SQLAlchemyError, OSError):
            connection.close()
