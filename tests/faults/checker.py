"""
Decides whether a history keeps the promises of docs/guarantees.md. Does no I/O.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.history import Change, History, Operation, Record, Reply

__all__ = ["Rule", "Violation", "check"]

_ENDED = frozenset({"completed", "failed", "cancelled"})


class Rule(StrEnum):
    CREATE_LOST = "acknowledged create lost"
    TWO_LEASES = "two leases live at once on one job"
    STALE_RESULT = "result accepted from a stale lease"
    TWO_ENDS = "more than one terminal state"
    JOIN = "a parent joined not exactly once"
    RESULT_DIFFERS = "stored result differs from the acknowledged one"
    NOT_ENDED = "a job did not end"


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    job_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: job {self.job_id}: {self.what}"


def check(history: History) -> list[Violation]:
    """
    Return all violations, rule by rule; an empty list is a clean history.

    The system must be at rest: every fault over, and the queue drained.
    """
    return [
        *_creates(history),
        *_leases(history),
        *_stale(history),
        *_overwritten(history),
        *_ends(history),
        *_joins(history),
        *_results(history),
        *_rest(history),
    ]


def _creates(history: History) -> Iterator[Violation]:
    for record in _acknowledged(history, Operation.CREATE):
        if record.job_id not in history.final:
            yield Violation(Rule.CREATE_LOST, record.job_id, "is not in the store")


def _leases(history: History) -> Iterator[Violation]:
    claims = Counter(
        (record.job_id, record.fence)
        for record in _acknowledged(history, Operation.CLAIM)
    )
    for (job_id, fence), times in claims.items():
        if times > 1:
            yield Violation(
                Rule.TWO_LEASES, job_id, f"fence {fence} was given {times} times"
            )
    for job_id, changes in _by_job(history).items():
        fence, instant, is_live = 0, float("-inf"), False
        for change in changes:
            if change.after == "processing" and change.fence != fence:
                if is_live:
                    what = f"{change.fence} was given while {fence} was live"
                    yield Violation(Rule.TWO_LEASES, job_id, what)
                if change.fence < fence or change.instant < instant:
                    what = f"{change.fence} at {change.instant} came after {fence}"
                    yield Violation(Rule.TWO_LEASES, job_id, what)
                fence = change.fence
            is_live, instant = change.after == "processing", change.instant


def _stale(history: History) -> Iterator[Violation]:
    # What a worker is told must have been written under its own lease, not a later one.
    written = {
        (change.job_id, change.fence)
        for change in history.changes
        if change.before == "processing" and change.after != "processing"
    }
    for operation in (Operation.FINISH, Operation.FAN_OUT):
        for record in _acknowledged(history, operation):
            if (record.job_id, record.fence) not in written:
                what = f"fence {record.fence} ended nothing"
                yield Violation(Rule.STALE_RESULT, record.job_id, what)
    ends_of = defaultdict(set)
    for change in history.changes:
        if change.before == "processing" and change.after in {*_ENDED, "waiting"}:
            ends_of[change.job_id, change.fence].add(change.after)
    for record in _acknowledged(history, Operation.FINISH):
        ends = ends_of[record.job_id, record.fence]
        if record.status == "completed" and ends != {"completed"}:
            what = f"fence {record.fence} is acknowledged, but became {sorted(ends)}"
            yield Violation(Rule.STALE_RESULT, record.job_id, what)


def _overwritten(history: History) -> Iterator[Violation]:
    # Refused to its writer, and yet there: each attempt's result is its own.
    own = {
        (record.job_id, record.fence, record.result)
        for record in history.records
        if record.operation is Operation.FINISH and record.status == "completed"
    }
    for job_id, fence, result in sorted(own, key=str):
        job = history.final.get(job_id)
        if job is None or job.status != "completed" or job.result != result:
            continue
        if fence < job.fence and (job_id, job.fence, result) not in own:
            what = f"the result of fence {fence} is stored under fence {job.fence}"
            yield Violation(Rule.STALE_RESULT, job_id, what)


def _ends(history: History) -> Iterator[Violation]:
    for job_id, changes in _by_job(history).items():
        ends = [
            change.after
            for change in changes
            if change.after in _ENDED and change.before != change.after
        ]
        if len(ends) > 1:
            yield Violation(Rule.TWO_ENDS, job_id, ", then ".join(ends))
    fences = defaultdict(set)
    for record in _acknowledged(history, Operation.FINISH):
        if record.status == "completed":
            fences[record.job_id].add(record.fence)
    for job_id, found in fences.items():
        if len(found) > 1:
            what = f"completed under the fences {sorted(found)}"
            yield Violation(Rule.TWO_ENDS, job_id, what)


def _joins(history: History) -> Iterator[Violation]:
    children = Counter(job.parent_id for job in history.final.values())
    for job_id, changes in _by_job(history).items():
        parked = sum(change.after == "waiting" != change.before for change in changes)
        joined = sum(change.before == "waiting" != change.after for change in changes)
        if parked != joined or parked > 1:
            what = f"parked {parked} times, joined {joined} times"
            yield Violation(Rule.JOIN, job_id, what)
    for job_id, job in history.final.items():
        if job.children_total != children[job_id] or job.children_open:
            what = (
                f"counts {job.children_total} children, {job.children_open} of them "
                f"open; {children[job_id]} are there"
            )
            yield Violation(Rule.JOIN, job_id, what)


def _results(history: History) -> Iterator[Violation]:
    for record in _acknowledged(history, Operation.FINISH):
        job = history.final.get(record.job_id)
        if record.status != "completed":
            continue
        stored = None if job is None else (job.status, job.result)
        if stored != ("completed", record.result):
            what = f"{record.result!r} was acknowledged, {stored} is stored"
            yield Violation(Rule.RESULT_DIFFERS, record.job_id, what)


def _rest(history: History) -> Iterator[Violation]:
    for job_id, job in history.final.items():
        if job.status not in _ENDED:
            yield Violation(Rule.NOT_ENDED, job_id, f"is {job.status}")


def _acknowledged(history: History, operation: Operation) -> Iterator[Record]:
    for record in history.records:
        if record.operation is operation and record.outcome is Reply.ACKNOWLEDGED:
            yield record


def _by_job(history: History) -> dict[str, list[Change]]:
    found = defaultdict(list)
    for change in history.changes:
        found[change.job_id].append(change)
    return found
