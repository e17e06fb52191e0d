"""
Create the job store: jobs, payloads, idempotency keys, history of attempts.

Locks: none that matter, all objects are new.
Duration: milliseconds.
Undo: drops the tables and with them every job. Refused while jobs exist, unless
``-x allow-data-loss=yes`` is given.
"""

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
# The oldest code that works on it, as the revision which that code knew best.
compatible_from = "0001"

# {s} stands for the quoted schema. All text is COLLATE "C": comparison byte by
# byte, the same on every server and in Python.
UPGRADE = r"""
CREATE FUNCTION {s}.new_ulid() RETURNS text
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN (
        SELECT string_agg(
            substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (bits::bit(5))::int + 1, 1),
            '' ORDER BY place
        ) COLLATE "C"
        FROM (
            SELECT place, substr(ulid.bits, place * 5 + 1, 5) AS bits
            FROM (
                SELECT '00'
                    || (extract(epoch FROM clock_timestamp()) * 1000)::bigint::bit(48)::text
                    || right(('x' || replace(gen_random_uuid()::text, '-', ''))::bit(128)::text, 40)
                    || right(('x' || replace(gen_random_uuid()::text, '-', ''))::bit(128)::text, 40)
                    AS bits
            ) AS ulid, generate_series(0, 25) AS place
        ) AS letters
    );
COMMENT ON FUNCTION {s}.new_ulid() IS
    'A ULID for rows inserted by hand. The library makes its own, which also grow within a process.';

CREATE TABLE {s}.job (
    id                text COLLATE "C" NOT NULL DEFAULT {s}.new_ulid(),
    tenant            text COLLATE "C" NOT NULL DEFAULT 'default',
    idem_key          text COLLATE "C",
    queue             text COLLATE "C" NOT NULL DEFAULT 'default',
    kind              text COLLATE "C" NOT NULL,
    job_class         text COLLATE "C" NOT NULL DEFAULT 'batch',
    class_rank        smallint NOT NULL GENERATED ALWAYS AS (
        CASE job_class WHEN 'interactive' THEN 0 WHEN 'system' THEN 1 ELSE 2 END
    ) STORED,
    status            text COLLATE "C" NOT NULL DEFAULT 'queued',
    attempts          integer NOT NULL DEFAULT 0,
    max_attempts      integer NOT NULL DEFAULT 5,
    fence             bigint NOT NULL DEFAULT 0,
    parent_id         text COLLATE "C",
    pages             integer[] NOT NULL DEFAULT '{}',
    on_child_failure  text COLLATE "C" NOT NULL DEFAULT 'resume',
    children_total    integer NOT NULL DEFAULT 0,
    children_open     integer NOT NULL DEFAULT 0,
    children_failed   integer NOT NULL DEFAULT 0,
    result            bytea,
    error_code        text COLLATE "C",
    error_message     text COLLATE "C",
    created_at        timestamptz NOT NULL DEFAULT statement_timestamp(),
    updated_at        timestamptz NOT NULL DEFAULT statement_timestamp(),
    available_at      timestamptz NOT NULL DEFAULT statement_timestamp(),
    started_at        timestamptz,
    heartbeat_at      timestamptz,
    finished_at       timestamptz,
    worker            text COLLATE "C",
    lease             interval,
    traceparent       text COLLATE "C",

    CONSTRAINT job_pkey PRIMARY KEY (id),
    CONSTRAINT job_parent_fkey FOREIGN KEY (parent_id) REFERENCES {s}.job (id),

    -- A ULID, without a regular expression: this runs at every update too, and that
    -- would take four times as long.
    CONSTRAINT job_id_check CHECK (
        octet_length(id) = 26 AND id < '8'
        AND btrim(id, '0123456789ABCDEFGHJKMNPQRSTVWXYZ') = ''
    ),
    CONSTRAINT job_text_check CHECK (
        octet_length(tenant) BETWEEN 1 AND 255
        AND octet_length(idem_key) BETWEEN 1 AND 1024
        AND octet_length(queue) BETWEEN 1 AND 128
        AND octet_length(kind) BETWEEN 1 AND 255
        AND octet_length(traceparent) <= 255
    ),
    CONSTRAINT job_class_check CHECK (job_class IN ('interactive', 'system', 'batch')),
    CONSTRAINT job_status_check CHECK (status IN (
        'queued', 'scheduled', 'processing', 'waiting',
        'completed', 'failed', 'cancelled'
    )),
    CONSTRAINT job_on_child_failure_check CHECK (on_child_failure IN ('resume', 'fail')),
    CONSTRAINT job_counts_check CHECK (
        attempts >= 0 AND max_attempts >= 1 AND fence >= 0
        AND children_total >= 0 AND children_open >= 0 AND children_failed >= 0
    ),
    CONSTRAINT job_lease_check CHECK (
        (status = 'processing') = (heartbeat_at IS NOT NULL)
        AND (lease IS NULL OR status = 'processing')
        -- A sweep subtracts it from now, which must not leave the calendar.
        AND lease BETWEEN '0' AND '100 years'
    ),
    CONSTRAINT job_started_check CHECK (
        status NOT IN ('processing', 'completed')
        OR (started_at IS NOT NULL AND worker IS NOT NULL AND fence >= 1)
    ),
    CONSTRAINT job_finished_check CHECK (
        (status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)
    ),
    CONSTRAINT job_result_check CHECK (result IS NULL OR status = 'completed'),
    CONSTRAINT job_error_check CHECK (
        (status <> 'failed' OR error_code IS NOT NULL)
        AND (status <> 'completed' OR (error_code IS NULL AND error_message IS NULL))
    ),
    -- What Python's calendar has in every time zone. An instant that can't be read would
    -- break each claim and each list that comes across it, for the other jobs as well.
    CONSTRAINT job_instants_check CHECK (
        least(created_at, updated_at, available_at,
            started_at, heartbeat_at, finished_at) >= '0001-01-02 00:00+00'
        AND greatest(created_at, updated_at, available_at,
            started_at, heartbeat_at, finished_at) < '9999-12-31 00:00+00'
    )
) WITH (
    -- Room on each page for the new versions of its rows: heartbeats stay HOT.
    fillfactor = 80,
    -- A queue turns over many times a day; vacuum by rows touched, not by share.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX job_ready_idx ON {s}.job (queue, class_rank, created_at, id)
    WHERE status = 'queued' AND attempts < max_attempts;
CREATE INDEX job_scheduled_idx ON {s}.job (available_at, id)
    WHERE status = 'scheduled';
CREATE INDEX job_processing_idx ON {s}.job (id)
    WHERE status = 'processing';
CREATE INDEX job_waiting_idx ON {s}.job (id)
    WHERE status = 'waiting';
CREATE INDEX job_exhausted_idx ON {s}.job (id)
    WHERE status = 'queued' AND attempts >= max_attempts;
CREATE INDEX job_failed_idx ON {s}.job (finished_at, id)
    WHERE status = 'failed';
CREATE INDEX job_finished_idx ON {s}.job (finished_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX job_parent_idx ON {s}.job (parent_id, created_at, id)
    WHERE parent_id IS NOT NULL;

CREATE TABLE {s}.payload (
    job_id        text COLLATE "C" NOT NULL,
    content_type  text COLLATE "C" NOT NULL DEFAULT 'application/octet-stream',
    data          bytea NOT NULL,
    CONSTRAINT payload_pkey PRIMARY KEY (job_id),
    CONSTRAINT payload_content_type_check
        CHECK (octet_length(content_type) BETWEEN 1 AND 255)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
-- Payloads are mostly compressed already (PDF, images, archives); trying again
-- costs more time than everything else in a create.
ALTER TABLE {s}.payload ALTER COLUMN data SET STORAGE EXTERNAL;

-- In place of a foreign key, which would look for the job of each new payload: a third
-- of the time of a large batch, for rows that one statement has just written together.
CREATE FUNCTION {s}._delete_payloads() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $function$ BEGIN
        DELETE FROM {s}.payload WHERE job_id = ANY (ARRAY(SELECT id FROM gone)); RETURN NULL; END $function$;
-- Not TRUNCATE: that refuses a table which the same command has truncated already.
CREATE FUNCTION {s}._truncate_payloads() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $function$ BEGIN DELETE FROM {s}.payload; RETURN NULL; END $function$;
-- Else anybody could hang them on a table of his own.
REVOKE ALL ON FUNCTION {s}._delete_payloads(), {s}._truncate_payloads() FROM PUBLIC;
CREATE TRIGGER job_deleted AFTER DELETE ON {s}.job REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION {s}._delete_payloads();
CREATE TRIGGER job_truncated AFTER TRUNCATE ON {s}.job
    FOR EACH STATEMENT EXECUTE FUNCTION {s}._truncate_payloads();
COMMENT ON FUNCTION {s}._delete_payloads() IS 'Has the payloads of deleted jobs go with them.';
COMMENT ON FUNCTION {s}._truncate_payloads() IS 'Has all payloads go when the table of jobs is truncated.';

CREATE TABLE {s}.idempotency_key (
    tenant       text COLLATE "C" NOT NULL,
    idem_key     text COLLATE "C" NOT NULL,
    job_id       text COLLATE "C" NOT NULL,
    fingerprint  bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT statement_timestamp(),
    expires_at   timestamptz,
    CONSTRAINT idempotency_key_pkey PRIMARY KEY (tenant, idem_key),
    CONSTRAINT idempotency_key_text_check CHECK (
        octet_length(tenant) BETWEEN 1 AND 255
        AND octet_length(idem_key) BETWEEN 1 AND 1024
    ),
    CONSTRAINT idempotency_key_fingerprint_check CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT idempotency_key_instants_check CHECK (
        created_at >= '0001-01-02 00:00+00' AND created_at < '9999-12-31 00:00+00'
    )
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX idempotency_key_expiry_idx ON {s}.idempotency_key (expires_at)
    WHERE expires_at IS NOT NULL;

CREATE TABLE {s}.attempt (
    job_id         text COLLATE "C" NOT NULL,
    fence          bigint NOT NULL,
    attempt        integer NOT NULL,
    worker         text COLLATE "C",
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz NOT NULL,
    outcome        text COLLATE "C" NOT NULL,
    error_code     text COLLATE "C",
    error_message  text COLLATE "C",
    CONSTRAINT attempt_pkey PRIMARY KEY (job_id, fence),
    CONSTRAINT attempt_job_fkey FOREIGN KEY (job_id)
        REFERENCES {s}.job (id) ON DELETE CASCADE,
    CONSTRAINT attempt_outcome_check CHECK (outcome IN (
        'failed', 'lease_expired', 'released', 'snoozed', 'waiting', 'cancelled'
    )),
    CONSTRAINT attempt_instants_check CHECK (
        least(started_at, ended_at) >= '0001-01-02 00:00+00'
        AND greatest(started_at, ended_at) < '9999-12-31 00:00+00'
    )
) WITH (autovacuum_vacuum_scale_factor = 0.05);

COMMENT ON TABLE {s}.job IS
    'One row for each job: what it is, where it is in its life, who holds it. Its payload is in the table payload.';
COMMENT ON COLUMN {s}.job.id IS 'ULID: 26 characters that sort by the time of creation.';
COMMENT ON COLUMN {s}.job.tenant IS 'Whose job it is; idempotency keys count within one tenant.';
COMMENT ON COLUMN {s}.job.idem_key IS 'The idempotency key it was created with; NULL: never deduplicated. The rule is enforced by the table idempotency_key.';
COMMENT ON COLUMN {s}.job.queue IS 'Routing name; workers claim from the queues they name.';
COMMENT ON COLUMN {s}.job.kind IS 'Label by which a worker finds the handler.';
COMMENT ON COLUMN {s}.job.job_class IS 'Service class: interactive before system before batch.';
COMMENT ON COLUMN {s}.job.class_rank IS 'The class as a number, first part of the claim order; follows job_class by itself.';
COMMENT ON COLUMN {s}.job.status IS 'queued: ready. scheduled: due at available_at. processing: held by a worker. waiting: for its children. completed, failed, cancelled: ended.';
COMMENT ON COLUMN {s}.job.attempts IS 'Attempts charged so far, the running one included; counted when claimed.';
COMMENT ON COLUMN {s}.job.max_attempts IS 'At this many attempts a failure is final.';
COMMENT ON COLUMN {s}.job.fence IS 'Fencing token: grows by one at each claim and never goes down; a worker''s write must carry the present one.';
COMMENT ON COLUMN {s}.job.parent_id IS 'The job that this one is a part of.';
COMMENT ON COLUMN {s}.job.pages IS 'Page numbers of the document that this job covers.';
COMMENT ON COLUMN {s}.job.on_child_failure IS 'When the last child has ended and not all completed: resume (queue the parent again) or fail.';
COMMENT ON COLUMN {s}.job.children_total IS 'Children ever created under this job.';
COMMENT ON COLUMN {s}.job.children_open IS 'Children that have not ended; at 0 a waiting parent goes on.';
COMMENT ON COLUMN {s}.job.children_failed IS 'Children that ended failed or cancelled.';
COMMENT ON COLUMN {s}.job.result IS 'What the handler returned, byte for byte; only on completed jobs.';
COMMENT ON COLUMN {s}.job.error_code IS 'Why it failed, short and stable; on a job that is tried again, why its last attempt did.';
COMMENT ON COLUMN {s}.job.error_message IS 'The same for people; on a cancelled job, the reason that was given.';
COMMENT ON COLUMN {s}.job.created_at IS 'When it was created, by the database''s clock; its place in line, kept through retries.';
COMMENT ON COLUMN {s}.job.updated_at IS 'When this row last changed.';
COMMENT ON COLUMN {s}.job.available_at IS 'Not to be claimed before this instant.';
COMMENT ON COLUMN {s}.job.started_at IS 'When the latest attempt was claimed.';
COMMENT ON COLUMN {s}.job.heartbeat_at IS 'Last sign of life from the holder; set exactly while processing.';
COMMENT ON COLUMN {s}.job.finished_at IS 'When it ended; set exactly when it has ended.';
COMMENT ON COLUMN {s}.job.worker IS 'Who holds it, or held it last; unique for each process start.';
COMMENT ON COLUMN {s}.job.lease IS 'If set, it can''t be reclaimed earlier than this after heartbeat_at.';

COMMENT ON COLUMN {s}.job.traceparent IS 'W3C trace context of whoever submitted it.';

COMMENT ON TABLE {s}.payload IS 'The work itself, one row for each job; goes with its job.';
COMMENT ON COLUMN {s}.payload.job_id IS 'The job.';
COMMENT ON COLUMN {s}.payload.content_type IS 'What the bytes are.';
COMMENT ON COLUMN {s}.payload.data IS 'The bytes as submitted, not compressed.';

COMMENT ON TABLE {s}.idempotency_key IS 'The idempotency index: which job a tenant''s key stands for. It is what makes a repeated create find the first job.';
COMMENT ON COLUMN {s}.idempotency_key.tenant IS 'Whose key it is.';
COMMENT ON COLUMN {s}.idempotency_key.idem_key IS 'The key, compared byte for byte.';
COMMENT ON COLUMN {s}.idempotency_key.job_id IS 'The job it stands for.';
COMMENT ON COLUMN {s}.idempotency_key.fingerprint IS 'SHA-256 over kind, content type and payload, to notice a key used again for other work.';
COMMENT ON COLUMN {s}.idempotency_key.created_at IS 'When it was first used.';
COMMENT ON COLUMN {s}.idempotency_key.expires_at IS 'If set, its job was pruned, and the key itself goes then.';

COMMENT ON TABLE {s}.attempt IS 'History: one row for each attempt that did not end in success; goes with its job.';
COMMENT ON COLUMN {s}.attempt.job_id IS 'The job.';
COMMENT ON COLUMN {s}.attempt.fence IS 'The fencing token of the attempt.';
COMMENT ON COLUMN {s}.attempt.attempt IS 'Its number; the same number comes again where the attempt was not charged.';
COMMENT ON COLUMN {s}.attempt.worker IS 'Who held it.';
COMMENT ON COLUMN {s}.attempt.started_at IS 'When it was claimed.';
COMMENT ON COLUMN {s}.attempt.ended_at IS 'When it ended.';
COMMENT ON COLUMN {s}.attempt.outcome IS 'failed; lease_expired: its worker went silent; not charged: released, snoozed, waiting (for children); cancelled.';
COMMENT ON COLUMN {s}.attempt.error_code IS 'Why, short and stable.';
COMMENT ON COLUMN {s}.attempt.error_message IS 'Why, for people.';
"""

DOWNGRADE = """
DROP TABLE {s}.attempt;
DROP TABLE {s}.idempotency_key;
DROP TABLE {s}.payload;
DROP TABLE {s}.job;
DROP FUNCTION {s}._delete_payloads();
DROP FUNCTION {s}._truncate_payloads();
DROP FUNCTION {s}.new_ulid();
"""


def upgrade() -> None:
    _run(UPGRADE)


def downgrade() -> None:
    allowed = context.get_x_argument(as_dictionary=True).get("allow-data-loss") == "yes"
    if not context.is_offline_mode() and not allowed:
        reason = refusal(op.get_bind(), context.config.attributes["schema"])
        if reason is not None:
            raise RuntimeError(reason)
    _run(DOWNGRADE)


def refusal(connection: sa.Connection, schema: str) -> str | None:
    """
    Say why not to go below, if something would be lost; asked before any step down.
    """
    job = sa.table("job", schema=schema)
    if connection.scalar(sa.select(sa.literal(1)).select_from(job).limit(1)) is None:
        return None
    return (
        "refused: going below 0001 would drop the jobs that exist; "
        "prune them first, or say -x allow-data-loss=yes"
    )


def _schema() -> str:
    name: str = context.config.attributes["schema"]
    return '"' + name.replace('"', '""') + '"'


def _run(sql: str) -> None:
    quoted = _schema()
    # The schema's name stands inside the bodies; it may hold anything, even this.
    tag = "function"
    while f"${tag}$" in quoted:
        tag += "_"
    sql = sql.replace("$function$", f"${tag}$").replace("{s}", quoted)
    # One statement at a time, as they stand: no parameters, so no escaping of %.
    for statement in sql.split(";\n"):
        if statement.strip():
            op.execute(statement.strip().replace(":", r"\:"))
