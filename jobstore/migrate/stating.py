"""
How each revision tells, in the schema itself, which code works on it.
"""

from typing import Any

from alembic.runtime.migration import MigrationContext, MigrationInfo

from jobstore.postgres import window
from jobstore.postgres.schema import Schema

__all__ = ["stating"]


class stating:  # noqa: N801 - read as what it does: on_version_apply=stating(schema)
    """
    For Alembic's ``on_version_apply``: state the window, in the step's own transaction.
    """

    def __init__(self, schema: str) -> None:
        self._schema = Schema(schema)

    def __call__(self, *, ctx: MigrationContext, step: MigrationInfo, **_: Any) -> None:
        reached: Any = step.up_revision
        if not step.is_upgrade:
            reached = next(iter(step.down_revisions), None)
        if reached is None:
            text = window.statement(self._schema, None, "")
        else:
            oldest = reached.module.compatible_from
            text = window.statement(self._schema, reached.revision, oldest)
        # Alembic reads :name as a parameter.
        ctx.execute(text.replace(":", r"\:"))
