"""
The SQL that gives the rights: whole and idempotent, in the order it must run.
"""

from collections.abc import Iterator

from jobstore.errors import InvalidInput
from jobstore.grants.roles import Roles
from jobstore.model import check_flag
from jobstore.postgres.schema import Schema
from jobstore.postgres.tables import metadata

__all__ = ["FUNCTIONS", "TABLES", "VIEWS", "script", "statements"]

# All that the migrations make. Named one by one: the schema may be shared, and what
# else is in it is nobody's business here.
TABLES = ("attempt", "audit", "idempotency_key", "job", "jobstore_version", "payload")
VIEWS = (
    "queue_health",
    "ready",
    "recent_failures",
    "running",
    "scheduled",
    "snapshot_holders",
    "stale",
    "table_health",
    "tenant_backlog",
    "waiting_families",
    "workers",
)
_RETRY_FAILED = (
    "retry_failed"
    "(text, boolean, text, text, text, text, timestamptz, timestamptz, integer)"
)
_GUARDED = (
    "cancel_job(text, text, boolean)",
    "release_worker(text, text, boolean, interval, integer)",
    "requeue_job(text, text, boolean)",
    _RETRY_FAILED,
)
# With the caller's rights, over what an operator may read anyhow.
_EXPLAINING = (
    "_duration(interval)",
    "_family(text, text, integer, integer, integer)",
    "_instant(timestamptz)",
    "explain_job(text)",
)
# Views call functions with the rights of whoever reads the view.
_IN_VIEWS = ("ulid_at(timestamptz)",)
_INTERNAL = (
    "_checked_reason(text)",
    "_delete_payloads()",
    "_reopen(text[])",
    "_tell_parents(text[], integer[], integer[])",
    "_truncate_payloads()",
    "_wake(text[])",
    "new_ulid()",
)
FUNCTIONS = tuple(sorted(_GUARDED + _EXPLAINING + _IN_VIEWS + _INTERNAL))

# Payloads and history of a pruned job go by a trigger and a foreign key, and those act
# with the rights of the owner. Whole tables, not columns: a new column of a later
# revision must be writable the moment it is there.
_RUNTIME = {
    "job": "SELECT, INSERT, UPDATE, DELETE",
    "idempotency_key": "SELECT, INSERT, UPDATE, DELETE",
    "payload": "SELECT, INSERT",
    "attempt": "SELECT, INSERT",
    "jobstore_version": "SELECT",
}
_SECRET_COLUMNS = frozenset({"idem_key", "result"})

_CREATE_ROLE = """
DO {q}
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {literal}) THEN
        CREATE ROLE {name} NOLOGIN;
    END IF;
END
{q}
"""

# Only what has another owner: ALTER … OWNER locks a table for itself. A schema that
# others have tables in stays theirs. Sequences go with their tables.
_HAND_OVER = """
DO {q}
DECLARE
    thing text;
BEGIN
    FOR thing IN
        WITH relation AS (
            SELECT relname, relkind, relowner,
                relname = ANY(ARRAY[{relations}]) AS is_ours
            FROM pg_class
            WHERE relnamespace = {schema}::regnamespace AND relkind IN ('r', 'p', 'v')
        )
        SELECT concat('SCHEMA ', {schema}) FROM pg_namespace
        WHERE oid = {schema}::regnamespace AND nspowner <> {owner}::regrole
            AND NOT EXISTS (SELECT FROM relation WHERE NOT is_ours)
        UNION ALL
        SELECT concat(CASE relkind WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END,
            {schema}, '.', quote_ident(relname))
        FROM relation WHERE is_ours AND relowner <> {owner}::regrole
        UNION ALL
        SELECT concat('FUNCTION ', oid::regprocedure) FROM pg_proc
        WHERE oid = ANY(ARRAY[{functions}]::regprocedure[])
            AND proowner <> {owner}::regrole
    LOOP
        EXECUTE concat('ALTER ', thing, ' OWNER TO ', {owner});
    END LOOP;
END
{q}
"""


def statements(
    schema: str = "jobstore",
    roles: Roles = Roles(),
    *,
    create_roles: bool = False,
) -> list[str]:
    """
    Return the SQL that gives each role its rights in *schema*, and takes all others.

    They belong into one transaction. Run by whoever owns everything in the schema (the
    migrator, once it does), or by a superuser; after `migrate.upgrade`, and again after
    one whose release says so. A second run changes nothing.

    Args:
        schema: Where jobstore's tables are.
        roles: Who gets the rights.
        create_roles: Also create those roles that are missing, without login. Needs
            CREATEROLE.

    Raises:
        InvalidInput: The schema's name is none.
    """
    place = Schema(schema)
    if not isinstance(roles, Roles):
        raise InvalidInput("roles", roles, "must be Roles")
    check_flag("create_roles", create_roles)
    lock = _literal(f"jobstore migrate {schema}")
    written = [
        "SET LOCAL search_path = pg_catalog, pg_temp",
        "SET LOCAL lock_timeout = '5s'",
        # That of migrations: not while one is at work.
        f"SELECT pg_advisory_xact_lock(hashtextextended({lock}, 0))",
    ]
    if create_roles:
        written += [
            _block(_CREATE_ROLE, literal=_literal(name), name=_name(name))
            for name in roles.all()
        ]
    written.append(_hand_over(place, roles))
    written += _take_all(place, roles)
    written += _give(place, roles)
    written += _give_by_default(place, roles)
    return written


def script(
    schema: str = "jobstore",
    roles: Roles = Roles(),
    *,
    create_roles: bool = False,
) -> str:
    """
    Return `statements` as a script for psql: all of it happens, or nothing.
    """
    written = statements(schema, roles, create_roles=create_roles)
    lines = ["\\set ON_ERROR_STOP on", "BEGIN;"]
    lines += [f"{statement};" for statement in written]
    return "\n".join([*lines, "COMMIT;", ""])


def _hand_over(schema: Schema, roles: Roles) -> str:
    owner = _name(roles.migrator)
    functions = [_literal(f"{schema.quoted}.{one}") for one in FUNCTIONS]
    return _block(
        _HAND_OVER,
        relations=", ".join(_literal(name) for name in TABLES + VIEWS),
        functions=", ".join(functions),
        schema=_literal(schema.quoted),
        owner=_literal(owner),
    )


def _take_all(schema: Schema, roles: Roles) -> Iterator[str]:
    s = schema.quoted
    others = _names(roles.runtime, roles.operator, roles.reader)
    yield f"REVOKE CREATE ON SCHEMA {s} FROM PUBLIC"
    yield f"REVOKE ALL ON SCHEMA {s} FROM {others}"
    # Takes the rights on single columns, too.
    tables = _listed(schema, TABLES + VIEWS)
    yield f"REVOKE ALL ON TABLE {tables} FROM PUBLIC, {others}"
    yield f"REVOKE ALL ON SEQUENCE {s}.audit_id_seq FROM PUBLIC, {others}"
    functions = _listed(schema, FUNCTIONS)
    yield f"REVOKE ALL ON FUNCTION {functions} FROM PUBLIC, {others}"


def _give(schema: Schema, roles: Roles) -> Iterator[str]:
    s = schema.quoted
    runtime, operator = _name(roles.runtime), _name(roles.operator)
    looking = _names(roles.operator, roles.reader)
    # For a schema that stays somebody else's.
    yield f"GRANT USAGE, CREATE ON SCHEMA {s} TO {_name(roles.migrator)}"
    yield f"GRANT USAGE ON SCHEMA {s} TO {runtime}, {looking}"
    for table, rights in _RUNTIME.items():
        yield f"GRANT {rights} ON TABLE {s}.{table} TO {runtime}"
    yield f"GRANT SELECT ON TABLE {_listed(schema, VIEWS)} TO {looking}"
    yield f"GRANT EXECUTE ON FUNCTION {_listed(schema, _IN_VIEWS)} TO {looking}"
    tables = _listed(schema, ("attempt", "audit", "jobstore_version"))
    yield f"GRANT SELECT ON TABLE {tables} TO {operator}"
    yield f"GRANT SELECT ({_shown_columns()}) ON TABLE {s}.job TO {operator}"
    yield f"GRANT SELECT (job_id) ON TABLE {s}.payload TO {operator}"
    functions = _listed(schema, _GUARDED + _EXPLAINING)
    yield f"GRANT EXECUTE ON FUNCTION {functions} TO {operator}"


def _give_by_default(schema: Schema, roles: Roles) -> Iterator[str]:
    """
    For what later revisions make: new code must find its tables usable at once.
    """
    default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {_name(roles.migrator)}"
    # PostgreSQL can't take this away from PUBLIC in one schema alone.
    yield f"{default} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC"
    here = f"{default} IN SCHEMA {schema.quoted}"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    yield f"{here} GRANT {rights} ON TABLES TO {_name(roles.runtime)}"
    # No function is anybody's by default: some are triggers' with their owner's rights,
    # which nobody may hang on a table of his own.


def _shown_columns() -> str:
    columns = metadata("s").tables["s.job"].columns
    return ", ".join(
        str(column.name) for column in columns if column.name not in _SECRET_COLUMNS
    )


def _listed(schema: Schema, names: tuple[str, ...]) -> str:
    return ", ".join(f"{schema.quoted}.{name}" for name in names)


def _names(*roles: str) -> str:
    return ", ".join(map(_name, roles))


def _name(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """
    Write *text* as a literal that means the same whatever standard_conforming_strings.
    """
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return f" E{quoted}" if "\\" in text else quoted


def _block(template: str, **words: str) -> str:
    # The names stand inside the block; they may hold anything, even its quotes.
    tag = "do"
    while any(f"${tag}$" in word for word in words.values()):
        tag += "_"
    return template.strip().format(q=f"${tag}$", **words)
