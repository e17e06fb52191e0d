"""
The PostgreSQL stores under test; by hand means psycopg, beside the store.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from psycopg import sql

from jobstore import AsyncPostgresStore, PostgresStore
from jobstore.store import Store
from jobstore.testing import (
    MAX_PAYLOAD_BYTES,
    RETRY,
    Harness,
    Verb,
    awaited,
    together,
)
from tests import servers

__all__ = ["AsyncPostgresHarness", "PostgresHarness"]

_UPDATE = "UPDATE {s}.job SET {c} WHERE id = %(id)s"
AGED = ("heartbeat_at", "available_at", "finished_at")


class PostgresHarness(Harness):
    def __init__(self, dsn: str, schema: str, *, as_role: str | None = None) -> None:
        """
        Open a store as *as_role* logs in, if the hand behind it needs more rights.
        """
        self._schema = schema
        self._hand = servers.connect(dsn)
        self.store = self.open(as_role or dsn)

    def open(self, dsn: str) -> Store:
        return PostgresStore(
            dsn,
            schema=self._schema,
            retry=RETRY,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
            wake_ups=False,
        )

    def age(self, job_id: str, by: timedelta) -> None:
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = {0} - %(by)s::interval").format(sql.Identifier(name))
            for name in AGED
        )
        self._execute(
            "UPDATE {s}.job SET {c} WHERE id = %(id)s", job_id, changes, by=by
        )

    def edit(self, job_id: str, **columns: object) -> None:
        changes = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in columns
        )
        self._execute(_UPDATE, job_id, changes, **columns)

    def remove_payload(self, job_id: str) -> None:
        self._execute("DELETE FROM {s}.payload WHERE job_id = %(id)s", job_id)

    def delete(self, job_id: str) -> None:
        self._execute("DELETE FROM {s}.job WHERE id = %(id)s", job_id)

    def close(self) -> None:
        super().close()
        self._hand.close()

    def _execute(
        self,
        text: str,
        job_id: str,
        changes: sql.Composable | None = None,
        **values: object,
    ) -> None:
        statement = sql.SQL(text).format(
            s=sql.Identifier(self._schema), c=changes or ""
        )
        done = self._hand.execute(statement, {"id": job_id, **values})
        assert done.rowcount == 1, "the job is there to be changed by hand"


class AsyncPostgresHarness(PostgresHarness):
    def open(self, dsn: str) -> Store:
        self._runner = asyncio.Runner()
        twin = AsyncPostgresStore(
            dsn,
            schema=self._schema,
            retry=RETRY,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
            wake_ups=False,
        )
        self._twin = twin
        return awaited(twin, self._runner)

    def at_once(self, verbs: Sequence[Verb]) -> list[Any]:
        return together(self._twin, self._runner, verbs)

    def close(self) -> None:
        super().close()
        self._runner.close()
