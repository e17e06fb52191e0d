"""
What the doctor says: findings, and the report that holds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

__all__ = ["Figure", "Finding", "Report", "Severity"]

Figure: TypeAlias = str | int | float | bool | None

SHAPE = 1
"""Version of `Report.as_dict`: keys are added, never changed or removed, within one."""


class Severity(StrEnum):
    """
    How bad it is.
    """

    OK = "ok"
    NOTE = "note"
    """Good to know; nobody need be told."""
    WARNING = "warning"
    """Look at it today."""
    CRITICAL = "critical"
    """Look at it now."""

    @property
    def exit_code(self) -> int:
        """
        Exit code for alerting; those below 10 are errors of the command itself.
        """
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Severity.OK: 0,
    Severity.NOTE: 0,
    Severity.WARNING: 10,
    Severity.CRITICAL: 20,
}
_ORDER = list(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that is wrong, and what to do about it.
    """

    check: str
    severity: Severity
    message: str
    advice: str
    subject: str = ""
    """What it is about: an index, a queue, a backend."""
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        return {
            "check": self.check,
            "severity": str(self.severity),
            "subject": self.subject,
            "message": self.message,
            "advice": self.advice,
            "figures": dict(self.figures),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    All findings of one examination, worst first.
    """

    schema: str
    server_version: str
    revision: str | None
    expected_revision: str
    checked_at: datetime
    """By the server's clock."""
    checks: Mapping[str, Severity | None]
    """Each check and the worst it found; None: not run, for want of a schema."""
    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity:
        return max(
            (finding.severity for finding in self.findings),
            key=_ORDER.index,
            default=Severity.OK,
        )

    @property
    def exit_code(self) -> int:
        return self.severity.exit_code

    def as_dict(self) -> dict[str, object]:
        """
        Return the report in the stable shape that ``--json`` prints.
        """
        return {
            "shape": SHAPE,
            "status": str(self.severity),
            "schema": self.schema,
            "server_version": self.server_version,
            "revision": self.revision,
            "expected_revision": self.expected_revision,
            "checked_at": self.checked_at.isoformat(),
            "checks": {
                name: None if worst is None else str(worst)
                for name, worst in self.checks.items()
            },
            "findings": [finding.as_dict() for finding in self.findings],
        }


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """
    Sort by severity, keeping the order of the checks within one.
    """
    return tuple(
        sorted(findings, key=lambda one: _ORDER.index(one.severity), reverse=True)
    )
