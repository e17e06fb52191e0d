"""
Add what an operator does: explain, requeue, cancel, release, retry, and their audit.

They do what the library's verbs of the same names do, with the same bookkeeping of
parents and history, for somebody who has psql and nothing else. Each wants a reason,
shows by default what it would do (``dry_run => false`` does it), and writes a row into
the table audit. They run with the caller's own rights.

Locks: none that matter, all objects are new.
Duration: milliseconds.
Undo: drops the functions and the audit. Refused while the audit has rows, unless
``-x allow-data-loss=yes`` is given. No job is touched.
"""

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
# The oldest code that works on it, as the revision which that code knew best.
compatible_from = "0001"

# {s} stands for the quoted schema. Settings of the functions that write: names mean
# ours whatever the caller's search_path; plans go by index however fresh the
# statistics; nobody queues behind an operator who waits for a lock.
GUARDS = """
    SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET lock_timeout = '5s'
"""

AUDIT = """
CREATE TABLE {s}.audit (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    at           timestamptz NOT NULL DEFAULT statement_timestamp(),
    who          text COLLATE "C" NOT NULL DEFAULT session_user,
    application  text COLLATE "C" NOT NULL DEFAULT current_setting('application_name'),
    action       text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    arguments    jsonb NOT NULL DEFAULT '{}',
    job_ids      text[] COLLATE "C" NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (id),
    CONSTRAINT audit_text_check CHECK (action <> '' AND btrim(reason) <> '')
)
"""

AUDIT_COMMENTS = {
    "TABLE {s}.audit": "Who changed jobs by hand, by the functions of this schema: one row for each call that was not a dry run.",
    "COLUMN {s}.audit.id": "Number of the entry.",
    "COLUMN {s}.audit.at": "When, by the database's clock.",
    "COLUMN {s}.audit.who": "The role that had logged in.",
    "COLUMN {s}.audit.application": "Its application_name.",
    "COLUMN {s}.audit.action": "The function that was called.",
    "COLUMN {s}.audit.reason": "Why, in the caller's words.",
    "COLUMN {s}.audit.arguments": "What else it was called with.",
    "COLUMN {s}.audit.job_ids": "The jobs that changed; not the parents whose counts followed.",
}

# In the order of creation. Name with argument types: (comment, definition).
FUNCTIONS: dict[str, tuple[str, str]] = {
    "_checked_reason(text)": (
        "Internal: the reason, or an error that asks for one.",
        """
CREATE FUNCTION {s}._checked_reason(reason text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'say why: the reason is kept in the table audit';
    END IF;
    RETURN left(reason, 10000);
END
$function$
""",
    ),
    "_wake(text[])": (
        "Internal: tell idle workers that those of these jobs which are queued are to be had.",
        """
CREATE FUNCTION {s}._wake(job_ids text[]) RETURNS void
    LANGUAGE sql
    {guards}
AS $function$
    -- The channel is named as the library does it: jobstore.postgres.notify.
    SELECT pg_notify(
        CASE WHEN octet_length('jobstore:' || nspname) <= 63
            THEN 'jobstore:' || nspname
            ELSE 'jobstore#'
                || left(encode(sha256(convert_to(nspname, 'UTF8')), 'hex'), 40)
        END,
        ready.queue
    )
    FROM (
        SELECT DISTINCT job.queue, job.tableoid FROM {s}.job
        WHERE job.id = ANY(job_ids) AND job.status = 'queued'
    ) AS ready
    JOIN pg_class ON pg_class.oid = ready.tableoid
    JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
$function$
""",
    ),
    "_tell_parents(text[], integer[], integer[])": (
        "Internal: children of these parents have ended, so many, and so many of them not well. Returns the parents that went on.",
        """
CREATE FUNCTION {s}._tell_parents(parent_ids text[], ended integer[], failed integer[])
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    told record;
    next_ids text[];
    went_on text[] := '{}';
BEGIN
    WHILE cardinality(parent_ids) > 0 LOOP
        next_ids := '{}';
        FOR told IN
            WITH locked AS MATERIALIZED (
                SELECT job.id, job.status FROM {s}.job
                WHERE job.id = ANY(_tell_parents.parent_ids)
                ORDER BY job.id
                FOR NO KEY UPDATE
            ), news AS MATERIALIZED (
                SELECT news.id, news.ended, news.failed
                FROM unnest(
                    _tell_parents.parent_ids, _tell_parents.ended, _tell_parents.failed
                ) AS news (id, ended, failed)
            )
            UPDATE {s}.job
            SET status = CASE
                    WHEN job.status <> 'waiting'
                        OR greatest(job.children_open - news.ended, 0) > 0
                    THEN job.status
                    WHEN job.on_child_failure = 'fail'
                        AND job.children_failed + news.failed > 0
                    THEN 'failed'
                    ELSE 'queued'
                END,
                finished_at = CASE
                    WHEN job.status = 'waiting'
                        AND greatest(job.children_open - news.ended, 0) = 0
                        AND job.on_child_failure = 'fail'
                        AND job.children_failed + news.failed > 0
                    THEN statement_timestamp() ELSE job.finished_at
                END,
                error_code = CASE
                    WHEN job.status = 'waiting'
                        AND greatest(job.children_open - news.ended, 0) = 0
                        AND job.on_child_failure = 'fail'
                        AND job.children_failed + news.failed > 0
                    THEN 'CHILD_FAILED' ELSE job.error_code
                END,
                error_message = CASE
                    WHEN job.status = 'waiting'
                        AND greatest(job.children_open - news.ended, 0) = 0
                        AND job.on_child_failure = 'fail'
                        AND job.children_failed + news.failed > 0
                    THEN (job.children_failed + news.failed) || ' of '
                        || job.children_total || ' children did not complete'
                    ELSE job.error_message
                END,
                children_open = greatest(job.children_open - news.ended, 0),
                children_failed = job.children_failed + news.failed,
                updated_at = statement_timestamp()
            FROM news JOIN locked USING (id)
            WHERE job.id = news.id
            RETURNING job.id, locked.status AS was, job.status AS becomes, job.parent_id
        LOOP
            IF told.was = 'waiting' AND told.becomes <> 'waiting' THEN
                id := told.id;
                was := told.was;
                becomes := told.becomes;
                went_on := went_on || told.id;
                RETURN NEXT;
                IF told.becomes = 'failed' AND told.parent_id IS NOT NULL THEN
                    next_ids := next_ids || told.parent_id;
                END IF;
            END IF;
        END LOOP;
        SELECT coalesce(array_agg(up.id), '{}'), array_agg(up.children), array_agg(up.children)
        INTO parent_ids, ended, failed
        FROM (
            SELECT parent.id, count(*)::integer AS children
            FROM unnest(next_ids) AS parent (id) GROUP BY parent.id
        ) AS up;
    END LOOP;
    PERFORM {s}._wake(went_on);
END
$function$
""",
    ),
    "_reopen(text[])": (
        "Internal: queue failed, cancelled and scheduled jobs with fresh attempts; their parents count them as open again.",
        """
CREATE FUNCTION {s}._reopen(job_ids text[])
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    reopened record;
    parent_ids text[] := '{}';
BEGIN
    FOR reopened IN
        WITH locked AS MATERIALIZED (
            SELECT job.id, job.status, job.parent_id FROM {s}.job
            WHERE job.id = ANY(_reopen.job_ids)
                AND job.status IN ('failed', 'cancelled', 'scheduled')
            ORDER BY job.id
            FOR UPDATE
        ), queued AS (
            UPDATE {s}.job
            SET status = 'queued',
                attempts = 0,
                available_at = statement_timestamp(),
                finished_at = NULL,
                error_code = NULL,
                error_message = NULL,
                updated_at = statement_timestamp()
            WHERE job.id = ANY(ARRAY(SELECT locked.id FROM locked))
            RETURNING job.id
        )
        SELECT locked.id, locked.status AS was, locked.parent_id
        FROM locked JOIN queued USING (id)
        ORDER BY locked.id
    LOOP
        id := reopened.id;
        was := reopened.was;
        becomes := 'queued';
        RETURN NEXT;
        IF reopened.was <> 'scheduled' AND reopened.parent_id IS NOT NULL THEN
            parent_ids := parent_ids || reopened.parent_id;
        END IF;
    END LOOP;
    IF cardinality(parent_ids) > 0 THEN
        WITH news AS MATERIALIZED (
            SELECT parent.id, count(*)::integer AS children
            FROM unnest(parent_ids) AS parent (id) GROUP BY parent.id
        ), locked AS MATERIALIZED (
            SELECT job.id FROM {s}.job
            WHERE job.id = ANY(ARRAY(SELECT news.id FROM news))
            ORDER BY job.id
            FOR NO KEY UPDATE
        )
        UPDATE {s}.job
        SET children_open = children_open + news.children,
            children_failed = greatest(children_failed - news.children, 0),
            updated_at = statement_timestamp()
        FROM news JOIN locked USING (id)
        WHERE job.id = news.id;
    END IF;
END
$function$
""",
    ),
    "requeue_job(text, text, boolean)": (
        "Run a failed or cancelled job again with fresh attempts, or a scheduled one now. SELECT * FROM requeue_job('id', 'why') shows it; dry_run => false does it.",
        """
CREATE FUNCTION {s}.requeue_job(job_id text, reason text, dry_run boolean DEFAULT true)
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    why text := {s}._checked_reason(requeue_job.reason);
BEGIN
    requeue_job.job_id := upper(btrim(requeue_job.job_id));
    SELECT job.id, job.status, 'queued' INTO id, was, becomes
    FROM {s}.job WHERE job.id = requeue_job.job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found',
            MESSAGE = concat('no job ', requeue_job.job_id);
    ELSIF dry_run AND was IN ('failed', 'cancelled', 'scheduled') THEN
        RETURN NEXT;
        RETURN;
    ELSIF NOT dry_run THEN
        RETURN QUERY SELECT * FROM {s}._reopen(ARRAY[requeue_job.job_id]);
    END IF;
    IF NOT FOUND OR dry_run THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = concat('job ', requeue_job.job_id, ' is ', was, '; only failed, ',
                'cancelled and scheduled jobs can be requeued');
    END IF;
    PERFORM {s}._wake(ARRAY[requeue_job.job_id]);
    INSERT INTO {s}.audit (action, reason, job_ids)
    VALUES ('requeue_job', why, ARRAY[requeue_job.job_id]);
END
$function$
""",
    ),
    "cancel_job(text, text, boolean)": (
        "End a job that has not ended, and what is left of its family below it. SELECT * FROM cancel_job('id', 'why') shows it; dry_run => false does it.",
        """
CREATE FUNCTION {s}.cancel_job(job_id text, reason text, dry_run boolean DEFAULT true)
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    why text := {s}._checked_reason(cancel_job.reason);
    head record;
    level record;
    member record;
    found_any boolean;
    cancelled text[] := '{}';
    parent_to_tell text;
BEGIN
    cancel_job.job_id := upper(btrim(cancel_job.job_id));
    SELECT job.status, job.parent_id INTO head
    FROM {s}.job WHERE job.id = cancel_job.job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found',
            MESSAGE = concat('no job ', cancel_job.job_id);
    ELSIF head.status = 'cancelled' THEN
        RETURN;
    END IF;
    LOOP
        IF head.status IN ('completed', 'failed') THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = concat('job ', cancel_job.job_id, ' is ', head.status,
                    ' already; only a job that has not ended can be cancelled');
        END IF;
        found_any := false;
        -- Children before their parents, as everywhere. Once more after the head is
        -- cancelled: a holder may have fanned it out in between.
        FOR level IN
            WITH RECURSIVE family AS (
                SELECT job.id, job.status, job.children_open, 0 AS depth
                FROM {s}.job WHERE job.id = cancel_job.job_id
                UNION ALL
                SELECT child.id, child.status, child.children_open, family.depth + 1
                FROM family
                CROSS JOIN LATERAL (
                    SELECT job.id, job.status, job.children_open
                    FROM {s}.job WHERE job.parent_id = family.id
                ) AS child
            )
            SELECT family.depth, array_agg(family.id) AS ids
            FROM family
            WHERE family.status NOT IN ('completed', 'failed', 'cancelled')
                OR (family.children_open > 0 AND NOT cancel_job.dry_run)
            GROUP BY family.depth
            ORDER BY family.depth DESC
        LOOP
            found_any := true;
            IF dry_run THEN
                RETURN QUERY SELECT job.id, job.status, 'cancelled'
                    FROM {s}.job WHERE job.id = ANY(level.ids) ORDER BY job.id;
                CONTINUE;
            END IF;
            FOR member IN
                WITH locked AS MATERIALIZED (
                    SELECT job.id, job.status AS was FROM {s}.job
                    WHERE job.id = ANY(level.ids)
                    ORDER BY job.id
                    FOR UPDATE
                ), ending AS (
                    UPDATE {s}.job
                    SET status = CASE WHEN finished_at IS NULL THEN 'cancelled' ELSE status END,
                        error_code = CASE WHEN finished_at IS NOT NULL THEN error_code END,
                        error_message = CASE
                            WHEN finished_at IS NULL THEN why ELSE error_message
                        END,
                        finished_at = coalesce(finished_at, statement_timestamp()),
                        children_failed = children_failed + children_open,
                        children_open = 0,
                        heartbeat_at = NULL,
                        lease = NULL,
                        updated_at = statement_timestamp()
                    WHERE job.id = ANY(ARRAY(SELECT locked.id FROM locked))
                    RETURNING job.id, fence, parent_id, worker, started_at, attempts
                ), history AS (
                    INSERT INTO {s}.attempt (
                        job_id, fence, attempt, worker, started_at, ended_at,
                        outcome, error_code, error_message
                    )
                    SELECT ending.id, fence, attempts, worker, started_at,
                        statement_timestamp(), 'cancelled', NULL, why
                    FROM ending JOIN locked USING (id)
                    WHERE locked.was = 'processing'
                    ON CONFLICT (job_id, fence) DO NOTHING
                )
                SELECT ending.id, ending.parent_id, locked.was
                FROM ending JOIN locked USING (id)
                ORDER BY ending.id
            LOOP
                IF member.id = cancel_job.job_id THEN
                    head.status := member.was;
                    IF member.was NOT IN ('completed', 'failed', 'cancelled') THEN
                        parent_to_tell := member.parent_id;
                    END IF;
                END IF;
                CONTINUE WHEN member.was IN ('completed', 'failed', 'cancelled');
                cancelled := cancelled || member.id;
                id := member.id;
                was := member.was;
                becomes := 'cancelled';
                RETURN NEXT;
            END LOOP;
        END LOOP;
        EXIT WHEN dry_run OR NOT found_any;
    END LOOP;
    IF parent_to_tell IS NOT NULL THEN
        RETURN QUERY
            SELECT * FROM {s}._tell_parents(ARRAY[parent_to_tell], ARRAY[1], ARRAY[1]);
    END IF;
    IF NOT dry_run THEN
        INSERT INTO {s}.audit (action, reason, job_ids)
        VALUES ('cancel_job', why, cancelled);
    END IF;
END
$function$
""",
    ),
    "release_worker(text, text, boolean, interval, integer)": (
        "Give back the jobs of a dead worker, their attempts not charged. Refused while it gives signs of life. SELECT * FROM release_worker('name', 'why') shows it; dry_run => false does it.",
        """
CREATE FUNCTION {s}.release_worker(
    worker text, reason text, dry_run boolean DEFAULT true,
    silent_for interval DEFAULT '1 minute', max_rows integer DEFAULT 1000
)
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    why text := {s}._checked_reason(release_worker.reason);
    last_sign timestamptz;
    held text[];
BEGIN
    {check_max_rows}
    SELECT max(job.heartbeat_at) INTO last_sign
    FROM {s}.job
    WHERE job.status = 'processing' AND job.worker = release_worker.worker;
    IF last_sign IS NULL THEN
        RAISE NOTICE USING MESSAGE = concat('no running job is held by worker ', release_worker.worker);
        RETURN;
    ELSIF last_sign > statement_timestamp() - coalesce(release_worker.silent_for, '1 minute') THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = concat('worker ', release_worker.worker, ' gave a sign of life ',
                date_trunc('second', statement_timestamp() - last_sign), ' ago'),
            HINT = 'Stop it first. If you know that it is dead, say silent_for => ''0''.';
    END IF;
    IF dry_run THEN
        RETURN QUERY
            SELECT job.id, job.status, 'queued' FROM {s}.job
            WHERE job.status = 'processing' AND job.worker = release_worker.worker
            ORDER BY job.id LIMIT release_worker.max_rows;
        RETURN;
    END IF;
    -- Rows that somebody else has locked are left alone: their holder is alive.
    SELECT array_agg(locked.id ORDER BY locked.id) INTO held
    FROM (
        SELECT job.id FROM {s}.job
        WHERE job.status = 'processing' AND job.worker = release_worker.worker
            AND job.heartbeat_at <= last_sign
        ORDER BY job.id LIMIT release_worker.max_rows
        FOR UPDATE SKIP LOCKED
    ) AS locked;
    RETURN QUERY
        WITH ended AS (
            UPDATE {s}.job
            SET status = 'queued',
                attempts = greatest(attempts - 1, 0),
                heartbeat_at = NULL,
                lease = NULL,
                updated_at = statement_timestamp()
            WHERE job.id = ANY(held)
            RETURNING job.id, fence, attempts + 1 AS attempt, job.worker, started_at
        ), history AS (
            INSERT INTO {s}.attempt (
                job_id, fence, attempt, worker, started_at, ended_at, outcome
            )
            SELECT ended.id, fence, attempt, ended.worker, started_at,
                statement_timestamp(), 'released'
            FROM ended
            ON CONFLICT (job_id, fence) DO NOTHING
        )
        SELECT ended.id, 'processing', 'queued' FROM ended ORDER BY ended.id;
    PERFORM {s}._wake(held);
    INSERT INTO {s}.audit (action, reason, arguments, job_ids)
    VALUES (
        'release_worker', why,
        jsonb_build_object('worker', release_worker.worker,
            'silent_for', release_worker.silent_for::text,
            'max_rows', release_worker.max_rows),
        coalesce(held, '{}')
    );
END
$function$
""",
    ),
    "retry_failed(text, boolean, text, text, text, text, timestamptz, timestamptz, integer)": (
        "Run failed jobs again with fresh attempts, oldest failure first: those of the last day unless told otherwise. Parents that failed for their children's sake are left out unless error_code => 'CHILD_FAILED' asks for them. SELECT * FROM retry_failed('why', queue => 'ocr') shows it; dry_run => false does it.",
        """
CREATE FUNCTION {s}.retry_failed(
    reason text, dry_run boolean DEFAULT true,
    error_code text DEFAULT NULL, queue text DEFAULT NULL,
    kind text DEFAULT NULL, tenant text DEFAULT NULL,
    failed_after timestamptz DEFAULT statement_timestamp() - interval '1 day',
    failed_before timestamptz DEFAULT statement_timestamp(),
    max_rows integer DEFAULT 100
)
    RETURNS TABLE (id text, was text, becomes text)
    LANGUAGE plpgsql
    {guards}
AS $function$
#variable_conflict use_column
DECLARE
    why text := {s}._checked_reason(retry_failed.reason);
    chosen text[];
BEGIN
    {check_max_rows}
    -- Without locks first: a dry run locks nothing.
    SELECT array_agg(failed.id) INTO chosen
    FROM (
        SELECT job.id FROM {s}.job
        WHERE job.status = 'failed'
            AND job.finished_at >= retry_failed.failed_after
            AND job.finished_at <= retry_failed.failed_before
            AND (retry_failed.queue IS NULL OR job.queue = retry_failed.queue)
            AND (retry_failed.kind IS NULL OR job.kind = retry_failed.kind)
            AND (retry_failed.tenant IS NULL OR job.tenant = retry_failed.tenant)
            AND CASE WHEN retry_failed.error_code IS NULL
                THEN job.error_code <> 'CHILD_FAILED'
                ELSE job.error_code = retry_failed.error_code
            END
        ORDER BY job.finished_at, job.id
        LIMIT retry_failed.max_rows
    ) AS failed;
    IF dry_run THEN
        RETURN QUERY SELECT chosen_id, 'failed', 'queued' FROM unnest(chosen) AS chosen_id;
        RETURN;
    END IF;
    SELECT array_agg(locked.id) INTO chosen
    FROM (
        SELECT job.id FROM {s}.job
        WHERE job.id = ANY(chosen) AND job.status = 'failed'
        ORDER BY job.id
        FOR UPDATE SKIP LOCKED
    ) AS locked;
    RETURN QUERY SELECT * FROM {s}._reopen(coalesce(chosen, '{}'));
    PERFORM {s}._wake(chosen);
    INSERT INTO {s}.audit (action, reason, arguments, job_ids)
    VALUES (
        'retry_failed', why,
        jsonb_strip_nulls(jsonb_build_object(
            'error_code', retry_failed.error_code, 'queue', retry_failed.queue,
            'kind', retry_failed.kind, 'tenant', retry_failed.tenant,
            'failed_after', retry_failed.failed_after,
            'failed_before', retry_failed.failed_before,
            'max_rows', retry_failed.max_rows
        )),
        coalesce(chosen, '{}')
    );
END
$function$
""",
    ),
}

CHECK_MAX_ROWS = """IF coalesce(max_rows, 0) NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'max_rows must be from 1 to 10000; call again for more';
    END IF;"""


def upgrade() -> None:
    _run(AUDIT)
    for on, text in AUDIT_COMMENTS.items():
        _comment(on, text)
    for signature, (comment, definition) in FUNCTIONS.items():
        _run(definition)
        _comment(f"FUNCTION {{s}}.{signature}", comment)


def downgrade() -> None:
    allowed = context.get_x_argument(as_dictionary=True).get("allow-data-loss") == "yes"
    if not context.is_offline_mode() and not allowed:
        reason = refusal(op.get_bind(), context.config.attributes["schema"])
        if reason is not None:
            raise RuntimeError(reason)
    for signature in reversed(FUNCTIONS):
        _run(f"DROP FUNCTION {{s}}.{signature}")
    _run("DROP TABLE {s}.audit")


def refusal(connection: sa.Connection, schema: str) -> str | None:
    """
    Say why not to go below, if something would be lost; asked before any step down.
    """
    audit = sa.table("audit", schema=schema)
    if connection.scalar(sa.select(sa.literal(1)).select_from(audit).limit(1)) is None:
        return None
    return (
        "refused: going below 0003 would drop the audit of what operators did; "
        "copy it first, and say -x allow-data-loss=yes"
    )


def _comment(on: str, text: str) -> None:
    _run(f"COMMENT ON {on} IS '" + text.replace("'", "''") + "'")


def _run(sql: str) -> None:
    quoted = '"' + context.config.attributes["schema"].replace('"', '""') + '"'
    statement = sql.replace("{guards}", GUARDS.strip())
    statement = statement.replace("{check_max_rows}", CHECK_MAX_ROWS)
    statement = statement.replace("$function$", _dollar_quote(quoted))
    # As it stands: no parameters, so no escaping of %; only text()'s own colons.
    op.execute(statement.replace("{s}", quoted).replace(":", r"\:"))


def _dollar_quote(quoted: str) -> str:
    # The schema's name stands inside the bodies; it may hold anything, even this.
    tag = "function"
    while f"${tag}$" in quoted:
        tag += "_"
    return f"${tag}$"
