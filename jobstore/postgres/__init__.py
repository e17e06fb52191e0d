"""
The PostgreSQL store, in both colours.
"""

from jobstore.postgres.async_store import AsyncPostgresStore
from jobstore.postgres.engine import Limits
from jobstore.postgres.enlisted import AsyncEnlisted, Enlisted
from jobstore.postgres.store import PostgresStore

__all__ = [
    "AsyncEnlisted",
    "AsyncPostgresStore",
    "Enlisted",
    "Limits",
    "PostgresStore",
]
