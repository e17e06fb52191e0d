"""
Giving the rights: one transaction on a connection of its own.
"""

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from jobstore.errors import InvalidInput
from jobstore.grants.roles import Roles
from jobstore.grants.statements import statements
from jobstore.postgres.engine import engine_url
from jobstore.postgres.translate import fault_of, translate

__all__ = ["apply"]


def apply(
    target: str | Engine,
    *,
    schema: str = "jobstore",
    roles: Roles = Roles(),
    create_roles: bool = False,
) -> None:
    """
    Give each role its rights in *schema*, and take all others; see `statements`.

    Args:
        target: A DSN or an engine. Its role must own what is in the schema, or be a
            superuser; to hand it over to another migrator, a superuser, or a member of
            both.
        schema: Where jobstore's tables are; at the revision that this code knows.
        roles: Who gets the rights.
        create_roles: Also create those roles that are missing, without login.

    Raises:
        InvalidInput: There is no such role, or it can't be the name of one.
        SchemaMissing: Tables are missing, or older than this code. Migrate first.
        StoreBusy: A migration is at work, or somebody holds a table. Call again.
        StoreFault: The role lacks a right itself.
        StoreUnavailable: The database could not be reached.

    Guarantees:
        Atomic: All rights change at once, or none. Nobody who works meanwhile is
            refused for a moment.
        Repeat: A second call changes nothing.
    """
    written = statements(schema, roles, create_roles=create_roles)
    url = target.url if isinstance(target, Engine) else engine_url(target)
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
    try:
        with engine.begin() as connection:
            if not create_roles:
                _require(connection, roles)
            # As it stands: no parameters, so no escaping of %.
            plain = connection.execution_options(no_parameters=True)
            for statement in written:
                plain.exec_driver_sql(statement)
    except DBAPIError as error:
        raise translate(error, fault_of(error), writes=True) from None
    finally:
        engine.dispose()


def _require(connection: Connection, roles: Roles) -> None:
    there = connection.exec_driver_sql(
        "SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname = ANY(%(names)s)",
        {"names": list(roles.all())},
    )
    known = set(there.scalars())
    for field in ("migrator", "runtime", "operator", "reader"):
        name = getattr(roles, field)
        if name not in known:
            reason = "is no role of this server; create it, or have it created"
            raise InvalidInput(field, name, reason)
