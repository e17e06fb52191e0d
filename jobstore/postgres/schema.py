"""
The schema's name: checked, quoted, and put into the SQL of this package.

Every statement names its tables as ``{s}.job``; `Schema.render` fills in the quoted
name once and remembers the text, so that each statement is one string object for
the life of the store: the driver's own caches of parsed and prepared statements
find it again.
"""

from jobstore.errors import InvalidInput

__all__ = ["Schema"]

_LONGEST_NAME = 63


class Schema:
    """
    A PostgreSQL schema of any legal name, with jobstore's tables in it.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name)
        self.quoted = '"' + name.replace('"', '""') + '"'
        # Statements go through a driver that reads % as the start of a parameter.
        self._for_driver = self.quoted.replace("%", "%%")
        self._rendered: dict[str, str] = {}

    def render(self, statement: str) -> str:
        """
        Return *statement* with this schema's name in place of ``{s}``.
        """
        try:
            return self._rendered[statement]
        except KeyError:
            text = statement.replace("{s}", self._for_driver)
            return self._rendered.setdefault(statement, text)

    def __repr__(self) -> str:
        return f"Schema({self.name!r})"


def _checked(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput("schema", name, "must be a name")
    if "\x00" in name:
        raise InvalidInput("schema", name, "must not contain NUL")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput("schema", name, "must not contain surrogates") from None
    if size > _LONGEST_NAME:
        # PostgreSQL would cut it without an error, and two names become one.
        raise InvalidInput("schema", name, f"is over {_LONGEST_NAME} bytes of UTF-8")
    if name.startswith("pg_"):
        raise InvalidInput("schema", name, "must not start with pg_: reserved")
    return name
