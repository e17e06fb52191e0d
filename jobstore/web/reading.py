"""
How the page reads: a store whose sessions cannot write, and more to ask of it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from jobstore.errors import InvalidInput, JobNotFound, StoreFault
from jobstore.ids import known_id
from jobstore.lifecycle import JobClass
from jobstore.model import Attempt, Job, check_text
from jobstore.postgres import Limits, PostgresStore
from jobstore.postgres.engine import engine_url
from jobstore.postgres.rows import to_attempt, to_job
from jobstore.postgres.session import Call, Session
from jobstore.web import queries as sql
from jobstore.web.values import (
    Deed,
    Failures,
    Found,
    Line,
    Minute,
    Overview,
    Seen,
    Sizes,
)

__all__ = ["FILTERS", "LIMITS", "LOOK", "NOT_ALLOWED", "PAGE", "Reader", "named"]

T = TypeVar("T")

PAGE = 50
"""Jobs on one page."""
LOOK = 20_000
"""Jobs that one search looks at."""
FILTERS = ("queue", "kind", "tenant", "job_class", "worker", "error_code")

NOT_ALLOWED = "42501"
"""SQLSTATE of a missing grant."""
_AUDIT_LOOK = 1_000
_BY_RANK = {job_class.rank: job_class for job_class in JobClass}
# A page is looked at by people: it answers soon, or says that it can't.
LIMITS = Limits(statement=timedelta(seconds=10), call=timedelta(seconds=20))


class Reader(PostgresStore):
    """
    A store that also reads what the page shows; its sessions can't write.

    The server itself refuses writes, except through a pooler, which can't be told.
    """

    def __init__(self, dsn: str, *, schema: str, through_pooler: bool = False) -> None:
        url = engine_url(named(dsn))
        if not through_pooler:
            given = url.query.get("options", "")
            options = f"{given} -c default_transaction_read_only=on".strip()
            url = url.update_query_dict({"options": options})
        super().__init__(
            url,
            schema=schema,
            limits=LIMITS,
            pool_size=4,
            through_pooler=through_pooler,
            wake_ups=False,
        )

    def now(self) -> datetime:
        return self._read(_now)

    def overview(self) -> Overview:
        return self._read(_overview)

    def search(
        self, word: str, filters: Mapping[str, str], *, after: str | None
    ) -> Found:
        """
        Find one page of jobs.

        Args:
            word: A key of `queries.ORDERS`.
            filters: Values for some of `FILTERS`.
            after: Id of the last job before.

        Raises:
            InvalidInput: A value that no job can have.
            JobNotFound: *after* is no id.
        """
        if word not in sql.ORDERS:
            raise InvalidInput("status", word, "is no status")
        for name, value in filters.items():
            if name == "job_class" and value not in list(JobClass):
                known = ", ".join(JobClass)
                raise InvalidInput(name, value, f"must be one of {known}")
            if name != "job_class":
                check_text(name, value)
        place = None if after is None else known_id(after)
        return self._read(
            partial(_search, word=word, filters=dict(filters), after=place)
        )

    def failures(self, window: timedelta) -> tuple[list[Failures], bool]:
        """
        Group the failures of *window*; also say whether there are older ones in it.
        """
        return self._read(partial(_failures, window=window))

    def see(self, job_id: str, *, after_child: str | None = None) -> Seen:
        """
        Read one job and what is around it.

        Raises:
            JobNotFound: There is no such job; or *after_child* is no id.
        """
        job_id = known_id(job_id)
        job = self._read(partial(_job, job_id=job_id))
        after = None if after_child is None else known_id(after_child)
        children = self._read(partial(_children, parent_id=job_id, after=after))
        sizes = self._if_allowed(partial(_sizes, job_id=job_id))
        deeds = self._if_allowed(partial(_deeds, job_id=job_id))
        attempts, ancestors, explanation = self._read(partial(_around, job=job))
        return Seen(
            job=job,
            sizes=sizes,
            attempts=attempts,
            ancestors=ancestors,
            children=children[:PAGE],
            next_child=children[PAGE - 1].id if len(children) > PAGE else None,
            deeds=deeds or [],
            explanation=explanation,
        )

    def _if_allowed(self, run: Callable[[Session], T]) -> T | None:
        """
        Read what a role may be kept from; None if it is.
        """
        try:
            return self._read(run)
        except StoreFault as fault:
            if fault.sqlstate != NOT_ALLOWED:
                raise
        return None

    def _read(self, run: Callable[[Session], T]) -> T:
        return self._run(Call(run, writes=False))


def named(dsn: str) -> str:
    """
    Return *dsn* with our name in it, for the audit and for whoever looks at sessions.
    """
    url = engine_url(dsn)
    if "application_name" not in url.query:
        url = url.update_query_dict({"application_name": "jobstore web"})
    return url.render_as_string(hide_password=False)


def of_class(rank: int) -> JobClass:
    return _BY_RANK[rank]


def _now(session: Session) -> datetime:
    at: datetime = session.rows("SELECT statement_timestamp()")[0][0]
    return at.astimezone(UTC)


def _overview(session: Session) -> Overview:
    lines: dict[tuple[str, int], Line] = {}
    bounded: set[str] = set()

    def line(queue: str, rank: int) -> Line:
        fresh = Line(queue=queue, job_class=of_class(rank))
        return lines.setdefault((queue, rank), fresh)

    ready = session.rows(sql.READY, lines=sql.MOST_LINES, most=sql.MOST_READY + 1)
    if len(ready) == sql.MOST_LINES:
        bounded.add("lines")
    for queue, rank, jobs, since in ready:
        one = line(queue, rank)
        one.ready, one.ready_since = jobs, _utc(since)
    totals = dict.fromkeys(("processing", "scheduled", "waiting", "exhausted"), 0)
    for queue, rank, state, jobs, since, expired in session.rows(
        sql.OPEN, most=sql.MOST_OPEN
    ):
        one = line(queue, rank)
        totals[state] += jobs
        if state == "processing":
            one.running, one.running_since, one.expired = jobs, _utc(since), expired
        elif state == "scheduled":
            one.scheduled, one.next_due_at = jobs, _utc(since)
        else:
            setattr(one, state, jobs)
    bounded |= {state for state, total in totals.items() if total >= sql.MOST_OPEN}
    at = _now(session)
    minutes, is_sampled = _flow(session, at, line)
    return Overview(
        at=at,
        lines=[lines[key] for key in sorted(lines)],
        minutes=minutes,
        is_sampled=is_sampled,
        bounded=frozenset(bounded),
    )


def _flow(
    session: Session, at: datetime, line: Callable[[str, int], Line]
) -> tuple[list[Minute], bool]:
    """
    Read what each minute of the last hour saw, whole or sampled.
    """
    this_minute = at.replace(second=0, microsecond=0)
    first = this_minute - timedelta(minutes=60)
    minutes = [Minute(first + timedelta(minutes=number)) for number in range(61)]

    def count(start: datetime, queue: str, rank: int, status: str, jobs: int) -> None:
        number = (start.astimezone(UTC) - first) // timedelta(minutes=1)
        # A job's id has its creator's clock; what lies outside the hour is left out.
        if not 0 <= number <= 60:
            return
        counts = minutes[number].counts
        counts[status] = counts.get(status, 0) + jobs
        if status != "created":
            line(queue, rank).ended[number] += jobs

    rows = session.rows(sql.FLOW, most=sql.MOST_FLOW)
    made = sum(row[4] for row in rows if row[3] == "created")
    ended = sum(row[4] for row in rows) - made
    if max(made, ended) < sql.MOST_FLOW:
        for row in rows:
            count(*row)
        return minutes, False
    for start, queue, rank, status, jobs, looked, reach in session.rows(
        sql.FLOW_SAMPLED, most=sql.MOST_SAMPLED
    ):
        is_last = start.astimezone(UTC) == this_minute
        length = at - this_minute if is_last else timedelta(minutes=1)
        share = 1.0
        if looked >= sql.MOST_SAMPLED:
            share = max(1.0, length / max(reach, timedelta(milliseconds=100)))
        count(start, queue, rank, status, round(jobs * share))
    return minutes, True


def _search(
    session: Session, word: str, filters: dict[str, str], after: str | None
) -> Found:
    place: dict[str, Any] = {}
    if after is not None:
        row = session.row(sql.PLACE, job_id=after)
        names = ("id", "queue", "class_rank", "created_at", "available_at")
        values = dict(zip((*names, "finished_at"), row or (), strict=False))
        place = {
            f"from_{column}": values.get(column) for column in sql.ORDERS[word].columns
        }
        if None in place.values():
            if word or row is not None:
                # It moved on since the page before: there is no place to go on from.
                raise JobNotFound(after)
            place = {"from_id": after}
    rows = session.rows(
        sql.search(word, filters, continues=bool(place)),
        look=LOOK,
        limit=PAGE + 1,
        **filters,
        **place,
    )
    jobs = [to_job(row) for row in rows[:PAGE]]
    if len(rows) > PAGE:
        return Found(jobs=jobs, after=jobs[-1].id, looked_back_to=None)
    end = session.row(
        sql.end_of_look(word, filters, continues=bool(place)),
        look=LOOK,
        **{name: filters[name] for name in filters if name == "queue"},
        **place,
    )
    if end is None:
        return Found(jobs=jobs, after=None, looked_back_to=None)
    return Found(jobs=jobs, after=end[0], looked_back_to=_utc(end[1]))


def _failures(session: Session, window: timedelta) -> tuple[list[Failures], bool]:
    rows = session.rows(sql.FAILURES, window=window, most=sql.MOST_FAILURES)
    groups = [
        Failures(
            error_code=row[0],
            jobs=row[1],
            first_at=row[2].astimezone(UTC),
            last_at=row[3].astimezone(UTC),
            newest_id=row[4],
            kinds=(row[5], row[6]),
            queues=(row[7], row[8]),
            tenants=(row[9], row[10]),
            message=row[11] or "",
        )
        for row in rows
    ]
    return groups, sum(group.jobs for group in groups) >= sql.MOST_FAILURES


def _job(session: Session, job_id: str) -> Job:
    row = session.row(sql.JOB, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return to_job(row)


def _children(session: Session, parent_id: str, after: str | None) -> list[Job]:
    rows = session.rows(sql.CHILDREN, parent_id=parent_id, after=after, limit=PAGE + 1)
    return [to_job(row) for row in rows]


def _sizes(session: Session, job_id: str) -> Sizes:
    row = session.row(sql.SIZES, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return Sizes(
        content_type=row[0],
        payload_bytes=row[1],
        result_bytes=row[2],
        has_key=row[3],
    )


def _deeds(session: Session, job_id: str) -> list[Deed]:
    rows = session.rows(sql.AUDIT, job_id=job_id, look=_AUDIT_LOOK)
    return [
        Deed(
            at=row[0].astimezone(UTC),
            who=row[1],
            application=row[2],
            action=row[3],
            reason=row[4],
        )
        for row in rows
    ]


def _around(
    session: Session, job: Job
) -> tuple[list[Attempt], list[tuple[str, str, str]], str]:
    rows = session.rows(sql.ATTEMPTS, job_id=job.id, most=sql.MOST_ATTEMPTS)
    ancestors: list[tuple[str, str, str]] = []
    if job.parent_id is not None:
        above = session.rows(sql.ANCESTORS, parent_id=job.parent_id)
        ancestors = [(row[0], row[1], row[2]) for row in above]
    explanation = session.rows(sql.EXPLAIN, job_id=job.id)[0][0]
    return [to_attempt(row) for row in rows], ancestors, explanation


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)
