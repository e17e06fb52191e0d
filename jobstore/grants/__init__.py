"""
Rights: who may do what in a schema with jobstore's tables, for four roles.

The migrator owns it all. The runtime does what stores and workers do. The operator
looks, and changes jobs by the guarded functions alone. The reader looks. Nobody else,
PUBLIC included, may do anything; no role but the runtime and the owner sees a payload,
a result or an idempotency key.
"""

from jobstore.grants.apply import apply
from jobstore.grants.roles import Roles
from jobstore.grants.statements import script, statements

__all__ = ["Roles", "apply", "script", "statements"]
