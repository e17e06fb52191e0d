"""
Job ids: ULIDs that grow within a process; and the name of this process.

A ULID is 48 bits of milliseconds and 80 random bits, written in 26 characters
whose byte order is the order of time (https://github.com/ulid/spec). Its
monotonic form is needed here so that a batch made within one millisecond keeps
its order: the random part of the last id plus one, instead of new randomness.
"""

import os
import re
import socket
import threading
import time
from functools import lru_cache

from ulid import base32

from jobstore.errors import InvalidInput, JobNotFound

__all__ = ["is_canonical", "known_id", "new_id", "new_ids", "process_name"]

_RANDOM_BITS = 80
_CANONICAL = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ULID = re.compile(_CANONICAL.pattern, re.ASCII | re.IGNORECASE)

# By two digits at a time, 10 of 130 bits.
_PAIRS = [one + two for one in base32.ENCODE for two in base32.ENCODE]
_SHIFTS = range(100, -1, -10)

_lock = threading.Lock()
_last = 0
_process_name = ""


def new_id() -> str:
    """
    Make an id greater than every id made before in this process.

    A clock that steps back does not break the order: ids then go on from the
    last one. Safe from several threads, and after a fork.
    """
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """
    Make *count* ids at once, in their order; each as `new_id` makes it.
    """
    global _last  # noqa: PLW0603 - the one piece of state that makes ids monotonic
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last >> _RANDOM_BITS:
            first = now << _RANDOM_BITS | int.from_bytes(os.urandom(_RANDOM_BITS // 8))
        else:
            first = _last + 1
        _last = first + count - 1
    return [
        _head(number >> 20) + _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023]
        for number in range(first, first + count)
    ]


@lru_cache(maxsize=8)
def _head(number: int) -> str:
    # All but the last four digits: a batch has them in common.
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def known_id(job_id: object, name: str = "job_id") -> str:
    """
    Return *job_id* in canonical form; *name* is the field it stands in.

    Raises:
        JobNotFound: It is text but no ULID, so no job can have it.
        InvalidInput: It is not text at all.
    """
    if not isinstance(job_id, str):
        raise InvalidInput(name, job_id, "must be a str")
    if not _ULID.fullmatch(job_id):
        raise JobNotFound(job_id)
    return job_id.upper()


def is_canonical(job_id: object) -> bool:
    """
    Say whether *job_id* is an id in the form in which stores give it.
    """
    return isinstance(job_id, str) and _CANONICAL.fullmatch(job_id) is not None


def process_name() -> str:
    """
    Name this process start: host, pid and a random part that no restart repeats.
    """
    global _process_name  # noqa: PLW0603 - made once for each process, see _after_fork
    if not _process_name:
        _process_name = (
            f"{socket.gethostname()[:64]}:{os.getpid()}:{os.urandom(4).hex()}"
        )
    return _process_name


def _after_fork() -> None:
    # Parent and child would otherwise count on from the same number and make
    # the same ids. The lock may have been held by a thread that is gone.
    global _last, _lock, _process_name  # noqa: PLW0603 - see above
    _last = 0
    _lock = threading.Lock()
    _process_name = ""


os.register_at_fork(after_in_child=_after_fork)
