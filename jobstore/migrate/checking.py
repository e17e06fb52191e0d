"""
Is a schema what this code expects? One answer for programs, people and the doctor.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, Engine

from jobstore.errors import SchemaOutdated, SchemaTooNew
from jobstore.migrate import catalog
from jobstore.migrate.catalog import Part
from jobstore.migrate.chain import head
from jobstore.migrate.connection import connected
from jobstore.migrate.state import current, require_current
from jobstore.postgres.schema import Schema

__all__ = ["Check", "Difference", "Problem", "State", "check", "differences"]


class State(StrEnum):
    """
    What is to be done about a schema, in one word.
    """

    OK = "ok"
    """As expected; or newer, and made so that this code works on it."""
    MISSING = "missing"
    """There are no jobstore tables. Run ``jobstore migrate up``."""
    TOO_NEW = "too_new"
    """Newer than this code works on. Upgrade this installation."""
    INVALID_INDEX = "invalid_index"
    """An index build was killed. ``migrate up`` repeats it, or REINDEX CONCURRENTLY."""
    OUTDATED = "outdated"
    """Older than this code knows. Run ``jobstore migrate up``."""
    DRIFT = "drift"
    """At the right revision, but changed by hand. Restore what differs."""


class Problem(StrEnum):
    """
    How a part of the schema differs.
    """

    MISSING = "missing"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One part of the schema that is not as the migrations made it.
    """

    problem: Problem
    kind: str
    """table, column, constraint, index, view, function, comment, and the like."""
    relation: str
    """The table or view that it belongs to; empty for a function."""
    name: str
    expected: str | None
    """Its definition, or a hash of a long one; None if it should not be there."""
    found: str | None
    """The same of what is there; None if it is missing."""

    def __str__(self) -> str:
        text = f"{self.kind} {self.name} is {self.problem}"
        if self.problem is Problem.CHANGED:
            text += f": expected {self.expected}, found {self.found}"
        return text


@dataclass(frozen=True, slots=True)
class Check:
    """
    What `check` found.
    """

    schema: str
    state: State
    """The first that applies, in the order of `State`."""
    revision: str | None
    head: str
    """The newest revision that this code knows."""
    differences: tuple[Difference, ...]
    """All that is known; at another revision than *head*, invalid indexes only."""

    @property
    def is_ok(self) -> bool:
        return self.state is State.OK


def check(target: str | Engine, *, schema: str = "jobstore") -> Check:
    """
    Compare *schema* with what the migrations of this code make.

    Found are parts that are missing or changed: tables, columns and their defaults,
    constraints, indexes, views, functions, storage parameters, comments; and what was
    added to our tables: columns, constraints, indexes, triggers, policies, rules.
    Rights, owners and other things in the schema are not looked at. Any role that may
    read the version table can ask; nothing is locked or changed.

    Raises:
        StoreUnavailable: The database could not be reached.
        StoreFault: The role may not read the version table.
    """
    named = Schema(schema)
    revision = current(target, schema=schema)
    if revision is None:
        return Check(schema, State.MISSING, None, head(), ())
    with connected(target) as connection:
        connection.execution_options(isolation_level="READ COMMITTED")
        found = list(_invalid(connection, named))
        if revision == head():
            found += differences(connection, named)
    state = _state(target, found, schema)
    return Check(schema, state, revision, head(), tuple(found))


def differences(connection: Connection, schema: Schema) -> list[Difference]:
    """
    Return how *schema*, which must be at this code's newest revision, differs.

    Takes a transaction of its own. An invalid index is missing here.
    """
    _, wanted = catalog.expected()
    there = catalog.describe(connection, schema)
    ours = {part.relation for part in wanted if part.relation}
    answer = []
    for part in sorted({*wanted, *there}):
        before, now = wanted.get(part), there.get(part)
        if before is None and part.relation in ours:
            answer.append(_difference(Problem.UNEXPECTED, part, before, now))
        elif now is None and not _goes_with_another(part, there):
            answer.append(_difference(Problem.MISSING, part, before, now))
        elif before and now and before != now:
            answer.append(_difference(Problem.CHANGED, part, before, now))
    return answer


def _goes_with_another(part: Part, there: dict[Part, str]) -> bool:
    """
    Say whether *part* is of something that is gone itself, and told of.
    """
    if part.kind in {"table", "view", "function"}:
        return False
    if part.kind == "comment":
        owners = {(one.relation, one.name) for one in there if one.kind != "comment"}
        return (part.relation, part.name) not in owners
    return part.relation not in {one.relation for one in there}


def _difference(
    problem: Problem, part: Part, expected: str | None, found: str | None
) -> Difference:
    return Difference(problem, part.kind, part.relation, part.name, expected, found)


def _invalid(connection: Connection, schema: Schema) -> Iterator[Difference]:
    for index in catalog.broken_indexes(connection, schema):
        part = Part("index", index.table, index.name)
        yield _difference(Problem.INVALID, part, None, None)


def _state(target: str | Engine, found: list[Difference], schema: str) -> State:
    is_outdated = False
    try:
        require_current(target, schema=schema)
    except SchemaTooNew:
        return State.TOO_NEW
    except SchemaOutdated:
        is_outdated = True
    if any(one.problem is Problem.INVALID for one in found):
        return State.INVALID_INDEX
    if is_outdated:
        return State.OUTDATED
    return State.DRIFT if found else State.OK
