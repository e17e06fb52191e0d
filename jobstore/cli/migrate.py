"""
Migrating from the shell.
"""

import sys
from dataclasses import asdict
from datetime import timedelta

import click

from jobstore import migrate as migrations
from jobstore.cli import output
from jobstore.cli.exits import Exit
from jobstore.cli.options import Target, as_json, schema, target
from jobstore.cli.params import DURATION
from jobstore.errors import (
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
)
from jobstore.migrate import State

__all__ = ["migrate"]

_EXITS = {
    State.OK: Exit.OK,
    State.MISSING: Exit.SCHEMA_MISSING,
    State.OUTDATED: Exit.SCHEMA_OUTDATED,
    State.TOO_NEW: Exit.SCHEMA_TOO_NEW,
    State.DRIFT: Exit.SCHEMA_DRIFT,
    State.INVALID_INDEX: Exit.INVALID_INDEX,
}
_STATES: dict[type[SchemaError], State] = {
    SchemaMissing: State.MISSING,
    SchemaOutdated: State.OUTDATED,
    SchemaTooNew: State.TOO_NEW,
}
_SAID = {
    State.OK: "as it should be",
    State.MISSING: "run jobstore migrate up",
    State.OUTDATED: "outdated, run jobstore migrate up",
    State.TOO_NEW: "newer than this code knows, upgrade this installation",
    State.DRIFT: "changed by hand, restore what differs",
    State.INVALID_INDEX: "an index is invalid, run jobstore migrate up, or REINDEX "
    "INDEX CONCURRENTLY",
}


@click.group()
def migrate() -> None:
    """
    Make, change and check the schema.
    """


@migrate.command()
@target
@click.option("--to", "revision", default="head", show_default=True)
def up(where: Target, *, revision: str) -> None:
    """
    Bring the schema up to date, creating it if need be.

    Any number may run this at once; one works, the others wait for it.
    """
    reached = migrations.upgrade(where.dsn, schema=where.schema, revision=revision)
    output.print_line(f"{where.schema} is at {reached}")


@migrate.command()
@target
@click.argument("revision")
@click.option("--allow-data-loss", is_flag=True, help="Drop jobs, if it comes to that.")
def down(where: Target, *, revision: str, allow_data_loss: bool) -> None:
    """
    Take the schema back to REVISION.
    """
    reached = migrations.downgrade(
        where.dsn, revision, schema=where.schema, allow_data_loss=allow_data_loss
    )
    output.print_line(f"{where.schema} is at {reached or 'nothing'}")


@migrate.command()
@target
@as_json
def current(where: Target, *, json: bool) -> None:
    """
    Print the schema's revision.
    """
    found = migrations.current(where.dsn, schema=where.schema)
    if json:
        output.print_json({"revision": found, "head": migrations.head()})
    else:
        output.print_line(found or "none")


@migrate.command()
@target
@as_json
def history(where: Target, *, json: bool) -> None:
    """
    List every revision, its title, and whether the schema has it.
    """
    steps = migrations.history(where.dsn, schema=where.schema)
    if json:
        output.print_json({"revisions": [asdict(step) for step in steps]})
        return
    for step in steps:
        state = "current" if step.is_current else "applied" if step.is_applied else ""
        output.print_line(step.revision, state, step.title or "(of a newer release)")


@migrate.command()
@target
@as_json
@click.pass_context
def check(context: click.Context, where: Target, *, json: bool) -> None:
    """
    Compare the schema with what this code expects, and name each difference.

    Exits with 0 when all is as expected, 11 when there are no tables, 12 when the
    schema is outdated, 13 when it is too new, 14 when it was changed by hand, 15 when
    an index is invalid. It changes and locks nothing.
    """
    found = migrations.check(where.dsn, schema=where.schema)
    if json:
        output.print_json(asdict(found))
    else:
        at = found.revision or "nothing"
        output.print_line(f"{where.schema} is at {at}: {_SAID[found.state]}")
        for difference in found.differences:
            output.print_line(str(difference))
    context.exit(_EXITS[found.state])


@migrate.command()
@schema
@click.option("--from", "from_revision", default="base", show_default=True)
@click.option("--to", "to_revision", default="head", show_default=True)
def sql(*, schema: str, from_revision: str, to_revision: str) -> None:
    """
    Print a migration as a script for psql, for review; needs no database.

    A comment above each statement says which lock it takes, and what that blocks.
    """
    script = migrations.sql(
        schema=schema, from_revision=from_revision, to_revision=to_revision
    )
    sys.stdout.buffer.write(script.encode())


@migrate.command()
@target
@click.option("--timeout", type=DURATION, help="Give up after this long. [never]")
@as_json
@click.pass_context
def wait(
    context: click.Context, where: Target, *, timeout: timedelta | None, json: bool
) -> None:
    """
    Wait until somebody else has migrated the schema, for this code or newer.

    For what starts beside the step that migrates. Exits with 0, else as `check`: 11, 12
    or 13; with 6 if the database could not be reached in time.
    """
    try:
        found = migrations.wait(where.dsn, schema=where.schema, timeout=timeout)
    except SchemaError as error:
        output.tell_error(error.code, str(error), as_json=json)
        context.exit(_EXITS[_STATES[type(error)]])
    if json:
        output.print_json({"revision": found, "head": migrations.head()})
    else:
        output.print_line(f"{where.schema} is at {found}")
