"""
Submitting: create and create_many.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jobstore.errors import (
    IdempotencyConflict,
    InvalidParent,
    JobPruned,
    StoreBusy,
)
from jobstore.lifecycle import TERMINAL, JobStatus
from jobstore.model import Created, NewJob
from jobstore.postgres.rows import to_job, to_new_job
from jobstore.postgres.session import Session
from jobstore.postgres.statements import create as sql
from jobstore.postgres.statements import read

__all__ = ["arrays_of", "create", "create_many", "find", "insert", "row_of"]

# A key can vanish between the insert that met it and the look-up, if its job is
# pruned at that moment. Once is rare; three times is something else.
_TRIES = 3

_NEVER = datetime.max.replace(tzinfo=UTC)


class _Inserted(NamedTuple):
    """
    What an insert stored, by id; all of it at one instant.
    """

    statuses: dict[str, JobStatus]
    created_at: datetime


def create(
    session: Session, new: NewJob, job_id: str, *, strict: bool, may_exist: bool
) -> Created:
    if may_exist or session.is_repeated:
        found = _find_repeated(session, new, job_id)
        if found is not None:
            # What an earlier try of this very call stored is this call's work.
            return found if may_exist else Created(found.job, created=True)
    if new.parent_id is None:
        return insert(session, [new], [job_id], strict=strict)[0]
    return create_many(session, [new], [job_id], strict=strict)[0]


def create_many(
    session: Session, new: Sequence[NewJob], job_ids: Sequence[str], *, strict: bool
) -> list[Created]:
    if not new:
        return []
    _lock_parents(session, new)
    if session.is_repeated:
        # The batch was one transaction: if one of its ids is there, all are that
        # were to be.
        known = {row[0]: row for row in session.rows(sql.FIND_BY_ID, job_ids=job_ids)}
        if known:
            return _as_created(session, new, job_ids, known)
    created = insert(session, new, job_ids, strict=strict)
    children = Counter(
        one.job.parent_id for one in created if one.created and one.job.parent_id
    )
    if children:
        session.run(
            sql.GROW_PARENTS,
            parent_ids=list(children.keys()),
            children=list(children.values()),
        )
    return created


def _find_repeated(session: Session, new: NewJob, job_id: str) -> Created | None:
    """
    Find the job that an earlier try of the same create stored under *job_id*.
    """
    row = session.row(read.GET, job_id=job_id)
    if row is None:
        return None
    job = to_job(row)
    data, content_type = session.row(read.PAYLOAD, job_id=job_id) or (None, None)
    stored = (job.tenant, job.idem_key, job.kind, content_type, data)
    wanted = (new.tenant, new.idem_key, new.kind, new.content_type, new.payload)
    if stored != wanted:
        raise IdempotencyConflict(job.id, job.tenant)
    return Created(job, created=False)


def _as_created(
    session: Session,
    new: Sequence[NewJob],
    job_ids: Sequence[str],
    known: Mapping[str, Sequence[Any]],
) -> list[Created]:
    """
    Answer for a batch that an earlier try of this call committed.
    """
    results = []
    for one, job_id in zip(new, job_ids, strict=True):
        if row := known.get(job_id):
            results.append(Created(to_job(row), created=True))
        else:
            results.extend(found for found in find(session, [one]) if found)
    return results


def _lock_parents(session: Session, new: Sequence[NewJob]) -> None:
    wanted = {one.parent_id: one.tenant for one in new if one.parent_id}
    if not wanted:
        return
    rows = session.rows(sql.LOCK_PARENTS, parent_ids=sorted(wanted))
    found = {job_id: (tenant, status) for job_id, tenant, status in rows}
    for one in new:
        if not one.parent_id:
            continue
        tenant, status = found.get(one.parent_id, (None, None))
        if tenant is None:
            raise InvalidParent(one.parent_id, "there is no such job")
        if tenant != one.tenant:
            raise InvalidParent(one.parent_id, "it belongs to another tenant")
        # What was created while it went on is found all the same.
        if status in TERMINAL and not (one.idem_key and find(session, [one])[0]):
            raise InvalidParent(one.parent_id, f"it is {status} already")


def insert(
    session: Session, new: Sequence[NewJob], job_ids: Sequence[str], *, strict: bool
) -> list[Created]:
    """
    Insert what is new and find what is known; parents are locked by now.
    """
    results: list[Created | None] = [None] * len(new)
    missing = list(range(len(new)))
    for _ in range(_TRIES):
        inserted = _insert_once(session, new, job_ids, missing)
        for place in missing:
            if status := inserted.statuses.get(job_ids[place]):
                asked = new[place]
                if status is JobStatus.QUEUED:
                    session.queues_to_wake.add(asked.queue)
                job = to_new_job(asked, job_ids[place], status, inserted.created_at)
                results[place] = Created(job, created=True)
        missing = [place for place in missing if results[place] is None]
        if missing:
            known = find(session, [new[place] for place in missing], strict=strict)
            for place, one in zip(missing, known, strict=True):
                if one is not None and one.job.id == job_ids[place]:
                    # Our own, by an earlier try that the server finished meanwhile.
                    one = Created(one.job, created=True)  # noqa: PLW2901
                results[place] = one
            missing = [place for place in missing if results[place] is None]
        if not missing:
            return [one for one in results if one is not None]
    message = "an idempotency key came and went while its job was being created"
    raise StoreBusy(message)


def _insert_once(
    session: Session, new: Sequence[NewJob], job_ids: Sequence[str], places: list[int]
) -> _Inserted:
    if len(places) == 1:
        one, job_id = new[places[0]], job_ids[places[0]]
        row = session.row(sql.CREATE_JOB, **row_of(one, job_id))
        if row is None:
            return _Inserted({}, _NEVER)
        status = JobStatus.SCHEDULED if row[0] == "scheduled" else JobStatus.QUEUED
        return _Inserted({job_id: status}, row[1].astimezone(UTC))
    chosen = [new[place] for place in places]
    arrays = arrays_of(chosen, [job_ids[place] for place in places])
    ((inserted, scheduled, created_at),) = session.rows(sql.CREATE_JOBS, **arrays)
    statuses = dict.fromkeys(inserted or (), JobStatus.QUEUED)
    statuses.update(dict.fromkeys(scheduled or (), JobStatus.SCHEDULED))
    return _Inserted(statuses, created_at.astimezone(UTC))


def row_of(new: NewJob, job_id: str) -> dict[str, Any]:
    """
    Return what CREATE_JOB takes.
    """
    return {
        "job_id": job_id,
        "tenant": new.tenant,
        "idem_key": new.idem_key,
        "fingerprint": new.fingerprint if new.idem_key else None,
        "queue": new.queue,
        "kind": new.kind,
        "job_class": str(new.job_class),
        "max_attempts": new.max_attempts,
        "available_at": new.available_at,
        "delay": None if new.delay is None else new.delay.total_seconds(),
        "parent_id": new.parent_id,
        "pages": list(new.pages),
        "traceparent": new.traceparent,
        "content_type": new.content_type,
        "payload": new.payload,
    }


def arrays_of(new: Sequence[NewJob], job_ids: Sequence[str]) -> dict[str, Any]:
    """
    Return what CREATE_JOBS takes: for each column an array, or what all have in common.
    """
    parameters: dict[str, Any] = {
        "job_ids": list(job_ids),
        "payloads": [one.payload for one in new],
    }
    columns: dict[tuple[str, str], list[Any]] = {
        ("tenant", "tenants"): [one.tenant for one in new],
        ("idem_key", "idem_keys"): (keys := [one.idem_key for one in new]),
        ("fingerprint", "fingerprints"): (
            [one.fingerprint if one.idem_key else None for one in new]
            if any(keys)
            else [None]
        ),
        ("queue", "queues"): [one.queue for one in new],
        ("kind", "kinds"): [one.kind for one in new],
        ("job_class", "job_classes"): [str(one.job_class) for one in new],
        ("max_attempts", "limits_of_attempts"): [one.max_attempts for one in new],
        ("available_at", "available_ats"): [one.available_at for one in new],
        ("delay", "delays"): [
            None if one.delay is None else one.delay.total_seconds() for one in new
        ],
        ("parent_id", "parent_ids"): [one.parent_id for one in new],
        # An array of arrays could not hold rows of different lengths.
        ("pages", "pages_of_jobs"): [
            "{" + ",".join(map(str, one.pages)) + "}" for one in new
        ],
        ("traceparent", "traceparents"): [one.traceparent for one in new],
        ("content_type", "content_types"): [one.content_type for one in new],
    }
    for (common, many), values in columns.items():
        is_common = values.count(values[0]) == len(values)
        parameters[common] = values[0] if is_common else None
        parameters[many] = [] if is_common else values
    return parameters


def find(
    session: Session, new: Sequence[NewJob], *, strict: bool = False
) -> list[Created | None]:
    """
    Find the jobs that hold the keys of *new*; None where nobody does.
    """
    results: list[Created | None] = [None] * len(new)
    rows = session.rows(
        sql.FIND_BY_KEY,
        tenants=[one.tenant for one in new],
        idem_keys=[one.idem_key for one in new],
    )
    for place, fingerprint, job_id, *columns in rows:
        if columns[0] is None:
            raise JobPruned(job_id)
        job, wanted = to_job(columns), new[place - 1]
        matches = bytes(fingerprint) == wanted.fingerprint
        if strict and not (matches and job.parent_id == wanted.parent_id):
            raise IdempotencyConflict(job.id, job.tenant)
        results[place - 1] = Created(job, created=False, payload_matches=matches)
    return results
