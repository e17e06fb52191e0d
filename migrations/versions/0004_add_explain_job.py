"""
Add explain_job: why a job is where it is and what will happen next, in plain words.

It reads a handful of rows by index and changes nothing.

Locks: none that matter, all objects are new.
Duration: milliseconds.
Undo: drops the functions. No job is touched.
"""

from alembic import context, op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
# The oldest code that works on it, as the revision which that code knew best.
compatible_from = "0001"

# {s} stands for the quoted schema. In the order of creation.
FUNCTIONS: dict[str, tuple[str, str]] = {
    "_duration(interval)": (
        "Internal: a length of time for people.",
        """
CREATE FUNCTION {s}._duration(length interval) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (
        SELECT CASE
            WHEN seconds < 60 THEN seconds || ' s'
            WHEN seconds < 3600 THEN seconds / 60 || ' min ' || mod(seconds, 60) || ' s'
            WHEN seconds < 86400 THEN seconds / 3600 || ' h ' || mod(seconds, 3600) / 60 || ' min'
            ELSE seconds / 86400 || ' d ' || mod(seconds, 86400) / 3600 || ' h'
        END
        FROM (SELECT greatest(extract(epoch FROM length), 0)::bigint AS seconds) AS whole
    )
""",
    ),
    "_instant(timestamptz)": (
        "Internal: an instant for people.",
        """
CREATE FUNCTION {s}._instant(at timestamptz) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
""",
    ),
    "_family(text, text, integer, integer, integer)": (
        "Internal: what explain_job says of a job's parent and children.",
        """
CREATE FUNCTION {s}._family(
    job_id text, parent_id text, children_total integer, children_open integer,
    children_failed integer
) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    said text := '';
    parent_status text;
    open_children text;
BEGIN
    IF parent_id IS NOT NULL THEN
        SELECT job.status INTO parent_status FROM {s}.job WHERE job.id = _family.parent_id;
        said := concat(E'\\nIt is a part of job ', parent_id, ', which is ', parent_status, '.');
    END IF;
    IF children_total > 0 THEN
        SELECT string_agg(child.id || ' (' || child.status || ')', ', ' ORDER BY child.id)
        INTO open_children
        FROM (
            SELECT job.id, job.status FROM {s}.job
            WHERE job.parent_id = _family.job_id AND job.finished_at IS NULL
            ORDER BY job.created_at, job.id LIMIT 3
        ) AS child;
        said := said || concat(E'\\nIt has ', children_total, CASE children_total WHEN 1 THEN ' child: ' ELSE ' children: ' END, children_open,
            ' open, ', children_failed, ' failed or cancelled.',
            ' First of the open ones: ' || open_children || '.');
    END IF;
    RETURN said;
END
$function$
""",
    ),
    "explain_job(text)": (
        "Why a job is where it is and what will happen next, in plain words: SELECT explain_job('id').",
        """
CREATE FUNCTION {s}.explain_job(job_id text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $function$
DECLARE
    told record;
    last record;
    now timestamptz := statement_timestamp();
    said text;
    ahead bigint;
    claimed_at timestamptz;
    holders bigint;
    nth text;
    why text;
BEGIN
    job_id := upper(btrim(job_id));
    SELECT id, tenant, queue, kind, job_class, class_rank, status, attempts, max_attempts,
        fence, parent_id, on_child_failure, children_total, children_open,
        children_failed, error_code, left(error_message, 200) AS error_message,
        created_at, updated_at, available_at, started_at, heartbeat_at, finished_at,
        worker, lease
    INTO told FROM {s}.job WHERE job.id = explain_job.job_id;
    IF NOT FOUND THEN
        RETURN concat('There is no job ', job_id, ' here: never created, pruned, or in another ',
            'schema or database.',
            CASE WHEN job_id !~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' OR job_id IS NULL
                THEN ' This is no id of a job at all; those have 26 letters and digits.' END);
    END IF;
    SELECT attempt.attempt, attempt.worker, attempt.outcome, attempt.ended_at,
        attempt.error_code, left(attempt.error_message, 200) AS error_message
    INTO last FROM {s}.attempt
    WHERE attempt.job_id = told.id ORDER BY attempt.fence DESC LIMIT 1;

    nth := concat(told.attempts, ' of ', told.max_attempts);
    why := concat_ws(': ', told.error_code, nullif(told.error_message, ''));
    said := concat('Job ', told.id, ' (', told.kind, ', ', told.job_class, ', queue ', told.queue,
        ', tenant ', told.tenant, '), created ', {s}._instant(told.created_at), '.', E'\\n');

    IF told.status = 'queued' AND told.attempts >= told.max_attempts THEN
        said := said || concat('It is queued, but its attempts are used up (', nth, '), so no ',
            'worker will claim it. The next sweep fails it with ATTEMPTS_EXHAUSTED.');
    ELSIF told.status = 'queued' THEN
        SELECT count(*) INTO ahead FROM (
            SELECT FROM {s}.job
            WHERE job.queue = told.queue AND job.status = 'queued' AND job.attempts < job.max_attempts
                AND (job.class_rank, job.created_at, job.id)
                    < (told.class_rank, told.created_at, told.id)
            LIMIT 1001
        ) AS better;
        SELECT count(*), max(job.started_at) INTO holders, claimed_at
        FROM {s}.job WHERE job.status = 'processing' AND job.queue = told.queue;
        said := said || concat('It is ready and waits to be claimed, since ',
            {s}._duration(now - told.updated_at), '. ',
            CASE WHEN ahead = 0 THEN 'It is the first in its queue. ' WHEN ahead > 1000 THEN 'More than 1000 jobs are' WHEN ahead = 1 THEN '1 job is'
                ELSE ahead || ' jobs are' END,
            CASE WHEN ahead > 0 THEN ' ahead of it in its queue. ' END,
            CASE WHEN holders = 0
                THEN 'No job of this queue is being worked on: is a worker running for it?'
                ELSE concat(holders, ' of this queue are being worked on, the last one claimed ',
                    {s}._duration(now - claimed_at), ' ago.') END);
        IF told.error_code IS NOT NULL THEN
            said := said || concat(' It was tried before (', nth, ' attempts): ', why, '.');
        END IF;
    ELSIF told.status = 'scheduled' THEN
        said := said || CASE WHEN told.available_at > now
            THEN concat('It is scheduled: due at ', {s}._instant(told.available_at), ', in ',
                {s}._duration(told.available_at - now), '. Then it joins the line by itself.')
            ELSE concat('It is scheduled and overdue for ', {s}._duration(now - told.available_at),
                '. The next claim of any worker, or promote_due, puts it in line.')
            END;
        IF told.error_code IS NOT NULL THEN
            said := said || concat(' It waits for its next attempt; ', nth,
                ' are used, the last one failed: ', why, '.');
        END IF;
    ELSIF told.status = 'processing' THEN
        said := said || concat('It is being worked on by ', told.worker, ', claimed ',
            {s}._duration(now - told.started_at), ' ago, attempt ', nth, ', fence ', told.fence,
            '. Last sign of life ', {s}._duration(now - told.heartbeat_at), ' ago',
            ', its own lease is ' || {s}._duration(told.lease), '.');
        IF told.heartbeat_at <= now - greatest(interval '1 minute', coalesce(told.lease, '0')) THEN
            said := said || concat(' The worker is probably dead. The next sweep of any worker ',
                CASE WHEN told.attempts >= told.max_attempts
                    THEN 'fails it with ATTEMPTS_EXHAUSTED, as this was its last attempt'
                    ELSE 'queues it again, the attempt charged' END,
                '. If no sweep comes, no worker runs; release_worker gives its jobs back now.');
        ELSE
            said := said || CASE WHEN told.attempts >= told.max_attempts
                THEN ' This is its last attempt: if it fails, the job is failed.'
                ELSE ' If it fails, it is tried again.' END;
        END IF;
    ELSIF told.status = 'waiting' THEN
        said := said || CASE WHEN told.children_open > 0
            THEN concat('It waits until its children have ended. Then it ',
                CASE WHEN told.on_child_failure = 'resume' THEN 'is queued again.'
                    WHEN told.children_failed > 0 THEN 'fails with CHILD_FAILED, as some did not complete.'
                    ELSE 'is queued again, or fails if one of them did not complete.' END)
            ELSE 'It waits for children, but by its count none is open: something was changed by hand. '
                'The next repair_families puts it right.' END;
    ELSIF told.status = 'completed' THEN
        said := said || concat('It completed at ', {s}._instant(told.finished_at), ', by ',
            told.worker, ', after ', {s}._duration(told.finished_at - told.started_at),
            ', attempt ', nth, '. Nothing more happens to it until it is pruned.');
    ELSIF told.status = 'failed' THEN
        said := said || concat('It failed for good at ', {s}._instant(told.finished_at), ': ', why, '. ',
            CASE WHEN told.error_code = 'CHILD_FAILED' THEN 'Its children did not all complete. '
                WHEN told.attempts >= told.max_attempts
                THEN concat('All its attempts are used up (', nth, '). ')
                ELSE concat('It was ended before its attempts were used up (', nth, '). ') END,
            'Nothing more happens by itself; requeue_job runs it again.');
    ELSE
        said := said || concat('It was cancelled at ', {s}._instant(told.finished_at), ': ',
            coalesce(told.error_message, 'no reason was given'), '. ',
            'Nothing more happens by itself; requeue_job runs it again.');
    END IF;
    IF last.outcome IS NOT NULL THEN
        said := said || concat(E'\\nLast attempt that did not complete: number ', last.attempt,
            ', by ', last.worker, ', ', CASE last.outcome
                WHEN 'failed' THEN 'failed' WHEN 'lease_expired' THEN 'its worker went silent'
                WHEN 'released' THEN 'given back, not charged'
                WHEN 'snoozed' THEN 'snoozed, not charged'
                WHEN 'waiting' THEN 'fanned out, not charged' ELSE last.outcome END,
            ', at ', {s}._instant(last.ended_at),
            ': ' || nullif(concat_ws(': ', last.error_code, nullif(last.error_message, '')), ''), '.');
    END IF;
    RETURN said || {s}._family(told.id, told.parent_id, told.children_total,
        told.children_open, told.children_failed);
END
$function$
""",
    ),
}


def upgrade() -> None:
    for signature, (comment, definition) in FUNCTIONS.items():
        _run(definition)
        _run(
            f"COMMENT ON FUNCTION {{s}}.{signature} IS '"
            + comment.replace("'", "''")
            + "'"
        )


def downgrade() -> None:
    for signature in reversed(FUNCTIONS):
        _run(f"DROP FUNCTION {{s}}.{signature}")


def _run(sql: str) -> None:
    quoted = '"' + context.config.attributes["schema"].replace('"', '""') + '"'
    statement = sql.replace("$function$", _dollar_quote(quoted))
    # As it stands: no parameters, so no escaping of %; only text()'s own colons.
    op.execute(statement.replace("{s}", quoted).replace(":", r"\:"))


def _dollar_quote(quoted: str) -> str:
    # The schema's name stands inside the bodies; it may hold anything, even this.
    tag = "function"
    while f"${tag}$" in quoted:
        tag += "_"
    return f"${tag}$"
