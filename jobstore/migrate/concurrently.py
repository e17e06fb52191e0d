"""
Indexes built while the queue is in use: operations for revisions, on Alembic's ``op``.

Importing this module registers them, so that a revision needs no import of ours::

    op.build_index_concurrently(
        "job_tenant_idx", "job", "(tenant, created_at)", schema=schema
    )

Such a revision does nothing else: it works outside of a transaction. If the build is
killed it leaves an index that is maintained and of no use, and the schema at the
revision before; the next ``migrate up`` drops that index and builds it again.
"""

from typing import Any

from alembic.operations import MigrateOperation, Operations

from jobstore.migrate.connection import LOCK_TIMEOUT_MS
from jobstore.postgres.schema import Schema

__all__ = ["BuildIndex", "DropIndex"]

_IS_VALID = """
SELECT indisvalid AND indisready FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(name)s
"""


@Operations.register_operation("build_index_concurrently")
class BuildIndex(MigrateOperation):
    """
    CREATE INDEX CONCURRENTLY, and again if a killed build left it invalid.
    """

    def __init__(
        self, name: str, table: str, definition: str, *, schema: str, unique: bool
    ) -> None:
        self.name = name
        self.table = table
        self.definition = definition
        self.schema = Schema(schema)
        self.unique = unique

    @classmethod
    def build_index_concurrently(
        cls,
        operations: Operations,
        name: str,
        table: str,
        definition: str,
        *,
        schema: str,
        unique: bool = False,
    ) -> None:
        """
        Build the index *name* on *table*.

        Args:
            operations: Alembic's; left out when called on ``op``.
            name: The index; what has this name and is valid is taken to be it.
            table: Of the schema, without its name.
            definition: What follows the table: method, columns, predicate.
            schema: The schema's name, as ``context.config.attributes`` has it.
            unique: Whether it is a unique index.
        """
        operations.invoke(cls(name, table, definition, schema=schema, unique=unique))


@Operations.register_operation("drop_index_concurrently")
class DropIndex(MigrateOperation):
    """
    DROP INDEX CONCURRENTLY, if it is there.
    """

    def __init__(self, name: str, *, schema: str) -> None:
        self.name = name
        self.schema = Schema(schema)

    @classmethod
    def drop_index_concurrently(
        cls, operations: Operations, name: str, *, schema: str
    ) -> None:
        """
        Drop the index *name* of *schema*.
        """
        operations.invoke(cls(name, schema=schema))


@Operations.implementation_for(BuildIndex)
def _build(operations: Operations, wanted: BuildIndex) -> None:
    context = operations.get_context()
    kind = "UNIQUE INDEX" if wanted.unique else "INDEX"
    create = (
        f'CREATE {kind} CONCURRENTLY "{wanted.name}" '
        f'ON {wanted.schema.quoted}."{wanted.table}" {wanted.definition}'
    )
    with context.autocommit_block():
        if _stands(context, wanted):
            return
        _patiently(context, _drop_statement(wanted.schema, wanted.name), create)


@Operations.implementation_for(DropIndex)
def _drop(operations: Operations, unwanted: DropIndex) -> None:
    context = operations.get_context()
    with context.autocommit_block():
        _patiently(context, _drop_statement(unwanted.schema, unwanted.name))


def _stands(context: Any, wanted: BuildIndex) -> bool:
    """
    Say whether the index was built by a migrator that got no further.
    """
    if context.as_sql:
        return False
    row = context.connection.exec_driver_sql(
        _IS_VALID, {"schema": wanted.schema.name, "name": wanted.name}
    ).first()
    return row is not None and bool(row[0])


def _patiently(context: Any, *statements: str) -> None:
    """
    Execute *statements* with no limit on waiting.

    They wait for transactions that are open, hold up no reader and no writer meanwhile,
    and what they did would be lost if they gave up.
    """
    context.execute("SET lock_timeout = 0")
    for statement in statements:
        # Alembic reads :name as a parameter.
        context.execute(statement.replace(":", r"\:"))
    context.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")


def _drop_statement(schema: Schema, name: str) -> str:
    return f'DROP INDEX CONCURRENTLY IF EXISTS {schema.quoted}."{name}"'
