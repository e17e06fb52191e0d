"""
Faults mixed at random on a running system, for as long as one likes.

    python -m tests.faults.soak --minutes 30 [--seed 1234]

The seed chooses the faults, their order and their victims; what the machine makes of
it is another matter, so a seed repeats the pressure and not each interleaving.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.checker import Violation
from tests.faults.faults import FAULTS
from tests.faults.history import History
from tests.faults.system import System, running

__all__ = ["Report", "soak"]

_WORKERS = 3
# The checker wants a system at rest; a fresh one each time keeps histories readable.
_ROUND_SECONDS = 60.0


@dataclass(kw_only=True)
class Report:
    """
    What a soak did and found.
    """

    seed: int
    injected: Counter[str] = field(default_factory=Counter)
    histories: int = 0
    records: int = 0
    jobs: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, history: History, violations: list[Violation]) -> None:
        self.histories += 1
        self.records += len(history.records)
        self.jobs += len(history.final)
        self.violations += violations

    def __str__(self) -> str:
        lines = [f"SEED={self.seed}"]
        lines += [
            f"{times:6} {fault}" for fault, times in sorted(self.injected.items())
        ]
        lines += [
            f"{sum(self.injected.values()):6} faults injected",
            f"{self.histories:6} histories checked, of {self.records} records",
            f"{self.jobs:6} jobs run",
            f"{len(self.violations):6} violations",
            *map(str, self.violations),
        ]
        return "\n".join(lines)


def soak(folder: Path, *, seconds: float, seed: int) -> Report:
    """
    Inject faults for *seconds*; check a history every minute and at the end.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    report = Report(seed=seed)
    deadline = time.monotonic() + seconds
    while report.histories == 0 or time.monotonic() < deadline:
        round_folder = folder / str(report.histories)
        round_folder.mkdir()
        with running(round_folder, chance.randrange(2**31)) as system:
            system.start(workers=_WORKERS, submitters=1)
            system.progress()
            until = min(deadline, time.monotonic() + _ROUND_SECONDS)
            _inject(system, chance, report, until)
            report.add(*system.finish())
    return report


def _inject(
    system: System, chance: random.Random, report: Report, until: float
) -> None:
    while time.monotonic() < until:
        fault = chance.choice(list(FAULTS))
        FAULTS[fault](system, chance)
        report.injected[fault] += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int)
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32)
    seed = seed if chosen.seed is None else chosen.seed
    print(f"SEED={seed}", flush=True)  # noqa: T201 - first, should it never end
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), seconds=chosen.minutes * 60, seed=seed)
    print(report)  # noqa: T201 - that is what one runs it for
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
