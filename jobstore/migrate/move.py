"""
Up and down the chain, with retries, so that nobody waits long behind a migration.
"""

import contextlib
import threading
import time
from collections.abc import Callable

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, PendingRollbackError

from jobstore.errors import (
    InvalidInput,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StoreBusy,
)
from jobstore.migrate.chain import config_of, head
from jobstore.migrate.connection import LOCK_TIMEOUT_MS, migrating
from jobstore.migrate.state import current, is_known, require_current
from jobstore.model import check_flag
from jobstore.postgres.schema import Schema
from jobstore.postgres.translate import fault_of, translate

__all__ = ["downgrade", "upgrade"]

_TRIES = 60
_RETRIED = frozenset({"55P03", "40P01", "57014"})

# Alembic keeps the running migration in module globals: one at a time in a process.
_in_process = threading.RLock()


def upgrade(
    target: str | Engine, *, schema: str = "jobstore", revision: str = "head"
) -> str | None:
    """
    Bring *schema* up to *revision*, creating it if need be.

    Args:
        target: A DSN or an engine; the role must own the schema or may create it.
        schema: The schema that holds, or will hold, jobstore's tables.
        revision: A revision id, ``head``, or ``+1``.

    Returns:
        The revision that the schema is at afterwards.

    Raises:
        StoreBusy: Another migrator kept the lock for ten minutes, or a table lock
            could not be had within a minute of tries. What was committed stays;
            call again.
        StoreUnavailable: The database could not be reached.
        StoreFault: The database refused it; the role lacks a right, for example.
        SchemaTooNew: The schema is at a revision of a newer release, on which this code
            does not work; it is left alone.
        InvalidInput: There is no such revision on the way.

    Guarantees:
        Atomic: Each revision is one transaction, unless it says otherwise itself.
        Repeat: At *revision* already, or at a later one that allows this code, it
            returns without taking any lock.
    """
    Schema(schema)  # refuses a name that is none, before anything is sent
    _check_revision(revision)
    if revision == "head":
        # Old code that starts again beside the new one has nothing to do here.
        with contextlib.suppress(SchemaMissing, SchemaOutdated):
            return require_current(target, schema=schema)
    _with_retries(
        target, schema, revision, lambda config: command.upgrade(config, revision)
    )
    return current(target, schema=schema)


def downgrade(
    target: str | Engine,
    revision: str,
    *,
    schema: str = "jobstore",
    allow_data_loss: bool = False,
) -> str | None:
    """
    Take *schema* back to *revision* (``base`` for none).

    Raises:
        SchemaError: The way down would lose jobs, or the audit, and *allow_data_loss*
            is False. Nothing was done.
        StoreBusy, StoreUnavailable, StoreFault, SchemaTooNew, InvalidInput: As in
            `upgrade`.
    """
    Schema(schema)
    _check_revision(revision)
    check_flag("allow_data_loss", allow_data_loss)
    x_arguments = ["allow-data-loss=yes"] if allow_data_loss else []

    def run(config: Config) -> None:
        if not allow_data_loss:
            _refuse_losses(config, current(target, schema=schema), revision)
        command.downgrade(config, revision)

    try:
        _with_retries(target, schema, revision, run, x_arguments)
    except RuntimeError as error:
        raise SchemaError(str(error)) from None
    return current(target, schema=schema)


def _check_revision(revision: object) -> None:
    # Whether there is one of this name, Alembic says on the way.
    if not isinstance(revision, str) or not revision:
        raise InvalidInput("revision", revision, "must be the name of a revision")


def _refuse_losses(config: Config, found: str | None, revision: str) -> None:
    """
    Ask every revision on the way down before the first step is made.

    Each asks again in its own transaction, before it drops anything.
    """
    if found is None:
        return
    connection, schema = config.attributes["connection"], config.attributes["schema"]
    scripts = ScriptDirectory.from_config(config)
    try:
        steps = list(scripts.iterate_revisions(found, revision))
    except RevisionError:
        return  # there is no such way; Alembic's command says so
    with connection.begin():
        for script in steps:
            ask = getattr(script.module, "refusal", None)
            reason = None if ask is None else ask(connection, schema)
            if reason is not None:
                raise RuntimeError(reason)


def _with_retries(
    target: str | Engine,
    schema: str,
    revision: str,
    run: Callable[[Config], None],
    x_arguments: list[str] | None = None,
) -> None:
    for attempt in range(1, _TRIES + 1):
        try:
            with _in_process, migrating(target, schema=schema) as connection:
                config = config_of(schema, x_arguments)
                config.attributes["connection"] = connection
                run(config)
        except (DBAPIError, PendingRollbackError) as raised:
            error = _cause(raised)
            sqlstate = getattr(getattr(error, "orig", None), "sqlstate", None)
            if sqlstate not in _RETRIED:
                raise translate(error, fault_of(error), writes=True) from None
            if attempt == _TRIES:
                message = (
                    f"a table lock in schema {schema} could not be had in {_TRIES} "
                    "tries; look for idle transactions in pg_stat_activity"
                )
                raise StoreBusy(message) from None
            # A pause as long as the wait was: claims that queued behind it get
            # through before the next try.
            time.sleep(LOCK_TIMEOUT_MS / 1000)
        except CommandError as error:
            found = current(target, schema=schema)
            if found is not None and not is_known(found):
                raise SchemaTooNew(
                    f"schema {schema} is at {found}, which is newer than this code "
                    f"knows ({head()}): leave it to newer code"
                ) from None
            raise InvalidInput("revision", revision, str(error)) from None
        else:
            return


def _cause(error: BaseException) -> Exception:
    """
    Find what the server said; Alembic's tidying up after it may have failed in turn.
    """
    found: BaseException | None = error
    while isinstance(found, PendingRollbackError):
        found = found.__context__
    assert isinstance(found, Exception), "a rollback pends because of an error"
    return found
