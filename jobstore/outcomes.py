"""
The verbs that end one attempt: each is `set_results` with one outcome.

Every store and every transaction has them from here, in its colour.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta

from jobstore.errors import JobNotFound, JobstoreError, LeaseLost
from jobstore.lifecycle import JobStatus
from jobstore.model import Completed, Failed, Lease, Outcome, Released, Snoozed

__all__ = ["AsyncOutcomes", "Outcomes"]


class Outcomes(ABC):
    """
    See `Finisher`.
    """

    @abstractmethod
    def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""

    def set_result(self, lease: Lease, outcome: Outcome) -> JobStatus:
        """See `Finisher.set_result`."""
        answer = self.set_results([(lease, outcome)])[0]
        if isinstance(answer, JobstoreError):
            raise answer
        return answer

    def complete(self, lease: Lease, result: bytes | None = None) -> JobStatus:
        """See `Finisher.complete`."""
        return self.set_result(lease, Completed(result))

    def fail(
        self,
        lease: Lease,
        *,
        error_code: str,
        error_message: str = "",
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> JobStatus:
        """See `Finisher.fail`."""
        return self.set_result(
            lease, Failed(error_code, error_message, final, retry_in)
        )

    def release(self, lease: Lease) -> JobStatus:
        """See `Finisher.release`."""
        return self.set_result(lease, Released())

    def snooze(self, lease: Lease, delay: timedelta) -> JobStatus:
        """See `Finisher.snooze`."""
        return self.set_result(lease, Snoozed(delay))


class AsyncOutcomes(ABC):
    """
    See `AsyncFinisher`.
    """

    @abstractmethod
    async def set_results(
        self, outcomes: Sequence[tuple[Lease, Outcome]]
    ) -> list[JobStatus | LeaseLost | JobNotFound]:
        """See `Finisher.set_results`."""

    async def set_result(self, lease: Lease, outcome: Outcome) -> JobStatus:
        """See `Finisher.set_result`."""
        answer = (await self.set_results([(lease, outcome)]))[0]
        if isinstance(answer, JobstoreError):
            raise answer
        return answer

    async def complete(self, lease: Lease, result: bytes | None = None) -> JobStatus:
        """See `Finisher.complete`."""
        return await self.set_result(lease, Completed(result))

    async def fail(
        self,
        lease: Lease,
        *,
        error_code: str,
        error_message: str = "",
        final: bool = False,
        retry_in: timedelta | None = None,
    ) -> JobStatus:
        """See `Finisher.fail`."""
        return await self.set_result(
            lease, Failed(error_code, error_message, final, retry_in)
        )

    async def release(self, lease: Lease) -> JobStatus:
        """See `Finisher.release`."""
        return await self.set_result(lease, Released())

    async def snooze(self, lease: Lease, delay: timedelta) -> JobStatus:
        """See `Finisher.snooze`."""
        return await self.set_result(lease, Snoozed(delay))
