"""
Commands that look for trouble: doctor, explain.
"""

import sys
from datetime import timedelta

import click
from rich.console import Console
from rich.markup import escape

from jobstore import doctor as library
from jobstore.cli import output
from jobstore.cli.options import Target, as_json, target
from jobstore.cli.params import DURATION
from jobstore.doctor import Report, Severity, Thresholds
from jobstore.lifecycle import JobClass

__all__ = ["doctor", "explain"]

_DEFAULTS = Thresholds()
_STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.CRITICAL: "bold red",
}


@click.command()
@target
@click.option(
    "--wait-interactive",
    type=DURATION,
    default=_DEFAULTS.wait[JobClass.INTERACTIVE],
    help="Warn when an interactive job is ready for this long. [30s]",
)
@click.option(
    "--wait-system",
    type=DURATION,
    default=_DEFAULTS.wait[JobClass.SYSTEM],
    help="The same for system jobs. [5m]",
)
@click.option(
    "--wait-batch",
    type=DURATION,
    default=_DEFAULTS.wait[JobClass.BATCH],
    help="The same for batch jobs. [1h]",
)
@click.option(
    "--silence",
    type=DURATION,
    default=_DEFAULTS.silence,
    help="Warn when a worker is silent for this long. [3m]",
)
@click.option(
    "--snapshot",
    type=DURATION,
    default=_DEFAULTS.snapshot,
    help="Warn when a transaction is open for this long. [5m]",
)
@as_json
@click.pass_context
def doctor(
    context: click.Context,
    where: Target,
    *,
    wait_interactive: timedelta,
    wait_system: timedelta,
    wait_batch: timedelta,
    silence: timedelta,
    snapshot: timedelta,
    json: bool,
) -> None:
    """
    Look at the schema and its server, and say what is wrong and what to do.

    Exits with 0 when all is well, 10 when something should be looked at today, 20
    when something should be looked at now (four times a threshold, or worse); with
    1 to 9 when the doctor itself could not work. It changes nothing.
    """
    thresholds = Thresholds(
        wait={
            JobClass.INTERACTIVE: wait_interactive,
            JobClass.SYSTEM: wait_system,
            JobClass.BATCH: wait_batch,
        },
        silence=silence,
        snapshot=snapshot,
    )
    report = library.examine(where.dsn, schema=where.schema, thresholds=thresholds)
    if json:
        output.print_json(report.as_dict())
    else:
        _print(report)
    context.exit(report.exit_code)


@click.command()
@target
@click.argument("job_id", metavar="ID")
@as_json
def explain(where: Target, *, job_id: str, json: bool) -> None:
    """
    Say why a job is where it is and what will happen next.
    """
    said = library.explain(where.dsn, job_id, schema=where.schema)
    if json:
        output.print_json({"id": job_id.strip().upper(), "explanation": said})
    else:
        for line in said.splitlines():
            output.print_line(line)


def _print(report: Report) -> None:
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(
        f"PostgreSQL {report.server_version}, schema {escape(report.schema)} "
        f"at {report.revision or 'nothing'}"
    )
    for check in library.CHECKS:
        worst = report.checks[check.name]
        word, style = (
            ("skipped", "dim") if worst is None else (str(worst), _STYLES[worst])
        )
        console.print(f"[{style}]{word:>8}[/]  {check.title}")
    for finding in report.findings:
        style = _STYLES[finding.severity]
        console.print(f"\n[{style}]{finding.severity}[/] {_clean(finding.message)}")
        console.print(f"    {_clean(finding.advice)}")


def _clean(text: str) -> str:
    return escape(output.one_line(text))
