"""
`observed`: the one door.
"""

from typing import overload

from jobstore.async_store import AsyncStore
from jobstore.errors import InvalidInput
from jobstore.observe.async_store import AsyncObservedStore
from jobstore.observe.events import Listener
from jobstore.observe.store import ObservedStore
from jobstore.observe.telling import Telling
from jobstore.store import Store

__all__ = ["observed"]


@overload
def observed(store: AsyncStore, *listeners: Listener) -> AsyncObservedStore: ...


@overload
def observed(store: Store, *listeners: Listener) -> ObservedStore: ...


def observed(
    store: Store | AsyncStore, *listeners: Listener
) -> ObservedStore | AsyncObservedStore:
    """
    Return a store that does what *store* does, and tells *listeners* of it.

    Listeners are called after the act, in their order, in the caller's thread, one for
    each event. What one raises is logged and harms nothing. A worker on an observed
    store is observed too, in all its loops. What is done through `within`, in a
    transaction of the caller's, is not told: nobody knows whether it will commit.

    Args:
        store: A store of either colour. Close one of the two, not both: it is the same.
        listeners: Quick, and safe to call from several threads at once.

    Raises:
        InvalidInput: *store* is none, or a listener can't be called.
    """
    for listener in listeners:
        if not callable(listener):
            raise InvalidInput("listeners", type(listener), "must be callable")
    telling = Telling(listeners)
    if isinstance(store, AsyncStore):
        return AsyncObservedStore(store, telling)
    if not callable(getattr(store, "dedicated", None)):
        raise InvalidInput("store", type(store), "must be a Store or an AsyncStore")
    return ObservedStore(store, telling)
