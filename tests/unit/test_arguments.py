"""
What a constructor takes, it works with; what it can't work with, it refuses at once.
"""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobstore import (
    AsyncMemoryStore,
    AsyncPostgresStore,
    Handlers,
    InvalidInput,
    JobClass,
    Limits,
    MemoryStore,
    PostgresStore,
    Worker,
    doctor,
    grants,
    migrate,
)
from jobstore.doctor import Thresholds
from jobstore.embedded import EmbeddedServer
from jobstore.worker import command_handler

DSN = "postgresql://nobody@127.0.0.1:1/nowhere"


def handler(_context: object) -> None: ...


def worker(**arguments: Any) -> Worker:
    given = {"store": MemoryStore(), "handlers": {"k": handler}, **arguments}
    return Worker(given.pop("store"), given.pop("handlers"), **given)


BAD: list[tuple[str, list[Any]]] = [
    ("schema", [None, 5, "", "a\x00b", "x" * 64]),
    ("retry", [None, 5, timedelta(1)]),
    ("max_payload_bytes", [None, True, -1, 2**31, 1.5, "5"]),
    ("limits", [None, 5, timedelta(1)]),
    ("pool_size", [None, True, 0, -1, 10**9, 1.5, "5"]),
    ("through_pooler", [None, 1, "no"]),
    ("wake_ups", [None, 1, "no"]),
]


@pytest.mark.parametrize("make", [PostgresStore, AsyncPostgresStore])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD for value in values]
)
def test_a_store_refuses(make: Callable[..., Any], name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(DSN, **{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("make", [PostgresStore, AsyncPostgresStore])
@pytest.mark.parametrize(
    "target", [None, 5, b"", "", "mysql://h/d", "no dsn", object()]
)
def test_a_store_refuses_a_target(make: Callable[..., Any], target: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(target)
    assert refused.value.field == "dsn"


@pytest.mark.parametrize("make", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize(
    ("name", "value"),
    [("retry", None), ("max_payload_bytes", -1), ("clock", 5)],
)
def test_a_memory_store_refuses(
    make: Callable[..., Any], name: str, value: object
) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(**{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("name", ["connect", "statement", "lock", "call"])
@pytest.mark.parametrize(
    "value", [None, 5, True, timedelta(-1), timedelta.max, timedelta(days=25)]
)
def test_limits_refuse(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        Limits(**{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("target", [None, 5, "connection", DSN])
async def test_a_transaction_is_one(target: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        PostgresStore(DSN, wake_ups=False).within(target)
    assert refused.value.field == "transaction"
    with pytest.raises(InvalidInput) as refused:
        AsyncPostgresStore(DSN, wake_ups=False).within(target)
    assert refused.value.field == "transaction"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"store": None}, "store"),
        ({"store": "postgresql://…"}, "store"),
        ({"store": object()}, "store"),
        ({"handlers": {}}, "handlers"),
        ({"handlers": None}, "handlers"),
        ({"handlers": handler}, "handlers"),
        ({"handlers": {"k": None}}, "handlers['k']"),
        ({"handlers": {5: handler}}, "kind"),
        ({"handlers": {"": handler}}, "kind"),
        *(
            ({"concurrency": value}, "concurrency")
            for value in (0, -1, True, None, "2")
        ),
        *(({"queues": value}, "queues") for value in ((), "default", None, 5)),
        ({"queues": (None,)}, "queue"),
        ({"job_class": "urgent"}, "job_class"),
        *(
            ({name: value}, name)
            for name in ("visibility_timeout", "grace", "poll_every", "keep_keys_for")
            for value in (None, 5, True, timedelta(-1), timedelta.max)
        ),
        *(
            ({name: value}, name)
            for name in ("heartbeat_every", "upkeep_every", "prune_after")
            for value in (5, True, timedelta(-1), timedelta.max)
        ),
        *(({"name": value}, "worker") for value in ("", 5, "a\x00")),
    ],
)
def test_a_worker_refuses(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        worker(**arguments)
    assert refused.value.field == field


NUMBERS: list[Any] = [None, True, -1, math.nan, math.inf, "5", b"5", [], timedelta(1)]
DURATIONS: list[Any] = [True, 5, math.nan, "1s", timedelta(-1), timedelta.max]
SCHEMAS: list[Any] = [None, True, 5, "", "a\x00", "\ud800", "x" * 64, "pg_x", b"x", []]
FLAGS: list[Any] = [None, 1, 0, "no", []]
REVISIONS: list[Any] = [None, True, 5, "", b"0001", []]
TARGETS: list[Any] = [None, True, 5, "", b"x", "mysql://h/d", "no dsn", object()]
SPANS = [None, *DURATIONS]
PATHS: list[Any] = [True, 5, "", "a\x00b", "\ud800", b"x", []]
ODD: list[Any] = [None, True, 5, "", object(), [], {}]

# For each function what fits, and for each of its fields what does not.
FUNCTIONS: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, list[Any]]]] = {
    Thresholds: (
        {},
        dict.fromkeys(("silence", "snapshot", "lock_wait", "clock_skew"), SPANS)
        | dict.fromkeys(
            (
                "dead_rows",
                "bloat_bytes",
                "slot_bytes",
                "connections",
                "transaction_age",
                "critical_factor",
            ),
            NUMBERS,
        )
        | {"wait": [*ODD, {JobClass.BATCH: timedelta(1)}]},
    ),
    EmbeddedServer: (
        {"data_dir": "folder"},
        {
            "data_dir": [None, *PATHS],
            "bin_dir": PATHS,
            "settings": [True, 5, "fsync", [], {"fsync": False}, {5: "5"}, {"": ""}],
            "start_timeout": [*NUMBERS, 0, 10**30],
        },
    ),
    command_handler: (
        {"argv": ["true"]},
        {
            "argv": [
                *ODD,
                "true",
                b"true",
                [None],
                ["true", 5],
                ["a\x00"],
                ["no such"],
            ],
            "timeout": [*DURATIONS, timedelta(0)],
            "max_output_bytes": [*NUMBERS, 1.5, 10**30],
        },
    ),
    doctor.examine: (
        {"target": DSN},
        {"target": TARGETS, "schema": SCHEMAS, "thresholds": ODD},
    ),
    doctor.explain: (
        {"target": DSN, "job_id": "0" * 26},
        {"target": TARGETS, "schema": SCHEMAS, "job_id": [None, True, 5, b"x", []]},
    ),
    grants.apply: (
        {"target": DSN},
        {"target": TARGETS, "schema": SCHEMAS, "roles": ODD, "create_roles": FLAGS},
    ),
    grants.script: ({}, {"schema": SCHEMAS, "roles": ODD, "create_roles": FLAGS}),
    migrate.sql: (
        {},
        {"schema": SCHEMAS, "from_revision": REVISIONS, "to_revision": REVISIONS},
    ),
    migrate.upgrade: (
        {"target": DSN},
        {"target": TARGETS, "schema": SCHEMAS, "revision": REVISIONS},
    ),
    migrate.downgrade: (
        {"target": DSN, "revision": "base"},
        {
            "target": TARGETS,
            "schema": SCHEMAS,
            "revision": REVISIONS,
            "allow_data_loss": FLAGS,
        },
    ),
    migrate.wait: (
        {"target": DSN},
        {
            "target": TARGETS,
            "schema": SCHEMAS,
            "timeout": DURATIONS,
            "poll": [None, *DURATIONS, timedelta(0)],
        },
    ),
    **dict.fromkeys(
        (migrate.check, migrate.current, migrate.history, migrate.require_current),
        ({"target": DSN}, {"target": TARGETS, "schema": SCHEMAS}),
    ),
}


@pytest.mark.parametrize(
    ("kinds", "registered", "field"),
    [
        ((), handler, "kinds"),
        ((5,), handler, "kind"),
        (("k", ""), handler, "kind"),
        (("k",), None, "handler"),
        (("k",), "handler", "handler"),
    ],
)
def test_a_registry_refuses(kinds: Any, registered: Any, field: str) -> None:
    handlers = Handlers()
    with pytest.raises(InvalidInput) as refused:
        handlers.on(*kinds)(registered)
    assert refused.value.field == field
    assert not handlers


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_what_does_not_fit_is_refused_before_anything_is_opened(
    function: Callable[..., Any],
) -> None:
    fits, bad = FUNCTIONS[function]
    taken = []
    for name, values in bad.items():
        for value in values:
            try:
                function(**{**fits, name: value})
            except InvalidInput as refused:
                blamed = refused.field.partition("[")[0]
                if blamed != ("dsn" if name == "target" else name):
                    taken.append((name, value, f"blamed {refused.field}"))
            except Exception as error:  # noqa: BLE001 - told below, with the others
                taken.append((name, value, repr(error)))
            else:
                taken.append((name, value, "taken"))
    assert taken == []
