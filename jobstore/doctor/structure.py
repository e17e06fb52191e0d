"""
The schema: its revision, and all that differs from what the migrations make.
"""

from collections.abc import Iterator

from jobstore import migrate
from jobstore.doctor.look import Look
from jobstore.doctor.report import Finding, Severity
from jobstore.errors import SchemaTooNew
from jobstore.migrate.catalog import broken_indexes
from jobstore.migrate.catalog import expected as expected_parts
from jobstore.migrate.checking import Difference, Problem, differences
from jobstore.migrate.state import is_known

__all__ = ["indexes", "revision", "tables"]

_RESTORE = (
    "Somebody changed the schema by hand. Compare with jobstore migrate check, and "
    "restore what differs."
)


def revision(look: Look) -> Iterator[Finding]:
    found = migrate.current(look.engine, schema=look.schema.name)
    wanted = migrate.head()
    if found == wanted:
        return
    figures = {"revision": found, "expected_revision": wanted}
    if found is None:
        yield Finding(
            check="revision",
            severity=Severity.CRITICAL,
            message=f"there are no jobstore tables in schema {look.schema.name}",
            advice="Run jobstore migrate up, or name the right schema and database.",
            figures=figures,
        )
    elif is_known(found):
        yield Finding(
            check="revision",
            severity=Severity.CRITICAL,
            message=f"the schema is at {found}, this code wants {wanted}",
            advice="Run jobstore migrate up.",
            figures=figures,
        )
    else:
        try:
            migrate.require_current(look.engine, schema=look.schema.name)
        except SchemaTooNew as error:
            severity, message = Severity.CRITICAL, str(error)
        else:
            severity = Severity.NOTE
            message = f"the schema is at {found}, newer than this code ({wanted}), "
            message += "and made for it, too"
        yield Finding(
            check="revision",
            severity=severity,
            message=message,
            advice="The schema was migrated by newer code: update this installation.",
            figures=figures,
        )


def tables(look: Look) -> Iterator[Finding]:
    """
    Compare all but indexes with what the migrations make; see migrate.check.
    """
    found = [one for one in _differences(look) if one.kind != "index"]
    lacks: dict[str, list[str]] = {}
    for one in found:
        if one.problem is Problem.MISSING and one.kind in {"column", "constraint"}:
            name = one.name.removeprefix(f"{one.relation}.")
            lacks.setdefault(one.relation, []).append(name)
    for table, missing in lacks.items():
        yield Finding(
            check="tables",
            severity=Severity.CRITICAL,
            subject=table,
            message=f"table {table} lacks {', '.join(missing)}",
            advice=_RESTORE,
            figures={"missing": len(missing)},
        )
    for one in found:
        if one.problem is Problem.MISSING and one.kind in {"column", "constraint"}:
            continue
        yield Finding(
            check="tables",
            severity=_grade(one),
            subject=one.name,
            message=f"{one.kind} {one.name} is {one.problem}",
            advice=_RESTORE,
            figures={"problem": str(one.problem), "kind": one.kind},
        )


def _grade(one: Difference) -> Severity:
    if one.kind in {"comment", "storage parameters"}:
        return Severity.NOTE
    if one.problem is Problem.MISSING and one.kind in {"table", "function", "view"}:
        return Severity.CRITICAL
    return Severity.WARNING


def _differences(look: Look) -> list[Difference]:
    # What an older or a newer revision should look like, this code does not know.
    if migrate.current(look.engine, schema=look.schema.name) != migrate.head():
        return []
    return differences(look.connection, look.schema)


def indexes(look: Look) -> Iterator[Finding]:
    expected = _expected_indexes()
    broken = broken_indexes(look.connection, look.schema)
    for index in broken:
        is_ours = index.name in expected
        yield Finding(
            check="indexes",
            severity=Severity.CRITICAL if is_ours else Severity.WARNING,
            subject=index.name,
            message=f"index {index.name} of {index.table} is invalid: an index build "
            "broke off",
            advice=_mend(look, index.name, is_ours=is_ours),
            figures={"table": index.table},
        )
    for one in _differences(look):
        if one.kind == "index" and one.name not in {index.name for index in broken}:
            yield _finding_of_index(one)


def _finding_of_index(one: Difference) -> Finding:
    facts = {
        Problem.MISSING: (
            Severity.CRITICAL,
            f"Somebody dropped it. Create it CONCURRENTLY: {one.expected}",
        ),
        Problem.CHANGED: (
            Severity.CRITICAL,
            f"Somebody made it anew. It should be: {one.expected}",
        ),
        Problem.UNEXPECTED: (
            Severity.NOTE,
            "Somebody added it. Each write pays for it: is it needed?",
        ),
    }
    severity, advice = facts[one.problem]
    return Finding(
        check="indexes",
        severity=severity,
        subject=one.name,
        message=f"index {one.name} is {one.problem}",
        advice=advice,
    )


def _expected_indexes() -> set[str]:
    _, parts = expected_parts()
    return {part.name for part in parts if part.kind == "index"}


def _mend(look: Look, name: str, *, is_ours: bool) -> str:
    quoted = look.named(f'"{name}"')
    if is_ours:
        return f"REINDEX INDEX CONCURRENTLY {quoted}"
    return f"If no build is running: DROP INDEX CONCURRENTLY {quoted}"
