"""
All SQL of the page: bounded, by the partial indexes, whatever the history holds.

Nothing here counts history. What cannot be known without counting it is counted up to
a bound, and the page says so ("10,000 or more"). Plans are proven at size by
tests/web/test_plans.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from jobstore.lifecycle import JobStatus
from jobstore.postgres.rows import JOB_COLUMNS, JOB_COLUMNS_WITHOUT_RESULT
from jobstore.postgres.statements import read

__all__ = [
    "ANCESTORS",
    "ATTEMPTS",
    "AUDIT",
    "CANCEL",
    "CHILDREN",
    "EXPLAIN",
    "FAILURES",
    "FLOW",
    "FLOW_SAMPLED",
    "JOB",
    "MOST_ATTEMPTS",
    "MOST_FAILURES",
    "MOST_FLOW",
    "MOST_LINES",
    "MOST_OPEN",
    "MOST_READY",
    "MOST_SAMPLED",
    "OPEN",
    "ORDERS",
    "PLACE",
    "QUEUES_OF",
    "READY",
    "REQUEUE",
    "SIZES",
    "Order",
    "end_of_look",
    "search",
]

MOST_LINES = 200
"""Lines (queue and class) of ready jobs that the overview shows."""
MOST_READY = 10_000
"""Ready jobs of one line that are counted."""
MOST_OPEN = 20_000
"""Running, scheduled, waiting jobs that are counted, of each."""
MOST_FLOW = 50_000
"""Jobs of the last hour that are counted one by one; beyond, minutes are sampled."""
MOST_SAMPLED = 1_000
"""Jobs of one minute that are looked at then."""
MOST_FAILURES = 20_000
"""Newest failures that are grouped."""
MOST_ATTEMPTS = 200
"""Newest attempts of one job that are shown."""

# Not the columns that an operator's role may not read (jobstore.grants).
_SHOWN = JOB_COLUMNS_WITHOUT_RESULT.replace("job.idem_key", "NULL::text")
_READ = ", ".join(
    column
    for column in [*JOB_COLUMNS.split(", "), "job.class_rank"]
    if column not in {"job.idem_key", "job.result"}
)

# Ready jobs, line by line. The recursion hops along job_ready_idx from one line to the
# next; each is counted to a bound. The longest wait is sought among the thousand jobs
# at the head: one further back was created later.
READY = """
WITH RECURSIVE line AS (
    (
        SELECT queue, class_rank FROM {s}.job
        WHERE status = 'queued' AND attempts < max_attempts
        ORDER BY queue, class_rank LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.class_rank
    FROM line CROSS JOIN LATERAL (
        SELECT job.queue, job.class_rank FROM {s}.job
        WHERE job.status = 'queued' AND job.attempts < job.max_attempts
            AND (job.queue, job.class_rank) > (line.queue, line.class_rank)
        ORDER BY job.queue, job.class_rank LIMIT 1
    ) AS next
)
SELECT line.queue, line.class_rank, depth.jobs, head.since
FROM (SELECT queue, class_rank FROM line LIMIT %(lines)s) AS line
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        SELECT FROM {s}.job
        WHERE job.status = 'queued' AND job.attempts < job.max_attempts
            AND job.queue = line.queue AND job.class_rank = line.class_rank
        LIMIT %(most)s
    ) AS counted
) AS depth
CROSS JOIN LATERAL (
    SELECT min(first.updated_at) AS since
    FROM (
        SELECT job.updated_at FROM {s}.job
        WHERE job.status = 'queued' AND job.attempts < job.max_attempts
            AND job.queue = line.queue AND job.class_rank = line.class_rank
        ORDER BY job.created_at, job.id
        LIMIT 1000
    ) AS first
) AS head
"""

# What else is open, each kind up to a bound, by its own partial index.
OPEN = """
SELECT queue, class_rank, 'processing' AS state, count(*), min(started_at),
    count(*) FILTER (
        WHERE heartbeat_at <= statement_timestamp()
            - greatest(interval '1 minute', coalesce(lease, '0'))
    )
FROM (
    SELECT queue, class_rank, started_at, heartbeat_at, lease FROM {s}.job
    WHERE status = 'processing' ORDER BY id LIMIT %(most)s
) AS held
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'scheduled', count(*), min(available_at), 0
FROM (
    SELECT queue, class_rank, available_at FROM {s}.job
    WHERE status = 'scheduled' ORDER BY available_at, id LIMIT %(most)s
) AS due
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'waiting', count(*), min(created_at), 0
FROM (
    SELECT queue, class_rank, created_at FROM {s}.job
    WHERE status = 'waiting' ORDER BY id LIMIT %(most)s
) AS parents
GROUP BY queue, class_rank
UNION ALL
SELECT queue, class_rank, 'exhausted', count(*), min(created_at), 0
FROM (
    SELECT queue, class_rank, created_at FROM {s}.job
    WHERE status = 'queued' AND attempts >= max_attempts ORDER BY id LIMIT %(most)s
) AS exhausted
GROUP BY queue, class_rank
"""

# The last hour by minute, from the newest back to a bound. Index: job_finished_idx,
# job_pkey.
FLOW = """
SELECT date_trunc('minute', finished_at) AS minute, queue, class_rank, status, count(*)
FROM (
    SELECT finished_at, queue, class_rank, status FROM {s}.job
    WHERE finished_at >= date_trunc('minute', statement_timestamp()) - interval '1 hour'
    ORDER BY finished_at DESC LIMIT %(most)s
) AS ended
GROUP BY 1, 2, 3, 4
UNION ALL
SELECT date_trunc('minute', created_at), queue, class_rank, 'created', count(*)
FROM (
    SELECT created_at, queue, class_rank FROM {s}.job
    WHERE id >= {s}.ulid_at(
        date_trunc('minute', statement_timestamp()) - interval '1 hour'
    )
    ORDER BY id DESC LIMIT %(most)s
) AS made
GROUP BY 1, 2, 3
"""

# The same where an hour holds more than that: of each minute the first jobs, and how
# far they reach; the caller works out the rest of the minute.
FLOW_SAMPLED = """
SELECT minute.at, seen.queue, seen.class_rank, seen.status, seen.jobs,
    seen.looked, seen.reach
FROM (
    SELECT date_trunc('minute', statement_timestamp()) - n * interval '1 minute' AS at
    FROM generate_series(0, 60) AS n
) AS minute
CROSS JOIN LATERAL (
    SELECT first.queue, first.class_rank, first.status, count(*) AS jobs,
        (sum(count(*)) OVER ())::bigint AS looked,
        max(max(first.at)) OVER () - minute.at AS reach
    FROM (
        SELECT job.queue, job.class_rank, job.status, job.finished_at AS at
        FROM {s}.job
        WHERE job.finished_at >= minute.at
            AND job.finished_at < minute.at + interval '1 minute'
        ORDER BY job.finished_at LIMIT %(most)s
    ) AS first
    GROUP BY first.queue, first.class_rank, first.status
    UNION ALL
    SELECT first.queue, first.class_rank, 'created', count(*),
        (sum(count(*)) OVER ())::bigint, max(max(first.at)) OVER () - minute.at
    FROM (
        SELECT job.queue, job.class_rank, job.created_at AS at FROM {s}.job
        WHERE job.id >= {s}.ulid_at(minute.at)
            AND job.id < {s}.ulid_at(minute.at + interval '1 minute')
        ORDER BY job.id LIMIT %(most)s
    ) AS first
    GROUP BY first.queue, first.class_rank
) AS seen
"""

# Index: job_failed_idx, from the newest back to a bound.
FAILURES = """
SELECT error_code, count(*), min(finished_at), max(finished_at), max(id),
    (array_agg(DISTINCT kind))[1:4], count(DISTINCT kind),
    (array_agg(DISTINCT queue))[1:4], count(DISTINCT queue),
    (array_agg(DISTINCT tenant))[1:4], count(DISTINCT tenant),
    left((array_agg(error_message ORDER BY finished_at DESC, id DESC))[1], 300)
FROM (
    SELECT id, error_code, finished_at, kind, queue, tenant, error_message
    FROM {s}.job
    WHERE status = 'failed'
        AND finished_at > statement_timestamp() - %(window)s::interval
    ORDER BY finished_at DESC, id DESC
    LIMIT %(most)s
) AS newest
GROUP BY error_code
ORDER BY 2 DESC, error_code
"""

JOB = f"SELECT {_SHOWN} FROM {{s}}.job WHERE id = %(job_id)s"

CHILDREN = read.list_children(with_result=False).replace("job.idem_key", "NULL::text")

# Lengths only: the values themselves stay where they are, unread.
SIZES = """
SELECT payload.content_type, octet_length(payload.data), octet_length(job.result),
    job.idem_key IS NOT NULL
FROM {s}.job LEFT JOIN {s}.payload ON payload.job_id = job.id
WHERE job.id = %(job_id)s
"""

ATTEMPTS = """
SELECT job_id, fence, attempt, worker, started_at, ended_at, outcome,
    error_code, left(error_message, 2000)
FROM {s}.attempt
WHERE job_id = %(job_id)s
ORDER BY fence DESC
LIMIT %(most)s
"""

# From the parent up, at most ten storeys.
ANCESTORS = """
WITH RECURSIVE above AS (
    SELECT job.id, job.parent_id, job.kind, job.status, 1 AS storey
    FROM {s}.job WHERE job.id = %(parent_id)s
    UNION ALL
    SELECT job.id, job.parent_id, job.kind, job.status, above.storey + 1
    FROM above CROSS JOIN LATERAL (
        SELECT job.id, job.parent_id, job.kind, job.status
        FROM {s}.job WHERE job.id = above.parent_id
    ) AS job
    WHERE above.storey < 10
)
SELECT id, kind, status FROM above ORDER BY storey DESC
"""

EXPLAIN = "SELECT {s}.explain_job(%(job_id)s)"

# What an operator did to one job, among the newest entries; most have few ids.
AUDIT = """
SELECT at, who, application, action, reason
FROM (SELECT * FROM {s}.audit ORDER BY id DESC LIMIT %(look)s) AS newest
WHERE %(job_id)s = ANY(job_ids)
ORDER BY id DESC
LIMIT 20
"""

# The functions make all their rows at once; only the first are sent, with how many
# there are. Those that went back in line come first: workers are told.
_CHANGES = """
SELECT id, was, becomes, count(*) OVER ()
FROM {s}.<function>(%(job_id)s, %(reason)s, %(dry_run)s)
ORDER BY becomes <> 'queued', id <> %(job_id)s, id
LIMIT %(most)s
"""
REQUEUE = _CHANGES.replace("<function>", "requeue_job")
CANCEL = _CHANGES.replace("<function>", "cancel_job")

QUEUES_OF = "SELECT DISTINCT queue FROM {s}.job WHERE id = ANY(%(job_ids)s)"


@dataclass(frozen=True, slots=True)
class Order:
    """
    How the jobs of one status are listed: along one index, and no other way.
    """

    condition: str
    columns: tuple[str, ...]
    descending: bool
    explained: str


_NEWEST = ("id",)
_ENDED = ("finished_at", "id")

ORDERS: dict[str, Order] = {
    "": Order("true", _NEWEST, descending=True, explained="newest first"),
    "queued": Order(
        "status = 'queued' AND attempts < max_attempts",
        ("queue", "class_rank", "created_at", "id"),
        descending=False,
        explained="in the order of claiming",
    ),
    "scheduled": Order(
        "status = 'scheduled'",
        ("available_at", "id"),
        descending=False,
        explained="next due first",
    ),
    "processing": Order(
        "status = 'processing'", _NEWEST, descending=True, explained="newest first"
    ),
    "waiting": Order(
        "status = 'waiting'", _NEWEST, descending=False, explained="oldest first"
    ),
    "completed": Order(
        "finished_at IS NOT NULL", _ENDED, descending=True, explained="last ended first"
    ),
    "failed": Order(
        "status = 'failed'", _ENDED, descending=True, explained="last failed first"
    ),
    "cancelled": Order(
        "finished_at IS NOT NULL", _ENDED, descending=True, explained="last ended first"
    ),
    "exhausted": Order(
        "status = 'queued' AND attempts >= max_attempts",
        _NEWEST,
        descending=False,
        explained="oldest first",
    ),
}
"""By the word in the filter; "exhausted" is queued with no attempt left."""

# Where a page ended: the values that any order may continue from.
PLACE = """
SELECT id, queue, class_rank, created_at, available_at, finished_at
FROM {s}.job WHERE id = %(job_id)s
"""


def search(word: str, filters: Iterable[str], *, continues: bool) -> str:
    """
    Build the listing: the first matches among the next *look* jobs of an order.

    A filter that nothing matches would otherwise walk through all history. *filters*
    are columns, compared with parameters of the same name.
    """
    names = list(filters)
    conditions = [f"{column} = %({column})s" for column in names]
    if ORDERS[word].condition == "finished_at IS NOT NULL":
        conditions.append(f"status = '{JobStatus(word)}'")
    matching = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"""
        SELECT {_SHOWN}
        FROM ({_look(word, names, _READ, continues=continues)} LIMIT %(look)s) AS job
        {matching}
        ORDER BY {_by(word)}
        LIMIT %(limit)s
    """


def end_of_look(word: str, filters: Iterable[str], *, continues: bool) -> str:
    """
    Build the query for the last job that such a search looked at, if there are more.
    """
    look = _look(word, list(filters), "job.id, job.created_at", continues=continues)
    return f"{look} OFFSET %(look)s - 1 LIMIT 1"


def _look(word: str, filters: list[str], columns: str, *, continues: bool) -> str:
    order = ORDERS[word]
    comparison = "<" if order.descending else ">"
    conditions = [f"({order.condition})"]
    if word == "queued" and "queue" in filters:
        conditions.append("job.queue = %(queue)s")
    if continues:
        names = ", ".join(f"job.{column}" for column in order.columns)
        values = ", ".join(f"%(from_{column})s" for column in order.columns)
        conditions.append(f"({names}) {comparison} ({values})")
    return f"""
        SELECT {columns} FROM {{s}}.job
        WHERE {" AND ".join(conditions)}
        ORDER BY {_by(word)}
    """


def _by(word: str) -> str:
    order = ORDERS[word]
    direction = "DESC" if order.descending else "ASC"
    return ", ".join(f"job.{column} {direction}" for column in order.columns)
