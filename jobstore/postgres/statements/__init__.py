"""
Every SQL statement of the PostgreSQL store, by phase of a job's life.

Rules that all of them keep:

- ``{s}`` is the schema; names are always qualified.
- A status in a hot predicate is a literal. Bound, a generic plan could not tell that
  the partial index covers it, and would scan the table.
- ``statement_timestamp()`` is the clock: ``now()`` stands still in a caller's long
  transaction, ``clock_timestamp()`` is volatile and defeats indexes.
- Rows are chosen in a ``MATERIALIZED`` CTE and changed by ``id = ANY(ARRAY(…))``.
  Joined to the update instead, a LIMIT with SKIP LOCKED may run once for each row and
  take many times what was asked.
- Whether a lease is alive is asked as ``heartbeat_at IS NOT NULL``, never as
  ``status = 'processing'``: that would let the planner leave the primary key for the
  small index on running rows, which is full of dead entries.
- Locks are taken child first, then parent, parents in the order of their ids.
"""
