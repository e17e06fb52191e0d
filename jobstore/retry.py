"""
When a failed job is tried again: a policy value, and arithmetic on it.

Exponential backoff with jitter, after
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ .
How often a job may be tried is the job's own `max_attempts`; the policy says only
how long to wait.
"""

import random
from dataclasses import dataclass
from datetime import timedelta

from jobstore.errors import InvalidInput

__all__ = ["RetryPolicy"]

_LONGEST = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """
    How long a job waits after its n-th failed attempt.

    The n-th delay is ``initial * factor ** (n - 1)``, at most *cap*, then made
    shorter or longer by up to the share *jitter*, so that jobs which failed
    together do not come back together.

    Args:
        initial: Delay after the first failure; zero retries at once.
        factor: Growth from one delay to the next, 1 to 100.
        cap: Longest delay before jitter, at most 365 days.
        jitter: Share of the delay to vary by, 0 (none) to 1.
    """

    initial: timedelta = timedelta(seconds=2)
    factor: float = 2.0
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.25

    def __post_init__(self) -> None:
        for name in ("initial", "cap"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise InvalidInput(name, value, "must be a timedelta")
            if not timedelta(0) <= value <= _LONGEST:
                raise InvalidInput(name, value, "must be 0 to 365 days")
        for name, least, most in (("factor", 1, 100), ("jitter", 0, 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise InvalidInput(name, value, "must be a number")
            if not least <= value <= most:
                raise InvalidInput(name, value, f"must be {least} to {most}")

    def delay(self, attempt: int) -> timedelta:
        """
        Return the wait after failed attempt number *attempt* (1 is the first).

        Never overflows, however large the number: a failure must always be
        recordable.
        """
        seconds = self.initial.total_seconds()
        longest = self.cap.total_seconds()
        # Multiplied step by step and stopped at the cap: factor ** attempt
        # overflows a float at attempts that a hand-edited row can have.
        for _ in range(max(attempt - 1, 0)):
            if seconds == 0 or seconds >= longest or self.factor == 1:
                break
            seconds *= self.factor
        seconds = min(seconds, longest)
        spread = seconds * self.jitter
        return timedelta(seconds=seconds + random.uniform(-spread, spread))  # noqa: S311
