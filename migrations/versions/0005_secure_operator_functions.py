"""
Let the functions that write run with their owner's rights, for those who were named.

An operator then needs no right to write on any table: what he does goes through the
guards, and into the audit, or not at all. Nobody but the owner may call them until the
right to is granted; `jobstore grants` does.

Locks: none that a store or a view would wait for.
Duration: milliseconds.
Undo: they run with the caller's rights again, and everybody may call them, as before;
what was granted stays. No job is touched.
"""

from alembic import context, op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
# The oldest code that works on it, as the revision which that code knew best.
compatible_from = "0001"

# Each sets its own search_path, so that no caller can make it mean other tables.
WRITING = (
    "requeue_job(text, text, boolean)",
    "cancel_job(text, text, boolean)",
    "release_worker(text, text, boolean, interval, integer)",
    "retry_failed(text, boolean, text, text, text, text, timestamptz, timestamptz, integer)",
)


def upgrade() -> None:
    for signature in WRITING:
        # First: at no time may everybody call it with the owner's rights.
        _run(f"REVOKE EXECUTE ON FUNCTION {{s}}.{signature} FROM PUBLIC")
        _run(f"ALTER FUNCTION {{s}}.{signature} SECURITY DEFINER")


def downgrade() -> None:
    for signature in WRITING:
        _run(f"ALTER FUNCTION {{s}}.{signature} SECURITY INVOKER")
        _run(f"GRANT EXECUTE ON FUNCTION {{s}}.{signature} TO PUBLIC")


def _run(sql: str) -> None:
    quoted = '"' + context.config.attributes["schema"].replace('"', '""') + '"'
    op.execute(sql.replace("{s}", quoted).replace(":", r"\:"))
