"""
Rights of the four roles: printed for psql, or applied.
"""

import sys

import click

from jobstore import grants as library
from jobstore.cli import output
from jobstore.cli.options import as_json, schema
from jobstore.grants import Roles

__all__ = ["grants"]

_DEFAULTS = Roles()


@click.command()
@click.option("--dsn", envvar="JOBSTORE_DSN", help="For --apply. [JOBSTORE_DSN]")
@schema
@click.option(
    "--migrator",
    default=_DEFAULTS.migrator,
    show_default=True,
    help="Owns the schema, and runs jobstore migrate.",
)
@click.option(
    "--runtime",
    default=_DEFAULTS.runtime,
    show_default=True,
    help="What stores and workers log in as, or are members of.",
)
@click.option(
    "--operator",
    default=_DEFAULTS.operator,
    show_default=True,
    help="Looks, and changes jobs by the guarded functions alone.",
)
@click.option(
    "--reader",
    default=_DEFAULTS.reader,
    show_default=True,
    help="Reads the views.",
)
@click.option(
    "--create-roles", is_flag=True, help="Create missing roles, without login."
)
@click.option("--apply", is_flag=True, help="Run it, in one transaction.")
@as_json
def grants(
    *,
    dsn: str | None,
    schema: str,
    migrator: str,
    runtime: str,
    operator: str,
    reader: str,
    create_roles: bool,
    apply: bool,
    json: bool,
) -> None:
    """
    Print the SQL that gives four roles their rights and takes all others, for psql.

    With --apply it is run instead, by a role that owns the schema, or a superuser.
    Once more changes nothing.
    """
    roles = Roles(migrator=migrator, runtime=runtime, operator=operator, reader=reader)
    if apply:
        if not dsn:
            raise click.UsageError("no database: give --dsn or set JOBSTORE_DSN")
        library.apply(dsn, schema=schema, roles=roles, create_roles=create_roles)
        output.tell(f"rights in {schema} are given to {', '.join(roles.all())}")
    elif not json:
        script = library.script(schema, roles, create_roles=create_roles)
        sys.stdout.buffer.write(script.encode())
    if json:
        written = library.statements(schema, roles, create_roles=create_roles)
        output.print_json({"applied": apply, "statements": written})
