"""
What a constructor takes, it works with; what it can't work with, it refuses at once.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobstore import (
    AsyncMemoryStore,
    AsyncPostgresStore,
    InvalidInput,
    Limits,
    MemoryStore,
    PostgresStore,
    Worker,
)
from jobstore.embedded import EmbeddedServer

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


@pytest.mark.parametrize("folder", [None, 5, ""])
def test_an_embedded_server_refuses(folder: Any) -> None:
    with pytest.raises(InvalidInput):
        EmbeddedServer(folder)
