"""
What Alembic compares, and what it leaves alone.
"""

from typing import Any

from jobstore.postgres.tables import metadata

__all__ = ["comparison"]


def comparison(schema: str) -> dict[str, Any]:
    """
    Options for Alembic's environment under which it sees this schema alone.

    The database may hold a host application's tables; none of them is looked at.
    """

    def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
        return kind != "schema" or name == schema

    return {
        "target_metadata": metadata(schema),
        "version_table": "jobstore_version",
        "version_table_schema": schema,
        "include_schemas": True,
        "include_name": is_ours,
        "compare_type": True,
        # Defaults are pinned by the golden schema instead: Alembic compares two
        # calls of new_ulid(), which never give the same.
        "compare_server_default": False,
    }
