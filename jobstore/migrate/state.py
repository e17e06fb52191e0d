"""
Which revision a schema is at, and whether this code knows it.
"""

from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import ProgrammingError

from jobstore.errors import SchemaMissing, SchemaOutdated
from jobstore.migrate.chain import head, scripts
from jobstore.migrate.connection import connected
from jobstore.postgres.schema import Schema
from jobstore.postgres.translate import fault_of, translate
from jobstore.postgres.window import STATED, refuse_too_new, stated

__all__ = [
    "Revision",
    "current",
    "history",
    "is_known",
    "require_current",
]


@dataclass(frozen=True, slots=True)
class Revision:
    """
    One revision, and where a schema stands to it.
    """

    revision: str
    title: str | None
    """The first line of its text; None if this code does not know the revision."""
    is_applied: bool
    is_current: bool


def current(target: str | Engine, *, schema: str = "jobstore") -> str | None:
    """
    Return the revision that *schema* is at; None if it has no jobstore tables.
    """
    quoted = Schema(schema).quoted  # refuses what is no name, before anything is sent
    with connected(target) as connection:
        try:
            rows = connection.exec_driver_sql(
                f"SELECT version_num FROM {quoted}.jobstore_version".replace("%", "%%")  # noqa: S608 - quoted
            )
        except ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) in {"42P01", "3F000"}:
                return None
            raise translate(error, fault_of(error), writes=False) from None
        revision: str | None = rows.scalar()
        return revision


def history(target: str | Engine, *, schema: str = "jobstore") -> list[Revision]:
    """
    Return every revision, oldest first, and whether *schema* has it.

    A schema at a revision of a newer release has all that this code knows, and that one
    as the last of the list.

    Raises:
        StoreUnavailable: The database could not be reached.
    """
    found = current(target, schema=schema)
    known = scripts()
    names = [script.revision for script in known]
    applied = len(names) if found is not None else 0
    if found in names:
        applied = names.index(found) + 1
    steps = [
        Revision(
            revision=script.revision,
            title=script.doc.strip(),
            is_applied=place < applied,
            is_current=script.revision == found,
        )
        for place, script in enumerate(known)
    ]
    if found is not None and found not in names:
        steps.append(Revision(found, None, is_applied=True, is_current=True))
    return steps


def require_current(target: str | Engine, *, schema: str = "jobstore") -> str:
    """
    Return the revision of *schema*, if it is the newest that this code knows.

    Or a later one, whose migration said that this code works on it.

    Raises:
        SchemaMissing, SchemaOutdated: Run `upgrade`.
        SchemaTooNew: Upgrade this process.
        StoreUnavailable: The database could not be reached.
    """
    found = current(target, schema=schema)
    if found is None:
        message = f"schema {schema} has no jobstore tables: run jobstore migrate up"
        raise SchemaMissing(message)
    if is_known(found):
        if found != head():
            raise SchemaOutdated(
                f"schema {schema} is at {found}, this code at {head()}: "
                "run jobstore migrate up"
            )
    else:
        refuse_too_new(found, _compatible_from(target, schema, found), schema)
    return found


def is_known(revision: str) -> bool:
    """
    Say whether *revision* is one of this code's.
    """
    return revision in {script.revision for script in scripts()}


def _compatible_from(target: str | Engine, schema: str, revision: str) -> str | None:
    """
    Read the oldest code that *schema*, at *revision*, says it is for.
    """
    with connected(target) as connection:
        row = connection.exec_driver_sql(STATED, {"schema": schema}).first()
    said = stated(None if row is None else row[0])
    # What was said of another revision says nothing of this one.
    return said[1] if said is not None and said[0] == revision else None
