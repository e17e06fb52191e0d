"""
Migrating from the shell.
"""

from dataclasses import asdict

import click

from jobstore import migrate as migrations
from jobstore.cli import output
from jobstore.cli.options import Target, as_json, target

__all__ = ["migrate"]


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
def check(where: Target, *, json: bool) -> None:
    """
    Succeed if the schema is what this code needs; else exit with 7.
    """
    found = migrations.require_current(where.dsn, schema=where.schema)
    if json:
        output.print_json({"revision": found, "head": migrations.head()})
    else:
        output.print_line(f"{where.schema} is at {found}")
