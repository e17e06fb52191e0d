"""
A queue in the middle of its day, for the browser to look at.
"""

from datetime import UTC, datetime, timedelta

import psycopg

from jobstore import NewJob, PostgresStore
from jobstore.lifecycle import JobClass
from jobstore.postgres.schema import Schema
from jobstore.retry import RetryPolicy
from tests.servers import connect

__all__ = ["fill"]

# Jobs that ended in the last hour, in one statement: minute by minute, with a lull, a
# rush and a bad quarter of an hour.
_HISTORY = """
INSERT INTO {s}.job (
    id, kind, queue, tenant, job_class, status, attempts, fence, worker,
    created_at, updated_at, started_at, finished_at, error_code, error_message
)
SELECT substr({s}.ulid_at(made.at), 1, 10) || substr({s}.new_ulid(), 11),
    (ARRAY['page', 'page', 'page', 'document', 'thumbnail'])[1 + n % 5],
    (ARRAY['ocr', 'ocr', 'mail', 'default'])[1 + n % 4],
    (ARRAY['acme', 'globex', 'initech', 'umbrella'])[1 + n % 4],
    (ARRAY['interactive', 'batch', 'system'])[1 + n % 3],
    ended.status, 1, 1, 'worker-' || n % 3,
    made.at, made.at + interval '20 s', made.at + interval '8 s', made.at + interval '20 s',
    CASE ended.status WHEN 'failed' THEN
        (ARRAY['E_TIMEOUT', 'E_TIMEOUT', 'E_BAD_PDF', 'E_QUOTA'])[1 + n % 4] END,
    CASE ended.status WHEN 'failed' THEN 'upstream did not answer in 30 s' END
FROM generate_series(1, 59) AS m
CROSS JOIN LATERAL generate_series(
    1, (18 + 14 * sin(m / 6.0) + 5 * cos(m * 2.7) + CASE WHEN m BETWEEN 36 AND 40 THEN 34 ELSE 0 END)::int
) AS n
CROSS JOIN LATERAL (
    SELECT statement_timestamp() - m * interval '1 minute' + n * interval '700 ms' - interval '40 s' AS at
) AS made
CROSS JOIN LATERAL (
    SELECT CASE WHEN m BETWEEN 12 AND 24 AND n % 5 = 0 OR (n + m) % 41 = 0 THEN 'failed'
        WHEN (n * 7 + m) % 47 = 0 THEN 'cancelled' ELSE 'completed' END AS status
) AS ended
"""  # noqa: E501


# A life of milliseconds, drawn out to three quarters of an hour.
_STRETCHED = """
WITH times AS (
    UPDATE {s}.attempt
    SET started_at = statement_timestamp() - interval '44 min' + fence * fence * interval '4 min',
        ended_at = statement_timestamp() - interval '42 min' + fence * fence * interval '4.2 min'
    WHERE job_id = %(id)s
    RETURNING started_at, ended_at
)
UPDATE {s}.job
SET created_at = statement_timestamp() - interval '44 min',
    started_at = (SELECT max(times.started_at) FROM times),
    finished_at = CASE WHEN finished_at IS NOT NULL
        THEN (SELECT max(times.ended_at) FROM times) END
WHERE id = %(id)s
"""  # noqa: E501


def fill(dsn: str, schema: str) -> dict[str, str]:
    """
    Fill the schema; return the ids of jobs worth a visit, by name.
    """
    store = PostgresStore(
        dsn, schema=schema, wake_ups=False, retry=RetryPolicy(jitter=0)
    )
    try:
        with connect(dsn) as connection:
            connection.execute(_HISTORY.replace("{s}", Schema(schema).quoted).encode())
            return _open_jobs(store, connection, schema)
    finally:
        store.close()


def _open_jobs(
    store: PostgresStore,
    connection: "psycopg.Connection[tuple[object, ...]]",
    schema: str,
) -> dict[str, str]:
    ids: dict[str, str] = {}
    table = f"{Schema(schema).quoted}.job"

    def age(job_id: str, column: str, by: timedelta) -> None:
        connection.execute(
            f"UPDATE {table} SET {column} = {column} - %s WHERE id = %s".encode(),
            [by, job_id],
        )

    parent = store.create(
        NewJob(
            kind="document",
            queue="families",
            tenant="acme",
            payload=b"%PDF-1.7" * 400,
            content_type="application/pdf",
            idem_key="invoice-17",
        )
    ).job
    claim = store.claim_next(queue="families", worker="worker-1")
    assert claim is not None
    children = [
        claim.job.child(kind="page", pages=[n], payload=b"x") for n in (1, 2, 3)
    ]
    pages = store.fan_out(claim.lease, children)
    ids["parent"] = parent.id
    one = store.claim_next(queue="families", worker="worker-2")
    assert one is not None
    store.complete(one.lease, b"text of page 1")
    ids["completed"] = one.job.id
    two = store.claim_next(queue="families", worker="worker-2")
    assert two is not None
    store.fail(
        two.lease,
        error_code="E_TIMEOUT",
        error_message="upstream did not answer in 30 s",
        retry_in=timedelta(minutes=4),
    )
    ids["retried"] = two.job.id
    ids["child"] = pages[2].job.id

    for number in range(24):
        job = store.create(
            NewJob(
                kind="page",
                queue=("ocr", "mail", "default")[number % 3],
                tenant=("acme", "globex", "initech")[number % 3],
                job_class=list(JobClass)[number % 3],
            )
        ).job
        age(job.id, "updated_at", timedelta(seconds=7 * number))
    late = store.create(
        NewJob(
            kind="preview", queue="ocr", tenant="acme", job_class=JobClass.INTERACTIVE
        )
    ).job
    age(late.id, "updated_at", timedelta(minutes=3))
    ids["queued"] = late.id
    for worker in ("worker-1", "worker-2", "worker-3"):
        held = store.claim_next(queue="mail", worker=worker)
        assert held is not None
        ids["running"] = held.job.id
        if worker == "worker-3":
            age(held.job.id, "heartbeat_at", timedelta(minutes=6))
            age(held.job.id, "started_at", timedelta(minutes=9))
    for hours in (1, 5, 30):
        due = datetime.now(UTC) + timedelta(hours=hours)
        job = store.create(
            NewJob(kind="report", queue="default", tenant="globex", available_at=due)
        ).job
        ids["scheduled"] = job.id
    store.create(NewJob(kind="document", queue="dead", tenant="umbrella"))
    dead = store.claim_next(queue="dead", worker="worker-9")
    assert dead is not None
    for _ in range(2):
        store.fail(
            dead.lease,
            error_code="E_BAD_PDF",
            error_message="page 3 has no content stream",
            retry_in=timedelta(0),
        )
        again = store.claim_next(queue="dead", worker="worker-9")
        assert again is not None
        dead = again
    store.fail(
        dead.lease,
        error_code="E_BAD_PDF",
        error_message="page 3 has no content stream",
        final=True,
    )
    ids["failed"] = dead.job.id
    for job_id in (ids["failed"], ids["parent"], ids["retried"]):
        connection.execute(
            _STRETCHED.replace("{s}", Schema(schema).quoted).encode(), {"id": job_id}
        )
    return ids
