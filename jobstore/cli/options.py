"""
Options that many commands share, and the store they lead to.

Settings come from flags, then from the environment, then from the defaults shown by
``--help``; from nowhere else.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import click

from jobstore.lifecycle import JobClass
from jobstore.postgres import PostgresStore

__all__ = ["Target", "as_json", "job_class", "schema", "target"]

F = TypeVar("F", bound=Callable[..., Any])

_NO_DSN = """\
no database: give --dsn or set JOBSTORE_DSN, for example
  export JOBSTORE_DSN=postgresql://user@localhost:5432/database
No PostgreSQL at hand? `jobstore up FOLDER` starts one and prints its DSN."""


@dataclass(frozen=True, slots=True)
class Target:
    """
    The database and the schema that a command works on.
    """

    dsn: str = field(repr=False)
    schema: str
    through_pooler: bool

    @contextmanager
    def store(self, *, pool_size: int = 10) -> Iterator[PostgresStore]:
        """
        Lend a store; it is closed afterwards.
        """
        store = PostgresStore(
            self.dsn,
            schema=self.schema,
            through_pooler=self.through_pooler,
            pool_size=pool_size,
        )
        try:
            yield store
        finally:
            store.close()


schema = click.option(
    "--schema",
    envvar="JOBSTORE_SCHEMA",
    default="jobstore",
    show_default=True,
    help="The schema with the tables. [JOBSTORE_SCHEMA]",
)
"""Give a command the option ``--schema``; `target` does so, too."""


def target(command: F) -> F:
    """
    Give *command* a first argument, the `Target`.
    """

    @click.option("--dsn", envvar="JOBSTORE_DSN", help="The database. [JOBSTORE_DSN]")
    @schema
    @click.option(
        "--through-pooler/--no-through-pooler",
        envvar="JOBSTORE_THROUGH_POOLER",
        default=False,
        help="The DSN leads to a pooler in transaction mode. [JOBSTORE_THROUGH_POOLER]",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        dsn: str | None,
        schema: str,
        through_pooler: bool,
        **kwargs: Any,
    ) -> Any:
        if not dsn:
            raise click.UsageError(_NO_DSN)
        return command(Target(dsn, schema, through_pooler), *args, **kwargs)

    return cast("F", wrapped)


def as_json(command: F) -> F:
    """
    Give *command* the flag ``--json``.
    """
    return click.option(
        "--json", "json", is_flag=True, help="Print JSON, one stable shape."
    )(command)


def job_class(**options: Any) -> Callable[[F], F]:
    """
    Give a command the option ``--class``.
    """
    return click.option(
        "--class",
        "job_class",
        type=click.Choice([str(one) for one in JobClass]),
        help="Service class.",
        **options,
    )
