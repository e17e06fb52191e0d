"""
The schema: its revision, and the indexes and columns that the code rests on.
"""

from collections.abc import Iterator

from jobstore import migrate
from jobstore.doctor.look import Look
from jobstore.doctor.report import Finding, Severity
from jobstore.postgres.tables import metadata

__all__ = ["indexes", "revision", "tables"]


def revision(look: Look) -> Iterator[Finding]:
    found = migrate.current(look.engine, schema=look.schema.name)
    wanted = migrate.head()
    if found == wanted:
        return
    figures = {"revision": found, "expected_revision": wanted}
    if found is None:
        yield Finding(
            check="revision",
            severity=Severity.CRITICAL,
            message=f"there are no jobstore tables in schema {look.schema.name}",
            advice="Run jobstore migrate up, or name the right schema and database.",
            figures=figures,
        )
    elif _is_ours(found):
        yield Finding(
            check="revision",
            severity=Severity.CRITICAL,
            message=f"the schema is at {found}, this code wants {wanted}",
            advice="Run jobstore migrate up.",
            figures=figures,
        )
    else:
        yield Finding(
            check="revision",
            severity=Severity.WARNING,
            message=f"the schema is at {found}, which this code ({wanted}) does not "
            "know",
            advice="The schema was migrated by newer code: update this installation.",
            figures=figures,
        )


def _is_ours(found: str) -> bool:
    # Revisions are numbered; a name that is no number is nobody's of ours.
    return found.isdigit() and found <= migrate.head()


def tables(look: Look) -> Iterator[Finding]:
    """
    Compare names of columns and constraints; for all else there is migrate check.
    """
    there = look.rows(
        """
        SELECT relname::text, attname::text
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = %(schema)s AND relkind IN ('r', 'p')
            AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT relname::text, conname::text
        FROM pg_class JOIN pg_constraint ON conrelid = pg_class.oid
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = %(schema)s AND convalidated
        """,
        schema=look.schema.name,
    )
    known = {(table, part) for table, part in there}
    for table in metadata(look.schema.name).tables.values():
        parts = [str(column.name) for column in table.columns]
        parts += sorted(str(constraint.name) for constraint in table.constraints)
        missing = [part for part in parts if (table.name, part) not in known]
        if missing:
            yield Finding(
                check="tables",
                severity=Severity.CRITICAL,
                subject=table.name,
                message=f"table {table.name} lacks {', '.join(missing)}",
                advice="Somebody changed the schema by hand. Compare with jobstore "
                "migrate check, and restore what is missing.",
                figures={"missing": len(missing)},
            )


def indexes(look: Look) -> Iterator[Finding]:
    rows = look.rows(
        """
        SELECT index.relname::text, owner.relname::text, indisvalid AND indisready,
            coalesce(progress.pid, 0)
        FROM pg_index
        JOIN pg_class AS index ON index.oid = indexrelid
        JOIN pg_class AS owner ON owner.oid = indrelid
        LEFT JOIN pg_stat_progress_create_index AS progress
            ON progress.index_relid = indexrelid
        WHERE owner.relnamespace = (
            SELECT oid FROM pg_namespace WHERE nspname = %(schema)s
        )
        ORDER BY 1
        """,
        schema=look.schema.name,
    )
    there = {name for name, *_ in rows}
    expected = _expected_indexes(look.schema.name)
    for name, table, is_valid, pid in rows:
        if is_valid or pid:
            continue
        is_ours = name in expected
        yield Finding(
            check="indexes",
            severity=Severity.CRITICAL if is_ours else Severity.WARNING,
            subject=name,
            message=f"index {name} of {table} is invalid: an index build broke off",
            advice=_mend(look, name, is_ours=is_ours),
            figures={"table": table},
        )
    for name in sorted(expected - there):
        yield Finding(
            check="indexes",
            severity=Severity.CRITICAL,
            subject=name,
            message=f"index {name} is missing",
            advice="Somebody dropped it. Its definition is in migrations/versions "
            "(jobstore migrate sql prints it); create it CONCURRENTLY.",
        )


def _expected_indexes(schema: str) -> set[str]:
    names = set()
    for table in metadata(schema).tables.values():
        names |= {str(index.name) for index in table.indexes}
        names.add(str(table.primary_key.name))
    return names


def _mend(look: Look, name: str, *, is_ours: bool) -> str:
    quoted = look.named(f'"{name}"')
    if is_ours:
        return f"REINDEX INDEX CONCURRENTLY {quoted}"
    return f"If no build is running: DROP INDEX CONCURRENTLY {quoted}"
