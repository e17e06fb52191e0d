"""
The four roles, by the names they have in one cluster.
"""

from dataclasses import dataclass, fields

from jobstore.errors import InvalidInput

__all__ = ["Roles"]

_LONGEST_NAME = 63
# Even in quotes PostgreSQL takes these for words of its own, not for roles.
_RESERVED = frozenset({"public", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """
    Names of the roles that get rights: four different ones.

    Logins become members of them (``GRANT jobstore_runtime TO app``), or are named here
    themselves.

    Raises:
        InvalidInput: A name is none that a role could have, or is given twice.
    """

    migrator: str = "jobstore_migrator"
    """Owns the schema and what is in it; runs ``jobstore migrate``."""
    runtime: str = "jobstore_runtime"
    """Stores and workers."""
    operator: str = "jobstore_operator"
    """People who look, and who cancel, requeue, retry and release by the functions."""
    reader: str = "jobstore_reader"
    """Dashboards: the views alone."""

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for one in fields(self):
            name = getattr(self, one.name)
            _check(one.name, name)
            if name in seen:
                reason = f"is the {seen[name]} already: rights would add up"
                raise InvalidInput(one.name, name, reason)
            seen[name] = one.name

    def all(self) -> tuple[str, str, str, str]:
        """
        Return the names, the owner's first.
        """
        return self.migrator, self.runtime, self.operator, self.reader


def _check(field: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInput(field, name, "must be the name of a role")
    if "\x00" in name:
        raise InvalidInput(field, name, "must not contain NUL")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field, name, "must not contain surrogates") from None
    if size > _LONGEST_NAME:
        raise InvalidInput(field, name, f"is over {_LONGEST_NAME} bytes of UTF-8")
    if name in _RESERVED or name.startswith("pg_"):
        raise InvalidInput(field, name, "is a reserved word, not a role")
