"""
What all ways to run a verb share: settings, calls, and what to do when one fails.
"""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from jobstore.errors import (
    InvalidInput,
    JobstoreError,
    OutcomeUnknown,
    SchemaError,
    StoreUnavailable,
)
from jobstore.model import Completed, Lease, Outcome, check_count
from jobstore.postgres import window
from jobstore.postgres.calls import Calls
from jobstore.postgres.engine import Limits
from jobstore.postgres.floor import ClaimFloor
from jobstore.postgres.notify import channel_of
from jobstore.postgres.schema import Schema
from jobstore.postgres.session import Call, Driver, Executor, Rules, Session
from jobstore.postgres.translate import fault_of, translate
from jobstore.postgres.watchdog import Watch, unwatch, watch
from jobstore.retry import RetryPolicy

__all__ = ["Core", "Tries", "only_completions"]

T = TypeVar("T")

_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.01

# PostgreSQL refuses a value of 1 GB; hex and protocol overhead come on top.
_LARGEST_PAYLOAD = 1_000_000_000

_SET_LIMITS = "SELECT " + ", ".join(
    f"set_config('{name}', %({name})s, true)" for name in Limits().settings()
)


class Core:
    """
    The settings of one store, and its verbs as calls.
    """

    def __init__(
        self,
        *,
        schema: str,
        retry: RetryPolicy,
        max_payload_bytes: int,
        limits: Limits,
        sets_limits: bool,
    ) -> None:
        check_count("max_payload_bytes", max_payload_bytes, 0, _LARGEST_PAYLOAD)
        if not isinstance(retry, RetryPolicy):
            raise InvalidInput("retry", retry, "must be a RetryPolicy")
        if not isinstance(limits, Limits):
            raise InvalidInput("limits", limits, "must be Limits")
        self.rules = Rules(
            schema=Schema(schema), retry=retry, max_payload_bytes=max_payload_bytes
        )
        self.calls = Calls(self.rules)
        self.floor = ClaimFloor()
        self.channel = channel_of(self.rules.schema)
        self.limits = limits
        self._call_seconds = limits.call.total_seconds()
        self.sets_limits = sets_limits
        """The connections' sessions don't carry the limits: each transaction does."""
        self._is_fit = False

    def watch(self, driver: Driver, tries: "Tries") -> None:
        """
        Note on which connection a try is made, and bound it, its commit included.

        To be called before anything is sent: it is what tells a pooled connection
        that was dead already from a server that can't be reached.
        """
        tries.driver = driver
        if self._call_seconds:
            tries.watched = watch(driver.pgconn.socket, self._call_seconds)

    def doubts(self, failure: float | JobstoreError, tries: "Tries") -> bool:
        """
        Say whether to try again because the schema may have been migrated meanwhile.

        The statement that did not fit was refused, so nothing was done. What the schema
        says of itself tells more than what it lacks.
        """
        if isinstance(failure, SchemaError) and not tries.is_doubted:
            tries.is_doubted = True
            self._is_fit = False
            return True
        return False

    def check_fit(self, executor: Executor, *, again: bool = False) -> None:
        """
        Raise if the schema says that this code does not work on it; ask it once only.
        """
        if again or not self._is_fit:
            self._is_fit = False
            window.check(executor, self.rules.schema)
            self._is_fit = True

    def run(self, executor: Executor, call: Call[T], tries: "Tries") -> T:
        """
        Make one try of *call*.

        Before the first one of all, see that the schema does not say that this code
        does not work on it; and again after a statement did not fit.
        """
        self.check_fit(executor)
        tries.has_sent = True
        if self.sets_limits:
            executor.rows(_SET_LIMITS, self.limits.settings())
        session = Session(
            executor, self.rules, self.floor, is_repeated=tries.may_have_been_done
        )
        result = call.run(session)
        tries.queues_to_wake = session.queues_to_wake
        return result


class Tries:
    """
    The tries of one call, and the pauses between them.

    A deadlock or a serialization failure undid the whole transaction: it is tried
    again, a few times, with growing, jittered pauses. A connection that turned out
    dead is replaced once: after a restart of the server every pooled one is. So is one
    whose server takes no writes any more, as after a failover. What goes on failing is
    raised, in our terms. A create may meet its own first try, which the server went on
    with after the connection broke: then it is looked for again.
    """

    def __init__(self, call: Call[Any]) -> None:
        self._call = call
        self._left = _TRIES
        self._pause = _FIRST_PAUSE_SECONDS
        self._reconnected = False
        self.driver: Driver | None = None
        self.has_sent = False
        """Beyond a transaction's begin; before that, nothing can have been done."""
        self.watched: Watch | None = None
        self.may_have_been_done = False
        self.is_doubted = False
        """A statement did not fit the schema; another try asks the schema first."""
        self.queues_to_wake: set[str] = set()

    def unwatch(self) -> None:
        """
        The try is over, whatever came of it.
        """
        if self.watched is not None:
            unwatch(self.watched)
            self.watched = None

    def failed(self, error: Exception) -> float | JobstoreError:
        """
        Say what to do after *error*: pause that many seconds and repeat, or raise.
        """
        fault = fault_of(error, self.driver)
        self.driver = None
        ours = translate(error, fault, writes=self._call.writes and self.has_sent)
        if isinstance(ours, OutcomeUnknown):
            self.may_have_been_done = True
        self._left -= 1
        met_itself = self.may_have_been_done and fault.constraint == "job_pkey"
        if self._left and (fault.may_repeat_at_once or met_itself):
            self._pause *= 2
            return self._pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
        was_refused = fault.is_read_only or not self.has_sent
        may_repeat = self._call.repeatable or was_refused
        if fault.is_lost and may_repeat and not self._reconnected:
            self._reconnected = True
            return 0.0
        if self.may_have_been_done and isinstance(
            ours, (OutcomeUnknown, StoreUnavailable)
        ):
            # The first try may have been done, whatever became of the second.
            return OutcomeUnknown(str(ours), self._call.job_id)
        return ours


def only_completions(
    endings: Sequence[tuple[Lease, Outcome]],
) -> list[tuple[Lease, Completed]]:
    """
    Return *endings* if they are all completions of jobs without a parent, else none.

    Those take one statement and no transaction.
    """
    plain = [
        (lease, outcome)
        for lease, outcome in endings
        if isinstance(outcome, Completed) and not lease.is_child
    ]
    return plain if len(plain) == len(endings) else []
