"""
Why one job is where it is, in plain words.
"""

from sqlalchemy import URL, Engine
from sqlalchemy.exc import ProgrammingError

from jobstore import migrate
from jobstore.doctor.look import looking
from jobstore.doctor.thresholds import Thresholds
from jobstore.errors import JobNotFound, SchemaMissing, SchemaOutdated
from jobstore.ids import known_id

__all__ = ["explain"]

_UNDEFINED_FUNCTION = "42883"


def explain(
    target: str | URL | Engine, job_id: str, *, schema: str = "jobstore"
) -> str:
    """
    Say why a job is where it is and what will happen next; what explain_job says.

    Raises:
        JobNotFound: There is no such job.
        SchemaMissing, SchemaOutdated: The schema lacks explain_job.
        StoreUnavailable: The database could not be reached.
    """
    job_id = known_id(job_id)
    with looking(target, schema, Thresholds()) as look:
        found = migrate.current(look.engine, schema=schema)
        if found is None:
            raise SchemaMissing(f"schema {schema} has no jobstore tables")
        try:
            said, is_known = look.row(
                "SELECT {s}.explain_job(%(id)s), "
                "EXISTS (SELECT FROM {s}.job WHERE id = upper(btrim(%(id)s)))",
                id=job_id,
            )
        except ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != _UNDEFINED_FUNCTION:
                raise
            message = f"schema is at {found}, code at {migrate.head()}"
            raise SchemaOutdated(message) from None
    if not is_known:
        raise JobNotFound(job_id)
    return str(said)
