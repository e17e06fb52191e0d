"""
A job store in memory, for development, tests and examples.
"""

from jobstore.memory.async_store import AsyncMemoryStore
from jobstore.memory.store import MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryStore"]
