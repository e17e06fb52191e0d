"""
Which lock a statement of a migration takes, on what, and whom that keeps waiting.

For the comments in a rendered script; a test compares them with what the server says.
What is not recognised is called unknown, never harmless.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BLOCKS", "Lock", "lock_of"]

ACCESS_SHARE = "ACCESS SHARE"
ROW_EXCLUSIVE = "ROW EXCLUSIVE"
SHARE_UPDATE_EXCLUSIVE = "SHARE UPDATE EXCLUSIVE"
SHARE = "SHARE"
SHARE_ROW_EXCLUSIVE = "SHARE ROW EXCLUSIVE"
ACCESS_EXCLUSIVE = "ACCESS EXCLUSIVE"

BLOCKS = {
    ACCESS_SHARE: "blocks nothing but what needs the table for itself",
    ROW_EXCLUSIVE: "blocks no reader and no writer",
    SHARE_UPDATE_EXCLUSIVE: "blocks VACUUM and other changes of the schema, "
    "no reader and no writer",
    SHARE: "blocks all writers, so creating, claiming and completing",
    SHARE_ROW_EXCLUSIVE: "blocks all writers, so creating, claiming and completing",
    ACCESS_EXCLUSIVE: "blocks everybody, readers too",
}
"""From weak to strong."""


@dataclass(frozen=True, slots=True)
class Lock:
    """
    The strongest lock that a statement takes on something that was there before.
    """

    mode: str | None
    """One of `BLOCKS`; None: none that others could wait for."""
    relation: str
    """What it is on, as the statement says it; empty for none."""
    note: str = ""
    is_known: bool = True

    def __str__(self) -> str:
        if not self.is_known:
            return "Lock: unknown. Read the statement."
        if self.mode is None:
            return f"Lock: none that others wait for{self.note and f'; {self.note}'}."
        text = f"Lock: {self.mode} on {self.relation}: {BLOCKS[self.mode]}"
        return f"{text}{self.note and f'; {self.note}'}."


_NAME = r'(?P<name>(?:"(?:[^"]|"")*"|\w+)(?:\.(?:"(?:[^"]|"")*"|\w+))*)'
_Reading = Callable[[re.Match[str]], Lock]


def _on(mode: str, note: str = "") -> _Reading:
    return lambda found: Lock(mode, found["name"], note)


def _none(note: str = "") -> _Reading:
    return lambda _found: Lock(None, "", note)


_WAITS = "waits for transactions that are open, and holds nobody up meanwhile"
_SCANS = "until the transaction ends"
_OBJECTS = r"(?:FUNCTION|PROCEDURE|SCHEMA|TYPE|SEQUENCE|DOMAIN|ROLE|EXTENSION)"

# The first that matches counts.
_STATEMENTS: tuple[tuple[str, _Reading], ...] = (
    (rf"CREATE (?:UNIQUE )?INDEX CONCURRENTLY .*? ON (?:ONLY )?{_NAME}",
     _on(SHARE_UPDATE_EXCLUSIVE, _WAITS)),
    (rf"CREATE (?:UNIQUE )?INDEX .*? ON (?:ONLY )?{_NAME}", _on(SHARE, _SCANS)),
    (rf"(?:DROP INDEX|REINDEX \w+) CONCURRENTLY (?:IF EXISTS )?{_NAME}",
     _on(SHARE_UPDATE_EXCLUSIVE, _WAITS)),
    (rf"DROP INDEX (?:IF EXISTS )?{_NAME}",
     _on(ACCESS_EXCLUSIVE, "and its table, " + _SCANS)),
    (rf"CREATE (?:OR REPLACE )?TRIGGER .*? ON {_NAME}", _on(SHARE_ROW_EXCLUSIVE)),
    (r"CREATE TABLE ", _none("the table is new")),
    (rf"CREATE OR REPLACE VIEW {_NAME}", _on(ACCESS_EXCLUSIVE, _SCANS)),
    (r"CREATE VIEW ", _none("the view is new; it reads its tables' definitions only")),
    (rf"CREATE (?:OR REPLACE )?{_OBJECTS} ", _none()),
    (rf"(?:ALTER|DROP|COMMENT ON) {_OBJECTS} ", _none()),
    (r"(?:GRANT|REVOKE|SET) ", _none()),
    (rf"COMMENT ON COLUMN {_NAME}\.(?:\"[^\"]*\"|\w+) IS", _on(SHARE_UPDATE_EXCLUSIVE)),
    (rf"COMMENT ON (?:TABLE|VIEW|INDEX) {_NAME}", _on(SHARE_UPDATE_EXCLUSIVE)),
    (rf"ALTER TABLE (?:ONLY )?{_NAME} VALIDATE CONSTRAINT",
     _on(SHARE_UPDATE_EXCLUSIVE, "while it reads the table")),
    (rf"ALTER TABLE (?:ONLY )?{_NAME} (?:RE)?SET \(", _on(SHARE_UPDATE_EXCLUSIVE)),
    (rf"ALTER (?:TABLE|VIEW|INDEX) (?:IF EXISTS )?(?:ONLY )?{_NAME}",
     _on(ACCESS_EXCLUSIVE, _SCANS)),
    (rf"DROP TABLE (?:IF EXISTS )?{_NAME}",
     _on(ACCESS_EXCLUSIVE, "and the tables that it refers to, " + _SCANS)),
    (rf"DROP VIEW (?:IF EXISTS )?{_NAME}", _on(ACCESS_EXCLUSIVE, _SCANS)),
    (rf"(?:INSERT INTO|UPDATE|DELETE FROM) {_NAME}", _on(ROW_EXCLUSIVE)),
    (rf"LOCK TABLE {_NAME} IN ACCESS EXCLUSIVE", _on(ACCESS_EXCLUSIVE, _SCANS)),
)  # fmt: skip
_READINGS = tuple(
    (re.compile(pattern, re.IGNORECASE), reading) for pattern, reading in _STATEMENTS
)
_STRINGS = re.compile(r"'(?:[^']|'')*'|--[^\n]*")
_CREATED = re.compile(
    rf"CREATE (?:TABLE|VIEW) (?:IF NOT EXISTS )?{_NAME}", re.IGNORECASE
)
_REFERENCES = re.compile(rf"\bREFERENCES {_NAME}", re.IGNORECASE)
_NEEDLESS_QUOTES = re.compile(r'"([a-z_][a-z0-9_]*)"')


def lock_of(statement: str, *, created: set[str]) -> Lock:
    """
    Say which lock *statement* takes.

    Args:
        statement: One statement of SQL.
        created: What the same transaction made before, which nobody else can see; what
            this statement makes is added.
    """
    text = " ".join(_STRINGS.sub("", statement).split())
    text = _NEEDLESS_QUOTES.sub(r"\1", text)
    if made := _CREATED.match(text):
        created.add(made["name"])
    lock = Lock(None, "", is_known=False)
    for pattern, reading in _READINGS:
        if found := pattern.match(text):
            lock = reading(found)
            break
    if lock.relation in created:
        lock = Lock(None, "", f"{lock.relation} is new")
    if text.upper().startswith(("CREATE TABLE ", "ALTER TABLE ")):
        # A foreign key also locks the table that it refers to.
        others = sorted({one["name"] for one in _REFERENCES.finditer(text)} - created)
        if others and lock.mode is None:
            lock = Lock(SHARE_ROW_EXCLUSIVE, ", ".join(others), _SCANS)
        elif others:
            note = f"and SHARE ROW EXCLUSIVE on {', '.join(others)}; {lock.note}"
            lock = Lock(lock.mode, lock.relation, note)
    return lock
