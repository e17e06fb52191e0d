"""
Which revision a schema is at, and whether this code knows it.
"""

from alembic.script import ScriptDirectory
from sqlalchemy import Engine
from sqlalchemy.exc import ProgrammingError

from jobstore.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from jobstore.migrate.chain import config_of, head
from jobstore.migrate.connection import connected
from jobstore.postgres.schema import Schema
from jobstore.postgres.translate import fault_of, translate

__all__ = ["current", "refuse_unknown", "require_current"]


def current(target: str | Engine, *, schema: str = "jobstore") -> str | None:
    """
    Return the revision that *schema* is at; None if it has no jobstore tables.
    """
    with connected(target) as connection:
        quoted = Schema(schema).quoted
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


def require_current(target: str | Engine, *, schema: str = "jobstore") -> str:
    """
    Return the revision of *schema* if it is the one that this code knows best.

    Raises:
        SchemaMissing, SchemaOutdated: Run `upgrade`.
        SchemaTooNew: Upgrade this process.
        StoreUnavailable: The database could not be reached.
    """
    found = current(target, schema=schema)
    if found is None:
        raise SchemaMissing(f"schema {schema} has no jobstore tables")
    refuse_unknown(found, schema)
    if found != head():
        raise SchemaOutdated(f"schema {schema} is at {found}, this code at {head()}")
    return found


def refuse_unknown(found: str, schema: str) -> None:
    scripts = ScriptDirectory.from_config(config_of(schema))
    if found not in {script.revision for script in scripts.walk_revisions()}:
        message = f"schema {schema} is at {found}, which is newer than this code knows"
        raise SchemaTooNew(message)
