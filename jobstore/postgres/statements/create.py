"""
Submitting.
"""

from jobstore.postgres.rows import JOB_COLUMNS

__all__ = [
    "CREATE_JOB",
    "CREATE_JOBS",
    "FIND_BY_ID",
    "FIND_BY_KEY",
    "GROW_PARENTS",
    "LOCK_PARENTS",
    "NEW_COLUMNS",
]

NEW_COLUMNS = """
    id, tenant, idem_key, queue, kind, job_class, status, max_attempts,
    available_at, parent_id, pages, traceparent
"""

# One job, its payload and, if it has one, its key. No row comes back when the key is
# taken: what holds it is then read by FIND_BY_KEY, a statement of its own, since this
# one's snapshot is older than the winner's commit.
# Locks: waits for an uncommitted insert of the same key. Index: idempotency_key_pkey.
CREATE_JOB = f"""
WITH keyed AS (
    INSERT INTO {{s}}.idempotency_key (tenant, idem_key, job_id, fingerprint)
    SELECT %(tenant)s, %(idem_key)s, %(job_id)s, %(fingerprint)s
    WHERE %(idem_key)s::text IS NOT NULL
    ON CONFLICT (tenant, idem_key) DO NOTHING
    RETURNING job_id
), created AS (
    INSERT INTO {{s}}.job ({NEW_COLUMNS})
    SELECT
        %(job_id)s, %(tenant)s, %(idem_key)s, %(queue)s, %(kind)s, %(job_class)s,
        CASE WHEN %(available_at)s::timestamptz > statement_timestamp()
             OR %(delay)s::float8 > 0
             THEN 'scheduled' ELSE 'queued' END,
        %(max_attempts)s,
        coalesce(
            %(available_at)s::timestamptz,
            -- By seconds: a day is not 24 hours in every session's time zone.
            statement_timestamp()
                + make_interval(secs => coalesce(%(delay)s::float8, 0))
        ),
        %(parent_id)s, %(pages)b::int[], %(traceparent)s
    WHERE %(idem_key)s::text IS NULL OR EXISTS (SELECT FROM keyed)
    RETURNING id, status, created_at
), stored AS (
    INSERT INTO {{s}}.payload (job_id, content_type, data)
    SELECT created.id, %(content_type)s, %(payload)s
    FROM created
)
SELECT status, created_at FROM created
"""

# The same for many: the ids of what was created, of that what is due later, and the
# created_at of all, in one row: a thousand would take as long to read as to insert.
# What all jobs have in common is said once, beside an array that is empty: unnest fills
# it up with NULL. For a thousand jobs that is a third of the time.
# Keys are inserted in one order, so that two creators of the same keys wait for each
# other instead of deadlocking.
CREATE_JOBS = f"""
WITH asked AS MATERIALIZED (
    SELECT
        id,
        coalesce(tenant, %(tenant)s::text) AS tenant,
        coalesce(idem_key, %(idem_key)s::text) AS idem_key,
        coalesce(fingerprint, %(fingerprint)b::bytea) AS fingerprint,
        coalesce(queue, %(queue)s::text) AS queue,
        coalesce(kind, %(kind)s::text) AS kind,
        coalesce(job_class, %(job_class)s::text) AS job_class,
        coalesce(max_attempts, %(max_attempts)s::int) AS max_attempts,
        coalesce(
            available_at, %(available_at)s::timestamptz,
            statement_timestamp() + make_interval(secs => coalesce(
                delay, %(delay)s::float8, 0
            ))
        ) AS available_at,
        coalesce(parent_id, %(parent_id)s::text) AS parent_id,
        coalesce(pages, %(pages)s::text) AS pages,
        coalesce(traceparent, %(traceparent)s::text) AS traceparent,
        coalesce(content_type, %(content_type)s::text) AS content_type,
        data
    FROM unnest(
        %(job_ids)b::text[], %(tenants)b::text[], %(idem_keys)b::text[],
        %(fingerprints)b::bytea[], %(queues)b::text[], %(kinds)b::text[],
        %(job_classes)b::text[], %(limits_of_attempts)b::int[],
        %(available_ats)s::timestamptz[], %(delays)b::float8[], %(parent_ids)b::text[],
        %(pages_of_jobs)b::text[], %(traceparents)b::text[],
        %(content_types)b::text[], %(payloads)b::bytea[]
    ) AS asked (
        id, tenant, idem_key, fingerprint, queue, kind, job_class, max_attempts,
        available_at, delay, parent_id, pages, traceparent, content_type, data
    )
), keyed AS (
    INSERT INTO {{s}}.idempotency_key (tenant, idem_key, job_id, fingerprint)
    SELECT tenant, idem_key, id, fingerprint
    FROM asked
    WHERE idem_key IS NOT NULL
    ORDER BY tenant COLLATE "C", idem_key COLLATE "C", id COLLATE "C"
    ON CONFLICT (tenant, idem_key) DO NOTHING
    RETURNING job_id
), created AS (
    INSERT INTO {{s}}.job ({NEW_COLUMNS})
    SELECT
        id, tenant, idem_key, queue, kind, job_class,
        CASE WHEN available_at > statement_timestamp()
             THEN 'scheduled' ELSE 'queued' END,
        max_attempts, available_at, parent_id, pages::int[], traceparent
    FROM asked
    WHERE idem_key IS NULL OR id IN (SELECT job_id FROM keyed)
    RETURNING id, status
), stored AS (
    INSERT INTO {{s}}.payload (job_id, content_type, data)
    SELECT asked.id, asked.content_type, asked.data
    FROM asked JOIN created USING (id)
)
SELECT
    array_agg(id),
    array_agg(id) FILTER (WHERE status = 'scheduled'),
    statement_timestamp()
FROM created
"""

# What holds these keys. Index: idempotency_key_pkey, then job_pkey.
FIND_BY_KEY = f"""
SELECT asked.place, held.fingerprint, held.job_id, {JOB_COLUMNS}
FROM unnest(%(tenants)b::text[], %(idem_keys)b::text[])
    WITH ORDINALITY AS asked (tenant, idem_key, place)
CROSS JOIN LATERAL (
    SELECT * FROM {{s}}.idempotency_key AS key
    WHERE key.tenant = asked.tenant AND key.idem_key = asked.idem_key
) AS held
LEFT JOIN LATERAL (
    SELECT * FROM {{s}}.job WHERE job.id = held.job_id
) AS job ON true
"""

FIND_BY_ID = f"SELECT {JOB_COLUMNS} FROM {{s}}.job WHERE id = ANY(%(job_ids)b::text[])"

# Parents that are to get children: held so that they cannot end meanwhile.
# Locks: the rows, against writers, not against the key shares of foreign keys.
LOCK_PARENTS = """
SELECT id, tenant, status FROM {s}.job
WHERE id = ANY(%(parent_ids)b::text[])
ORDER BY id
FOR NO KEY UPDATE
"""

GROW_PARENTS = """
UPDATE {s}.job
SET children_total = children_total + grown.children,
    children_open = children_open + grown.children,
    updated_at = statement_timestamp()
FROM unnest(%(parent_ids)b::text[], %(children)b::int[]) AS grown (id, children)
WHERE job.id = grown.id
"""
