"""
What a schema is made of, told in words that depend on neither its name nor the server.

The expected words lie beside the chain (``migrations/expected.json``), as its newest
revision makes them; `jobstore.migrate.check` compares. What is ours is compared, and
what hangs on it; other tables, views and functions in the schema are nobody's business
here, and neither are rights and owners.
"""

import hashlib
import json
import re
from dataclasses import dataclass

from sqlalchemy import Connection

from jobstore.migrate.chain import script_location
from jobstore.postgres.schema import Schema

__all__ = ["BrokenIndex", "Part", "broken_indexes", "describe", "expected", "render"]

# Nothing but pg_catalog in the path: every other name comes out with its schema. And
# instants come out as they are expected, wherever the server is.
_BEGIN = """
SELECT set_config('search_path', 'pg_catalog', true),
    set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true),
    set_config('IntervalStyle', 'postgres', true)
"""

# Constraints NOT NULL have rows of their own since PostgreSQL 18; the columns tell.
_PARTS = """
WITH relation AS (
    SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.reloptions,
        c.relrowsecurity, c.relforcerowsecurity
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), function AS (
    SELECT p.*,
        format('%%s(%%s)', p.proname, oidvectortypes(p.proargtypes)) AS signature
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = %(schema)s
)
SELECT 'table' AS kind, relname::text AS relation, relname::text AS name,
    concat_ws(' ', relkind, relpersistence, CASE WHEN relrowsecurity THEN 'rls' END,
        CASE WHEN relforcerowsecurity THEN 'forced' END) AS definition
FROM relation WHERE relkind <> 'v'
UNION ALL
SELECT 'storage parameters', relname, relname,
    array_to_string(ARRAY(SELECT unnest(reloptions) ORDER BY 1), ', ')
FROM relation WHERE relkind <> 'v'
UNION ALL
SELECT 'view', relname, relname,
    concat_ws(' ', array_to_string(reloptions, ', '), pg_get_viewdef(oid))
FROM relation WHERE relkind = 'v'
UNION ALL
SELECT 'column', relname, relname || '.' || attname, concat_ws(' ',
    format_type(atttypid, atttypmod),
    CASE WHEN attcollation <> typcollation
        THEN 'collate ' ||
            (SELECT collname FROM pg_collation c WHERE c.oid = attcollation)
    END,
    CASE WHEN attnotnull THEN 'not null' END,
    CASE WHEN relkind <> 'v' THEN 'storage ' || attstorage::text END,
    nullif('identity ' || attidentity::text, 'identity '),
    nullif('generated ' || attgenerated::text, 'generated '),
    'default ' || pg_get_expr(adbin, adrelid))
FROM relation
JOIN pg_attribute a ON attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
JOIN pg_type t ON t.oid = atttypid
LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
UNION ALL
SELECT 'constraint', relname, relname || '.' || conname, pg_get_constraintdef(k.oid)
FROM relation JOIN pg_constraint k ON conrelid = relation.oid
WHERE contype NOT IN ('n', 't')
UNION ALL
SELECT 'index', relation.relname, i.relname, pg_get_indexdef(indexrelid)
FROM relation JOIN pg_index ON indrelid = relation.oid
JOIN pg_class i ON i.oid = indexrelid
WHERE indisvalid
UNION ALL
SELECT 'storage parameters', relation.relname, i.relname,
    array_to_string(i.reloptions, ', ')
FROM relation JOIN pg_index ON indrelid = relation.oid
JOIN pg_class i ON i.oid = indexrelid
WHERE indisvalid
UNION ALL
SELECT 'trigger', relname, relname || '.' || tgname,
    tgenabled::text || ' ' || pg_get_triggerdef(g.oid)
FROM relation JOIN pg_trigger g ON tgrelid = relation.oid
WHERE NOT tgisinternal
UNION ALL
SELECT 'rule', relname, relname || '.' || rulename, pg_get_ruledef(r.oid)
FROM relation JOIN pg_rewrite r ON ev_class = relation.oid
WHERE rulename <> '_RETURN'
UNION ALL
SELECT 'policy', relname, relname || '.' || polname, concat_ws(' ', polcmd,
    polpermissive, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
FROM relation JOIN pg_policy ON polrelid = relation.oid
UNION ALL
SELECT 'function', '', signature, concat_ws(' ', lanname, prokind, provolatile,
    proparallel, CASE WHEN prosecdef THEN 'security definer' END,
    CASE WHEN proisstrict THEN 'strict' END, array_to_string(proconfig, ', '),
    pg_get_function_arguments(function.oid), pg_get_function_result(function.oid),
    coalesce(pg_get_function_sqlbody(function.oid), prosrc))
FROM function JOIN pg_language ON pg_language.oid = prolang
UNION ALL
SELECT 'comment', relname, relname, obj_description(oid, 'pg_class') FROM relation
UNION ALL
SELECT 'comment', relname, relname || '.' || attname, col_description(oid, attnum)
FROM relation JOIN pg_attribute ON attrelid = relation.oid
    AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'comment', '', signature, obj_description(oid, 'pg_proc') FROM function
"""

# What is being built this moment is not broken. Whoever may not see who builds what
# (it takes the same role, or pg_read_all_stats) sees an index being built as broken.
_BROKEN = """
SELECT o.relname::text, i.relname::text
FROM pg_index
JOIN pg_class i ON i.oid = indexrelid
JOIN pg_class o ON o.oid = indrelid
JOIN pg_namespace n ON n.oid = o.relnamespace
WHERE n.nspname = %(schema)s AND NOT (indisvalid AND indisready)
AND NOT EXISTS (
    SELECT FROM pg_stat_progress_create_index AS progress
    WHERE progress.index_relid = indexrelid
)
ORDER BY 2
"""

_QUALIFIER = re.compile(r'(?:"(?:[^"]|"")*"|\b[A-Za-z_]\w*)\.')
_LONG = frozenset({"view", "function", "comment", "trigger", "rule"})


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """
    One thing that a schema has: a column, a constraint, a function.
    """

    kind: str
    relation: str
    """The table or view that it is, or hangs on; empty for a function."""
    name: str


@dataclass(frozen=True, slots=True)
class BrokenIndex:
    """
    An index that a killed build left over: writes maintain it, nothing can use it.
    """

    table: str
    name: str


def describe(connection: Connection, schema: Schema) -> dict[Part, str]:
    """
    Tell what *schema* has, each part with its definition.

    In one transaction, which must not have begun. Long definitions are told by a hash.
    """
    with connection.begin():
        connection.exec_driver_sql(_BEGIN)
        rows = connection.exec_driver_sql(_PARTS, {"schema": schema.name}).all()
    return {
        Part(kind, relation, name): _told(kind, definition, schema)
        for kind, relation, name, definition in rows
        if definition
    }


def broken_indexes(connection: Connection, schema: Schema) -> list[BrokenIndex]:
    """
    Return the invalid indexes on tables of *schema* that nobody is building.
    """
    with connection.begin():
        rows = connection.exec_driver_sql(_BROKEN, {"schema": schema.name}).all()
    return [BrokenIndex(*row) for row in rows]


def expected() -> tuple[str, dict[Part, str]]:
    """
    Return what the chain's newest revision makes: its name, and the parts.
    """
    text = (script_location() / "expected.json").read_text("utf-8")
    said = json.loads(text)
    return said["revision"], {
        Part(kind, relation, name): definition
        for kind, relation, name, definition in said["parts"]
    }


def render(revision: str, parts: dict[Part, str]) -> str:
    """
    Write *parts* as ``migrations/expected.json`` has them: a line for each.
    """
    lines = [
        json.dumps([part.kind, part.relation, part.name, parts[part]])
        for part in sorted(parts)
    ]
    body = ",\n".join(lines)
    return f'{{"revision": {json.dumps(revision)}, "parts": [\n{body}\n]}}\n'


def _told(kind: str, definition: str, schema: Schema) -> str:
    """
    Say *definition* so that the schema's name and the server's version don't matter.

    Servers from 16 on qualify columns in views where they must, older ones always: no
    qualifier is compared at all.
    """
    text = definition.replace(schema.quoted, '"s"')
    if kind != "comment":
        text = " ".join(_QUALIFIER.sub("", text).split())
    if kind not in _LONG:
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:16]
