"""
The doctor: looks at a schema and its server, and says what is wrong and what to do.

It only reads, each check in a short transaction of its own with a time limit, and
looks at open jobs and the catalog, never at history. A check that may not look, or
that fails, is itself a finding; the others go on.
"""

from jobstore.doctor.examine import CHECKS, examine
from jobstore.doctor.explain import explain
from jobstore.doctor.report import Finding, Report, Severity
from jobstore.doctor.thresholds import Thresholds

__all__ = [
    "CHECKS",
    "Finding",
    "Report",
    "Severity",
    "Thresholds",
    "examine",
    "explain",
]
