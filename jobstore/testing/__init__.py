"""
Proof that a store keeps the contract: for ours, and for one of yours.

Needs the extra ``jobstore[testing]``.
"""

import pytest

pytest.register_assert_rewrite("jobstore.testing.contract")

from jobstore.testing.contract import StoreContract  # noqa: E402 - after the above
from jobstore.testing.harness import (  # noqa: E402 - the same
    MAX_PAYLOAD_BYTES,
    RETRY,
    AsyncMemoryHarness,
    Harness,
    MemoryHarness,
    Verb,
    awaited,
    together,
)

__all__ = [
    "MAX_PAYLOAD_BYTES",
    "RETRY",
    "AsyncMemoryHarness",
    "Harness",
    "MemoryHarness",
    "StoreContract",
    "Verb",
    "awaited",
    "together",
]
