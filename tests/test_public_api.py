"""
The public surface: what is exported, documented, and equal in both colours.
"""

import inspect
from typing import Any

import pytest

import jobstore
from jobstore import (
    AsyncMemoryStore,
    AsyncPostgresStore,
    JobstoreError,
    MemoryStore,
    PostgresStore,
)
from jobstore.async_store import AsyncCreator, AsyncFinisher, AsyncStore
from jobstore.observe.async_store import AsyncObservedStore
from jobstore.observe.store import ObservedStore
from jobstore.postgres.enlisted import AsyncEnlisted, Enlisted
from jobstore.store import Creator, Finisher, Store

# Only the synchronous store has these: a worker asks for them, through `blocking`.
BLOCKING_ONLY = {"listen", "dedicated"}


def verbs(protocol: type) -> dict[str, Any]:
    return {
        name: member
        for name in dir(protocol)
        if not name.startswith("_")
        and inspect.isfunction(member := getattr(protocol, name))
    }


def shape(function: Any) -> list[tuple[str, object, object, str]]:
    return [
        (one.name, one.kind, one.default, str(one.annotation))
        for one in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (Store, MemoryStore),
        (Store, PostgresStore),
        (AsyncStore, AsyncMemoryStore),
        (AsyncStore, AsyncPostgresStore),
        (Store, ObservedStore),
        (AsyncStore, AsyncObservedStore),
        (Creator, Enlisted),
        (Finisher, Enlisted),
        (AsyncCreator, AsyncEnlisted),
        (AsyncFinisher, AsyncEnlisted),
    ],
)
def test_every_store_has_the_verbs_as_the_contract_has_them(
    protocol: type, implementation: type
) -> None:
    contract = verbs(protocol)
    assert contract
    for name, verb in contract.items():
        own = getattr(implementation, name)
        assert shape(own) == shape(verb), name
        assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(verb)


def test_the_colours_have_the_same_verbs() -> None:
    one, other = verbs(Store), verbs(AsyncStore)
    assert set(one) - set(other) == BLOCKING_ONLY
    assert set(other) - set(one) == set()
    for name, verb in other.items():
        assert shape(verb) == shape(one[name]), name
        assert inspect.iscoroutinefunction(verb), name


@pytest.mark.parametrize(
    ("one", "other"),
    [(MemoryStore, AsyncMemoryStore), (PostgresStore, AsyncPostgresStore)],
)
def test_the_colours_are_made_alike(one: type, other: type) -> None:
    settings = [shape(made.__init__)[1:] for made in (one, other)]  # type: ignore[misc]
    names = [[name for name, *_ in each] for each in settings]
    defaults = [[default for _, _, default, _ in each] for each in settings]
    assert names[0] == names[1]
    assert defaults[0] == defaults[1]


def test_what_is_exported_is_there_once() -> None:
    assert len(jobstore.__all__) == len(set(jobstore.__all__))
    for name in jobstore.__all__:
        assert hasattr(jobstore, name), name


@pytest.mark.parametrize("name", jobstore.__all__)
def test_what_is_exported_is_documented(name: str) -> None:
    thing = getattr(jobstore, name)
    if not inspect.isclass(thing):
        return
    own = (inspect.getdoc(thing) or "").strip()
    assert own, name
    assert not own.startswith(f"{name}("), (
        "that is what dataclasses write by themselves"
    )
    for member, value in vars(thing).items():
        if inspect.isfunction(value) and not member.startswith("_"):
            assert value.__doc__, f"{name}.{member}"


@pytest.mark.parametrize("protocol", [Store, AsyncStore, Creator, Finisher])
def test_every_verb_of_the_contract_is_documented(protocol: type) -> None:
    for name, verb in verbs(protocol).items():
        text = inspect.getdoc(verb) or ""
        first = text.split("\n\n", maxsplit=1)[0]
        assert first.endswith((".", "?")), name


def test_every_error_is_exported_and_has_a_code_of_its_own() -> None:
    def below(kind: type[JobstoreError]) -> list[type[JobstoreError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]

    errors = [
        kind for kind in below(JobstoreError) if kind.__module__ == "jobstore.errors"
    ]
    assert {kind.__name__ for kind in errors} <= set(jobstore.__all__)
    codes = [kind.code for kind in errors]
    assert len(codes) == len(set(codes))
    assert {kind.outcome for kind in errors} == {"not done", "unknown"}
