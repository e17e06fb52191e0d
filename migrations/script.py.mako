"""
${message}.

Locks: what each statement takes and what it blocks.
Duration: on a table of ten million rows.
Undo: how, and what is lost.
"""

from alembic import context, op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
# The oldest code that works on it, as the revision which that code knew best: the one
# before, if this one expands; itself, if it contracts.
compatible_from = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    ${downgrades if downgrades else "raise NotImplementedError"}
