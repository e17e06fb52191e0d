"""
Migrations from Python: Alembic's chain in the folder ``migrations``, run with care.

One migrator at a time works on a schema, under an advisory lock on a connection of
its own; others wait for it, and find nothing left to do. No statement waits long
for a table lock: it gives up and tries again, so that claims never queue behind a
migration that itself queues behind an idle reader.
"""

import jobstore.migrate.concurrently  # noqa: F401 - registers operations of Alembic
from jobstore.migrate.chain import head
from jobstore.migrate.checking import Check, Difference, Problem, State, check
from jobstore.migrate.compare import comparison, without_jobstore
from jobstore.migrate.connection import migrating
from jobstore.migrate.hosting import host_downgrade, host_upgrade
from jobstore.migrate.move import downgrade, upgrade
from jobstore.migrate.script import rendering, sql
from jobstore.migrate.state import Revision, current, history, require_current
from jobstore.migrate.stating import stating
from jobstore.migrate.waiting import wait

__all__ = [
    "Check",
    "Difference",
    "Problem",
    "Revision",
    "State",
    "check",
    "comparison",
    "current",
    "downgrade",
    "head",
    "history",
    "host_downgrade",
    "host_upgrade",
    "migrating",
    "rendering",
    "require_current",
    "sql",
    "stating",
    "upgrade",
    "wait",
    "without_jobstore",
]
