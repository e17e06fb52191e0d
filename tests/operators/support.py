"""
Help for these tests: a store with its schema, jobs brought into any state, and SQL.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql

from jobstore.model import ChildFailure, Claim, Job, NewJob
from jobstore.postgres import PostgresStore
from jobstore.retry import RetryPolicy
from tests import servers

Rows = list[tuple[Any, ...]]


@dataclasses.dataclass
class Place:
    """
    A schema with a store on it and an operator's connection to it.
    """

    store: PostgresStore
    connection: "psycopg.Connection[tuple[Any, ...]]"
    schema: str

    def ask(self, query: str, *parameters: object) -> Rows:
        """
        Run *query* as an operator would, with the schema as {s}, and return its rows.
        """
        quoted = sql.Identifier(self.schema).as_string(self.connection)
        if parameters:
            quoted = quoted.replace("%", "%%")
        text = query.replace("{s}", quoted)
        cursor = self.connection.execute(text.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *parameters: object) -> Any:
        return self.ask(query, *parameters)[0][0]

    def columns(self, view: str) -> list[str]:
        cursor = self.connection.execute(
            sql.SQL("SELECT * FROM {} LIMIT 0").format(
                sql.Identifier(self.schema, view)
            )
        )
        return [column.name for column in cursor.description or ()]

    # -- jobs in every state ---------------------------------------------------

    def add(self, kind: str = "work", **fields: Any) -> Job:
        return self.store.create(NewJob(kind=kind, **fields)).job

    def claim(self, worker: str = "w1", queue: str = "default", **more: Any) -> Claim:
        claim = self.store.claim_next(worker=worker, queue=queue, **more)
        assert claim is not None
        return claim

    def fail(self, claim: Claim, *, code: str = "E_BROKEN", final: bool = True) -> None:
        self.store.fail(
            claim.lease,
            error_code=code,
            error_message="it broke",
            final=final,
            retry_in=timedelta(hours=1),
        )

    def fan_out(
        self,
        claim: Claim,
        kinds: Sequence[str],
        policy: ChildFailure = ChildFailure.RESUME,
    ) -> list[Job]:
        children = [claim.job.child(kind=kind) for kind in kinds]
        made = self.store.fan_out(claim.lease, children, on_child_failure=policy)
        return [one.job for one in made]

    def silence(self, job_id: str, seconds: float) -> None:
        """
        Make the holder of a job look silent for so long.
        """
        self.ask(
            "UPDATE {s}.job SET heartbeat_at = heartbeat_at - %s WHERE id = %s",
            timedelta(seconds=seconds),
            job_id,
        )

    def age(self, job_id: str, **by: timedelta) -> None:
        """
        Move instants of a job into the past: ``age(id, updated_at=timedelta(...))``.
        """
        for column, length in by.items():
            statement = sql.SQL("UPDATE {} SET {} = {} - %s WHERE id = %s").format(
                sql.Identifier(self.schema, "job"),
                sql.Identifier(column),
                sql.Identifier(column),
            )
            self.connection.execute(statement, [length, job_id])

    def dump(self) -> dict[str, Rows]:
        """
        Return all that the verbs write, told apart by kind instead of id, timeless.
        """
        jobs = self.ask("""
            SELECT kind, status, attempts, max_attempts, fence,
                (SELECT kind FROM {s}.job AS parent WHERE parent.id = job.parent_id),
                on_child_failure, children_total, children_open, children_failed,
                result, error_code, error_message, worker, lease,
                heartbeat_at IS NULL, finished_at IS NULL, started_at IS NULL,
                available_at <= statement_timestamp(), queue, job_class, tenant
            FROM {s}.job ORDER BY job.kind, job.id
        """)
        attempts = self.ask("""
            SELECT kind, attempt.fence, attempt.attempt, attempt.worker, outcome,
                attempt.error_code, attempt.error_message
            FROM {s}.attempt JOIN {s}.job ON job.id = attempt.job_id
            ORDER BY kind, job.id, attempt.fence
        """)
        return {"job": jobs, "attempt": attempts}

    def empty(self) -> None:
        self.ask(
            "TRUNCATE {s}.job, {s}.payload, {s}.idempotency_key, {s}.attempt, {s}.audit"
        )


def open_place(dsn: str, schema: str) -> Iterator[Place]:
    """
    Open a store and a connection on *schema* for a while.
    """
    store = PostgresStore(
        dsn, schema=schema, wake_ups=False, retry=RetryPolicy(jitter=0)
    )
    with servers.connect(dsn) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield Place(store, connection, schema)
    store.close()


__all__ = ["Place", "Rows", "open_place"]
