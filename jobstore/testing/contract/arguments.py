"""
The contract of arguments: what does not fit is refused by its name.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from jobstore.errors import InvalidInput
from jobstore.ids import new_id
from jobstore.model import Completed, Job, Lease, NewJob
from jobstore.store import Store
from jobstore.testing.contract.steps import Contract, create

__all__ = ["ArgumentsContract"]

ODD: list[Any] = [True, 5, -1, 10**30, 1.5, math.nan, b"x", [], {}, object()]
IDS = [None, *ODD]
TEXTS = [*ODD, "", "a\x00", "\ud800", "x" * 70_000]
FLAGS = [None, 1, 0, math.nan, "no", "", [], object()]
LIMITS = [True, 0, -1, 10_001, 10**30, 1.5, math.nan, "5", b"5", [], object()]
DURATIONS = [*ODD, "1s", timedelta(-1), timedelta.max]
BATCHES = [None, True, 5, math.nan, "abc", b"abc", object(), [None], [5], {"a": 1}]
CALLABLES = [None, *ODD, "f"]
CLASSES = [*ODD, "urgent", ""]
STATUSES = [*ODD, "stuck", "", ["queued", "stuck"]]

LEASE = Lease(new_id(), 1)


def _same(job: Job) -> Job:
    return job


@dataclass(frozen=True)
class _Verb:
    """
    A verb's name, arguments that fit, and those that do not: for each of its fields.
    """

    name: str
    fits: Mapping[str, Any]
    bad: Mapping[str, Sequence[Any]]
    inside: Mapping[str, str] = field(default_factory=dict)
    """Field of the item of a batch that is to blame."""


_CLAIM = {
    "queue": [None, *TEXTS],
    "job_class": CLASSES,
    "worker": TEXTS,
    "lease": DURATIONS,
}
_FILTERS = dict.fromkeys(
    ("tenant", "queue", "kind", "worker", "error_code", "idem_key"), TEXTS
)
_PAGE = {"after": ODD, "with_result": FLAGS, "limit": LIMITS}

VERBS = [
    _Verb(
        "create",
        {"new": NewJob(kind="k")},
        {"new": BATCHES, "strict": FLAGS, "job_id": ODD},
    ),
    _Verb("create_many", {"new": []}, {"new": BATCHES, "strict": FLAGS}),
    _Verb(
        "fan_out",
        {"lease": LEASE, "children": []},
        {
            "lease": [None, *ODD, "x"],
            "children": BATCHES,
            "on_child_failure": [None, *ODD, "ignore"],
        },
        {"children": "new"},
    ),
    _Verb(
        "set_result",
        {"lease": LEASE, "outcome": Completed()},
        {"lease": [None, *ODD, "x"], "outcome": [None, *ODD, "completed"]},
    ),
    _Verb("set_results", {"outcomes": []}, {"outcomes": [*BATCHES, [(LEASE,)]]}),
    _Verb(
        "complete",
        {"lease": LEASE},
        {
            "lease": [None, *ODD, "x"],
            "result": [one for one in ODD if one != b"x"] + ["text"],
        },
    ),
    _Verb(
        "fail",
        {"lease": LEASE, "error_code": "E"},
        {"lease": [None, *ODD, "x"], "retry_in": DURATIONS},
    ),
    _Verb("release", {"lease": LEASE}, {"lease": [None, *ODD, "x"]}),
    _Verb(
        "snooze",
        {"lease": LEASE, "delay": timedelta(1)},
        {"lease": [None, *ODD, "x"], "delay": [None, *DURATIONS]},
    ),
    *(
        _Verb(name, {"job_id": new_id()}, {"job_id": IDS})
        for name in ("get", "payload", "attempts", "cancel", "requeue")
    ),
    _Verb(
        "update_status",
        {"job_id": new_id(), "fn": _same},
        {"job_id": IDS, "fn": CALLABLES},
    ),
    _Verb("list_children", {"parent_id": new_id()}, {"parent_id": IDS} | _PAGE),
    _Verb(
        "list",
        {},
        _FILTERS
        | _PAGE
        | {"job_class": CLASSES, "status": STATUSES, "oldest_first": FLAGS},
    ),
    _Verb("stats", {}, {"window": [None, *DURATIONS]}),
    _Verb("claim_next", {}, _CLAIM),
    _Verb("claim", {"limit": 1}, {"limit": [None, *LIMITS]} | _CLAIM),
    _Verb("heartbeat", {"leases": []}, {"leases": BATCHES}, {"leases": "lease"}),
    _Verb("promote_due", {}, {"limit": [None, *LIMITS]}),
    _Verb(
        "reclaim_stale",
        {"visibility_timeout": timedelta(1)},
        {"visibility_timeout": [None, *DURATIONS], "limit": [None, *LIMITS]},
    ),
    _Verb("repair_families", {}, {"limit": [None, *LIMITS]}),
    _Verb(
        "prune",
        {"older_than": timedelta(1)},
        {
            "older_than": [None, *DURATIONS, timedelta(0)],
            "status": [None, *STATUSES, ["queued"]],
            "keep_keys_for": [None, *DURATIONS],
            "limit": [None, *LIMITS],
        },
    ),
]


class ArgumentsContract(Contract):
    """
    What every verb promises of its arguments.
    """

    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_what_does_not_fit_is_refused_by_its_name(
        self, store: Store, verb: _Verb
    ) -> None:
        job = create(store)
        taken = []
        for name, values in verb.bad.items():
            for value in values:
                arguments = {**verb.fits, name: value}
                try:
                    getattr(store, verb.name)(**arguments)
                except InvalidInput as refused:
                    if refused.field not in (name, verb.inside.get(name)):
                        taken.append((name, value, f"blamed {refused.field}"))
                except Exception as error:  # noqa: BLE001 - told below, with the others
                    taken.append((name, value, repr(error)))
                else:
                    taken.append((name, value, "taken"))
        assert taken == []
        assert store.list() == [job]
