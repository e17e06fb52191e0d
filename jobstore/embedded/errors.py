"""
What can go wrong with the embedded server, and what to do about it.
"""

from typing import ClassVar

from jobstore.errors import JobstoreError

__all__ = ["EmbeddedFailed", "EmbeddedUnavailable"]


class EmbeddedUnavailable(JobstoreError):
    """
    There is no PostgreSQL here to start: the extra is missing, or the system unfit.

    The message says what to install. Or use a PostgreSQL of your own: only its DSN
    is needed.
    """

    code: ClassVar[str] = "EMBEDDED_UNAVAILABLE"


class EmbeddedFailed(JobstoreError):
    """
    PostgreSQL is installed but did not start, or its folder cannot be used.

    The message ends with the last lines of the server's log.
    """

    code: ClassVar[str] = "EMBEDDED_FAILED"
