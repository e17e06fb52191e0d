"""
What Alembic compares, and what it leaves alone: ours of a host's, a host's of ours.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import Connection, text

from jobstore.postgres.schema import Schema
from jobstore.postgres.tables import metadata
from jobstore.postgres.window import VERSION_TABLE

__all__ = ["comparison", "without_jobstore"]

IncludeName: TypeAlias = Callable[[str | None, Any, Mapping[str, Any]], bool]
IncludeObject: TypeAlias = Callable[[Any, str | None, Any, bool, Any], bool]

# What a host sees without naming a schema, though it is in ours.
_VISIBLE = """
SELECT relname::text FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = :schema AND relkind IN ('r', 'p')
    AND pg_catalog.pg_table_is_visible(pg_class.oid)
"""


def comparison(schema: str) -> dict[str, Any]:
    """
    Options for Alembic's environment under which it sees jobstore's tables alone.

    The database, and the schema too, may hold tables of others; none is looked at.
    """
    tables = metadata(schema)
    ours = _names(schema)

    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        if kind == "schema":
            return name == schema
        return kind != "table" or name in ours

    return {
        "target_metadata": tables,
        "version_table": VERSION_TABLE,
        "version_table_schema": schema,
        "include_schemas": True,
        "include_name": is_ours,
        "compare_type": True,
        # Defaults are pinned by the golden schema instead: Alembic compares two
        # calls of new_ulid(), which never give the same.
        "compare_server_default": False,
    }


def without_jobstore(
    connection: Connection,
    *,
    schema: str = "jobstore",
    include_name: IncludeName | None = None,
    include_object: IncludeObject | None = None,
) -> dict[str, Any]:
    """
    Options for a host's ``context.configure`` under which it leaves our tables alone.

    Wherever they are: in a schema of their own, on the host's search path, or among the
    host's tables in one schema. A host's table that happens to have a name of ours is
    still looked at, unless it is in the same schema, where there can be only one.

    Args:
        connection: The one for ``context.configure``; asked when Alembic compares.
        schema: Where jobstore's tables are.
        include_name: The host's own; asked about all that is not ours.
        include_object: The same.

    Returns:
        Both, for ``**``: ``context.configure(…, **without_jobstore(connection))``.

    Raises:
        InvalidInput: The schema's name is none.
    """
    Schema(schema)
    ours = _Ours(connection, schema)

    def name_is_the_hosts(
        name: str | None, kind: Any, parents: Mapping[str, Any]
    ) -> bool:
        if ours.has_name(name, kind, parents):
            return False
        return include_name is None or include_name(name, kind, parents)

    def object_is_the_hosts(
        thing: Any, name: str | None, kind: Any, *more: Any
    ) -> bool:
        if ours.has_table(thing, kind, *more):
            return False
        return include_object is None or include_object(thing, name, kind, *more)

    return {
        "include_name": name_is_the_hosts,
        "include_object": object_is_the_hosts,
    }


class _Ours:
    """
    What is ours of the things that a host's Alembic comes upon.
    """

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._known = _names(schema)
        self._unnamed: set[str] | None = None

    def has_name(self, name: str | None, kind: str, parents: Mapping[str, Any]) -> bool:
        if kind == "schema":
            return name == self._schema
        if kind != "table" or parents.get("schema_name") is not None:
            return False
        if self._unnamed is None:
            self._unnamed = self._look()
        return name in self._unnamed

    def has_table(self, thing: Any, kind: str, reflected: Any, _other: Any) -> bool:
        """
        Tell tables of ours in the host's metadata, for its foreign keys to point at.
        """
        if kind != "table" or reflected or thing.name not in self._known:
            return False
        return thing.schema == self._schema or (
            thing.schema is None and self._is_default()
        )

    def _is_default(self) -> bool:
        return self._connection.dialect.default_schema_name == self._schema

    def _look(self) -> set[str]:
        found = self._connection.execute(text(_VISIBLE), {"schema": self._schema})
        visible = set(found.scalars())
        # The host's own may be in it, too. What a later revision of ours made is then
        # not to be told from those.
        return visible & self._known if self._is_default() else visible


def _names(schema: str) -> set[str]:
    return {table.name for table in metadata(schema).tables.values()} | {VERSION_TABLE}
