"""
The tables as SQLAlchemy metadata: for drift checks, and for callers who join them.

The migrations make the tables; a test holds the two together (``alembic check``).
The statements of this package are plain SQL in `jobstore.postgres.statements`.
"""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from jobstore.postgres.schema import Schema

__all__ = ["metadata"]

_TEXT = Text(collation="C")
_INSTANT = DateTime(timezone=True)


def metadata(schema: str) -> MetaData:
    """
    Describe the tables in the schema of this name.
    """
    tables = MetaData(schema=schema)
    _job(tables, schema)
    _payload(tables)
    _idempotency_key(tables)
    _attempt(tables, schema)
    _audit(tables)
    return tables


def _job(tables: MetaData, schema: str) -> None:
    quoted = Schema(schema).quoted
    now = text("statement_timestamp()")
    Table(
        "job",
        tables,
        Column(
            "id",
            _TEXT,
            nullable=False,
            server_default=text(f"{quoted}.new_ulid()"),
            comment="ULID: 26 characters that sort by the time of creation.",
        ),
        Column(
            "tenant",
            _TEXT,
            nullable=False,
            server_default="default",
            comment="Whose job it is; idempotency keys count within one tenant.",
        ),
        Column(
            "idem_key",
            _TEXT,
            comment="The idempotency key it was created with; NULL: never deduplicated. The rule is enforced by the table idempotency_key.",
        ),
        Column(
            "queue",
            _TEXT,
            nullable=False,
            server_default="default",
            comment="Routing name; workers claim from the queues they name.",
        ),
        Column(
            "kind",
            _TEXT,
            nullable=False,
            comment="Label by which a worker finds the handler.",
        ),
        Column(
            "job_class",
            _TEXT,
            nullable=False,
            server_default="batch",
            comment="Service class: interactive before system before batch.",
        ),
        Column(
            "class_rank",
            SmallInteger,
            Computed(
                "CASE job_class WHEN 'interactive'::text THEN 0 "
                "WHEN 'system'::text THEN 1 ELSE 2 END",
                persisted=True,
            ),
            nullable=False,
            comment="The class as a number, first part of the claim order; follows job_class by itself.",
        ),
        Column(
            "status",
            _TEXT,
            nullable=False,
            server_default="queued",
            comment="queued: ready. scheduled: due at available_at. processing: held by a worker. waiting: for its children. completed, failed, cancelled: ended.",
        ),
        Column(
            "attempts",
            Integer,
            nullable=False,
            server_default=text("0"),
            comment="Attempts charged so far, the running one included; counted when claimed.",
        ),
        Column(
            "max_attempts",
            Integer,
            nullable=False,
            server_default=text("5"),
            comment="At this many attempts a failure is final.",
        ),
        Column(
            "fence",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="Fencing token: grows by one at each claim and never goes down; a worker's write must carry the present one.",
        ),
        Column("parent_id", _TEXT, comment="The job that this one is a part of."),
        Column(
            "pages",
            ARRAY(Integer),
            nullable=False,
            server_default="{}",
            comment="Page numbers of the document that this job covers.",
        ),
        Column(
            "on_child_failure",
            _TEXT,
            nullable=False,
            server_default="resume",
            comment="When the last child has ended and not all completed: resume (queue the parent again) or fail.",
        ),
        Column(
            "children_total",
            Integer,
            nullable=False,
            server_default=text("0"),
            comment="Children ever created under this job.",
        ),
        Column(
            "children_open",
            Integer,
            nullable=False,
            server_default=text("0"),
            comment="Children that have not ended; at 0 a waiting parent goes on.",
        ),
        Column(
            "children_failed",
            Integer,
            nullable=False,
            server_default=text("0"),
            comment="Children that ended failed or cancelled.",
        ),
        Column(
            "result",
            LargeBinary,
            comment="What the handler returned, byte for byte; only on completed jobs.",
        ),
        Column(
            "error_code",
            _TEXT,
            comment="Why it failed, short and stable; on a job that is tried again, why its last attempt did.",
        ),
        Column(
            "error_message",
            _TEXT,
            comment="The same for people; on a cancelled job, the reason that was given.",
        ),
        Column(
            "created_at",
            _INSTANT,
            nullable=False,
            server_default=now,
            comment="When it was created, by the database's clock; its place in line, kept through retries.",
        ),
        Column(
            "updated_at",
            _INSTANT,
            nullable=False,
            server_default=now,
            comment="When this row last changed.",
        ),
        Column(
            "available_at",
            _INSTANT,
            nullable=False,
            server_default=now,
            comment="Not to be claimed before this instant.",
        ),
        Column("started_at", _INSTANT, comment="When the latest attempt was claimed."),
        Column(
            "heartbeat_at",
            _INSTANT,
            comment="Last sign of life from the holder; set exactly while processing.",
        ),
        Column(
            "finished_at",
            _INSTANT,
            comment="When it ended; set exactly when it has ended.",
        ),
        Column(
            "worker",
            _TEXT,
            comment="Who holds it, or held it last; unique for each process start.",
        ),
        Column(
            "lease",
            Interval,
            comment="If set, it can't be reclaimed earlier than this after heartbeat_at.",
        ),
        Column(
            "traceparent",
            _TEXT,
            comment="W3C trace context of whoever submitted it.",
        ),
        PrimaryKeyConstraint("id", name="job_pkey"),
        ForeignKeyConstraint(
            ["parent_id"], [f"{schema}.job.id"], name="job_parent_fkey"
        ),
        Index(
            "job_ready_idx",
            "queue",
            "class_rank",
            "created_at",
            "id",
            postgresql_where=text("status = 'queued' AND attempts < max_attempts"),
        ),
        Index(
            "job_scheduled_idx",
            "available_at",
            "id",
            postgresql_where=text("status = 'scheduled'"),
        ),
        Index(
            "job_processing_idx", "id", postgresql_where=text("status = 'processing'")
        ),
        Index("job_waiting_idx", "id", postgresql_where=text("status = 'waiting'")),
        Index(
            "job_exhausted_idx",
            "id",
            postgresql_where=text("status = 'queued' AND attempts >= max_attempts"),
        ),
        Index(
            "job_failed_idx",
            "finished_at",
            "id",
            postgresql_where=text("status = 'failed'"),
        ),
        Index(
            "job_finished_idx",
            "finished_at",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        Index(
            "job_parent_idx",
            "parent_id",
            "created_at",
            "id",
            postgresql_where=text("parent_id IS NOT NULL"),
        ),
        *_checks(
            "job_id_check",
            "job_text_check",
            "job_class_check",
            "job_status_check",
            "job_on_child_failure_check",
            "job_counts_check",
            "job_lease_check",
            "job_started_check",
            "job_finished_check",
            "job_result_check",
            "job_error_check",
            "job_instants_check",
        ),
        comment="One row for each job: what it is, where it is in its life, who holds it. Its payload is in the table payload.",
    )


def _payload(tables: MetaData) -> None:
    Table(
        "payload",
        tables,
        Column("job_id", _TEXT, nullable=False, comment="The job."),
        Column(
            "content_type",
            _TEXT,
            nullable=False,
            server_default="application/octet-stream",
            comment="What the bytes are.",
        ),
        Column(
            "data",
            LargeBinary,
            nullable=False,
            comment="The bytes as submitted, not compressed.",
        ),
        PrimaryKeyConstraint("job_id", name="payload_pkey"),
        *_checks("payload_content_type_check"),
        comment="The work itself, one row for each job; goes with its job.",
    )


def _idempotency_key(tables: MetaData) -> None:
    Table(
        "idempotency_key",
        tables,
        Column("tenant", _TEXT, nullable=False, comment="Whose key it is."),
        Column(
            "idem_key",
            _TEXT,
            nullable=False,
            comment="The key, compared byte for byte.",
        ),
        Column("job_id", _TEXT, nullable=False, comment="The job it stands for."),
        Column(
            "fingerprint",
            LargeBinary,
            nullable=False,
            comment="SHA-256 over kind, content type and payload, to notice a key used again for other work.",
        ),
        Column(
            "created_at",
            _INSTANT,
            nullable=False,
            server_default=text("statement_timestamp()"),
            comment="When it was first used.",
        ),
        Column(
            "expires_at",
            _INSTANT,
            comment="If set, its job was pruned, and the key itself goes then.",
        ),
        PrimaryKeyConstraint("tenant", "idem_key", name="idempotency_key_pkey"),
        Index(
            "idempotency_key_expiry_idx",
            "expires_at",
            postgresql_where=text("expires_at IS NOT NULL"),
        ),
        *_checks(
            "idempotency_key_text_check",
            "idempotency_key_fingerprint_check",
            "idempotency_key_instants_check",
        ),
        comment="The idempotency index: which job a tenant's key stands for. It is what makes a repeated create find the first job.",
    )


def _attempt(tables: MetaData, schema: str) -> None:
    Table(
        "attempt",
        tables,
        Column("job_id", _TEXT, nullable=False, comment="The job."),
        Column(
            "fence",
            BigInteger,
            nullable=False,
            comment="The fencing token of the attempt.",
        ),
        Column(
            "attempt",
            Integer,
            nullable=False,
            comment="Its number; the same number comes again where the attempt was not charged.",
        ),
        Column("worker", _TEXT, comment="Who held it."),
        Column("started_at", _INSTANT, nullable=False, comment="When it was claimed."),
        Column("ended_at", _INSTANT, nullable=False, comment="When it ended."),
        Column(
            "outcome",
            _TEXT,
            nullable=False,
            comment="failed; lease_expired: its worker went silent; not charged: released, snoozed, waiting (for children); cancelled.",
        ),
        Column("error_code", _TEXT, comment="Why, short and stable."),
        Column("error_message", _TEXT, comment="Why, for people."),
        PrimaryKeyConstraint("job_id", "fence", name="attempt_pkey"),
        ForeignKeyConstraint(
            ["job_id"],
            [f"{schema}.job.id"],
            name="attempt_job_fkey",
            ondelete="CASCADE",
        ),
        *_checks("attempt_outcome_check", "attempt_instants_check"),
        comment="History: one row for each attempt that did not end in success; goes with its job.",
    )


def _audit(tables: MetaData) -> None:
    Table(
        "audit",
        tables,
        Column(
            "id",
            BigInteger,
            Identity(always=True),
            nullable=False,
            comment="Number of the entry.",
        ),
        Column(
            "at",
            _INSTANT,
            nullable=False,
            server_default=text("statement_timestamp()"),
            comment="When, by the database's clock.",
        ),
        Column(
            "who",
            _TEXT,
            nullable=False,
            server_default=text("session_user"),
            comment="The role that had logged in.",
        ),
        Column(
            "application",
            _TEXT,
            nullable=False,
            server_default=text("current_setting('application_name')"),
            comment="Its application_name.",
        ),
        Column(
            "action",
            _TEXT,
            nullable=False,
            comment="The function that was called.",
        ),
        Column("reason", _TEXT, nullable=False, comment="Why, in the caller's words."),
        Column(
            "arguments",
            JSONB,
            nullable=False,
            server_default="{}",
            comment="What else it was called with.",
        ),
        Column(
            "job_ids",
            ARRAY(_TEXT),
            nullable=False,
            comment="The jobs that changed; not the parents whose counts followed.",
        ),
        PrimaryKeyConstraint("id", name="audit_pkey"),
        *_checks("audit_text_check"),
        comment="Who changed jobs by hand, by the functions of this schema: one row for each call that was not a dry run.",
    )


def _checks(*names: str) -> list[CheckConstraint]:
    # By name only: their text is the migrations', and the golden schema pins it.
    return [CheckConstraint("true", name=name) for name in names]
