\set ON_ERROR_STOP on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '5s';
SELECT pg_advisory_xact_lock(hashtextextended('jobstore migrate jobstore', 0));
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'jobstore_migrator') THEN
        CREATE ROLE "jobstore_migrator" NOLOGIN;
    END IF;
END
$do$;
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'jobstore_runtime') THEN
        CREATE ROLE "jobstore_runtime" NOLOGIN;
    END IF;
END
$do$;
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'jobstore_operator') THEN
        CREATE ROLE "jobstore_operator" NOLOGIN;
    END IF;
END
$do$;
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'jobstore_reader') THEN
        CREATE ROLE "jobstore_reader" NOLOGIN;
    END IF;
END
$do$;
DO $do$
DECLARE
    thing text;
BEGIN
    FOR thing IN
        WITH relation AS (
            SELECT relname, relkind, relowner,
                relname = ANY(ARRAY['attempt', 'audit', 'idempotency_key', 'job', 'jobstore_version', 'payload', 'queue_health', 'ready', 'recent_failures', 'running', 'scheduled', 'snapshot_holders', 'stale', 'table_health', 'tenant_backlog', 'waiting_families', 'workers']) AS is_ours
            FROM pg_class
            WHERE relnamespace = '"jobstore"'::regnamespace AND relkind IN ('r', 'p', 'v')
        )
        SELECT concat('SCHEMA ', '"jobstore"') FROM pg_namespace
        WHERE oid = '"jobstore"'::regnamespace AND nspowner <> '"jobstore_migrator"'::regrole
            AND NOT EXISTS (SELECT FROM relation WHERE NOT is_ours)
        UNION ALL
        SELECT concat(CASE relkind WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END,
            '"jobstore"', '.', quote_ident(relname))
        FROM relation WHERE is_ours AND relowner <> '"jobstore_migrator"'::regrole
        UNION ALL
        SELECT concat('FUNCTION ', oid::regprocedure) FROM pg_proc
        WHERE oid = ANY(ARRAY['"jobstore"._checked_reason(text)', '"jobstore"._delete_payloads()', '"jobstore"._duration(interval)', '"jobstore"._family(text, text, integer, integer, integer)', '"jobstore"._instant(timestamptz)', '"jobstore"._reopen(text[])', '"jobstore"._tell_parents(text[], integer[], integer[])', '"jobstore"._truncate_payloads()', '"jobstore"._wake(text[])', '"jobstore".cancel_job(text, text, boolean)', '"jobstore".explain_job(text)', '"jobstore".new_ulid()', '"jobstore".release_worker(text, text, boolean, interval, integer)', '"jobstore".requeue_job(text, text, boolean)', '"jobstore".retry_failed(text, boolean, text, text, text, text, timestamptz, timestamptz, integer)', '"jobstore".ulid_at(timestamptz)']::regprocedure[])
            AND proowner <> '"jobstore_migrator"'::regrole
    LOOP
        EXECUTE concat('ALTER ', thing, ' OWNER TO ', '"jobstore_migrator"');
    END LOOP;
END
$do$;
REVOKE CREATE ON SCHEMA "jobstore" FROM PUBLIC;
REVOKE ALL ON SCHEMA "jobstore" FROM "jobstore_runtime", "jobstore_operator", "jobstore_reader";
REVOKE ALL ON TABLE "jobstore".attempt, "jobstore".audit, "jobstore".idempotency_key, "jobstore".job, "jobstore".jobstore_version, "jobstore".payload, "jobstore".queue_health, "jobstore".ready, "jobstore".recent_failures, "jobstore".running, "jobstore".scheduled, "jobstore".snapshot_holders, "jobstore".stale, "jobstore".table_health, "jobstore".tenant_backlog, "jobstore".waiting_families, "jobstore".workers FROM PUBLIC, "jobstore_runtime", "jobstore_operator", "jobstore_reader";
REVOKE ALL ON SEQUENCE "jobstore".audit_id_seq FROM PUBLIC, "jobstore_runtime", "jobstore_operator", "jobstore_reader";
REVOKE ALL ON FUNCTION "jobstore"._checked_reason(text), "jobstore"._delete_payloads(), "jobstore"._duration(interval), "jobstore"._family(text, text, integer, integer, integer), "jobstore"._instant(timestamptz), "jobstore"._reopen(text[]), "jobstore"._tell_parents(text[], integer[], integer[]), "jobstore"._truncate_payloads(), "jobstore"._wake(text[]), "jobstore".cancel_job(text, text, boolean), "jobstore".explain_job(text), "jobstore".new_ulid(), "jobstore".release_worker(text, text, boolean, interval, integer), "jobstore".requeue_job(text, text, boolean), "jobstore".retry_failed(text, boolean, text, text, text, text, timestamptz, timestamptz, integer), "jobstore".ulid_at(timestamptz) FROM PUBLIC, "jobstore_runtime", "jobstore_operator", "jobstore_reader";
GRANT USAGE, CREATE ON SCHEMA "jobstore" TO "jobstore_migrator";
GRANT USAGE ON SCHEMA "jobstore" TO "jobstore_runtime", "jobstore_operator", "jobstore_reader";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "jobstore".job TO "jobstore_runtime";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "jobstore".idempotency_key TO "jobstore_runtime";
GRANT SELECT, INSERT ON TABLE "jobstore".payload TO "jobstore_runtime";
GRANT SELECT, INSERT ON TABLE "jobstore".attempt TO "jobstore_runtime";
GRANT SELECT ON TABLE "jobstore".jobstore_version TO "jobstore_runtime";
GRANT SELECT ON TABLE "jobstore".queue_health, "jobstore".ready, "jobstore".recent_failures, "jobstore".running, "jobstore".scheduled, "jobstore".snapshot_holders, "jobstore".stale, "jobstore".table_health, "jobstore".tenant_backlog, "jobstore".waiting_families, "jobstore".workers TO "jobstore_operator", "jobstore_reader";
GRANT EXECUTE ON FUNCTION "jobstore".ulid_at(timestamptz) TO "jobstore_operator", "jobstore_reader";
GRANT SELECT ON TABLE "jobstore".attempt, "jobstore".audit, "jobstore".jobstore_version TO "jobstore_operator";
GRANT SELECT (id, tenant, queue, kind, job_class, class_rank, status, attempts, max_attempts, fence, parent_id, pages, on_child_failure, children_total, children_open, children_failed, error_code, error_message, created_at, updated_at, available_at, started_at, heartbeat_at, finished_at, worker, lease, traceparent) ON TABLE "jobstore".job TO "jobstore_operator";
GRANT SELECT (job_id) ON TABLE "jobstore".payload TO "jobstore_operator";
GRANT EXECUTE ON FUNCTION "jobstore".cancel_job(text, text, boolean), "jobstore".release_worker(text, text, boolean, interval, integer), "jobstore".requeue_job(text, text, boolean), "jobstore".retry_failed(text, boolean, text, text, text, text, timestamptz, timestamptz, integer), "jobstore"._duration(interval), "jobstore"._family(text, text, integer, integer, integer), "jobstore"._instant(timestamptz), "jobstore".explain_job(text) TO "jobstore_operator";
ALTER DEFAULT PRIVILEGES FOR ROLE "jobstore_migrator" REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE "jobstore_migrator" IN SCHEMA "jobstore" GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO "jobstore_runtime";
COMMIT;
