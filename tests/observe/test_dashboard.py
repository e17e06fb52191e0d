"""
The dashboard asks for metrics and labels that exist, and for nothing else.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from tests.cli.conftest import ROOT
from tests.observe.existing import samples

FILE = ROOT / "docs" / "grafana" / "jobstore.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
QUERIES = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
# Values of labels that are ours, as docs/observability.md lists them.
TEXT = (ROOT / "docs" / "observability.md").read_text()


def walk(expression: Any) -> Iterator[Any]:
    """
    Give *expression* and all below it.
    """
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (below := getattr(expression, name, None)) is not None:
            yield from walk(below)
    for one in getattr(expression, "args", None) or ():
        yield from walk(one)


def problems(query: str, legend: str) -> list[str]:
    text = query.replace("$__rate_interval", "5m").replace("$queue", ".*")
    existing, found = samples(), []
    seen: set[str] = set()
    named = set(re.findall(r"\{\{(\w+)\}\}", legend))
    for one in walk(promql_parser.parse(text)):
        if isinstance(one, promql_parser.VectorSelector):
            if one.name not in existing:
                found.append(f"no metric {one.name}")
                continue
            seen |= existing[one.name]
            for matcher in one.matchers.matchers:
                if matcher.name not in existing[one.name]:
                    found.append(f"{one.name} has no label {matcher.name}")
                elif matcher.name in {"outcome", "state"}:
                    row = re.search(rf"^\| `{one.name}` .*$", TEXT, re.MULTILINE)
                    assert row is not None, one.name
                    words = set(re.findall(r"\w+", row[0].split("|")[3]))
                    unknown = set(matcher.value.split("|")) - words
                    found += [f"{matcher.name} is never {word}" for word in unknown]
        elif isinstance(one, promql_parser.AggregateExpr) and one.modifier is not None:
            named |= set(one.modifier.labels)
    assert seen or found or "_up" in text, "a query that asks for nothing"
    return found + [f"no label {name}" for name in named - seen]


@pytest.mark.parametrize(("title", "query", "legend"), QUERIES)
def test_a_query_asks_for_what_exists(title: str, query: str, legend: str) -> None:
    assert problems(query, legend) == [], title


@pytest.mark.parametrize(
    ("query", "legend", "problem"),
    [
        ("sum(jobstore_jobs)", "", "no metric jobstore_jobs"),
        (
            'sum(rate(jobstore_reclaims_total{queue="a"}[5m]))',
            "",
            "jobstore_reclaims_total has no label queue",
        ),
        ("sum by (tenant) (jobstore_open_jobs)", "", "no label tenant"),
        ("sum by (queue) (jobstore_open_jobs)", "{{kind}}", "no label kind"),
        ('sum(jobstore_open_jobs{state="stale"})', "", "state is never stale"),
        (
            "1 - histogram_quantile(0.5, sum by (le) (rate(jobstore_run_seconds[5m])))",
            "",
            "no metric jobstore_run_seconds",
        ),
    ],
)
def test_what_does_not_exist_is_found(query: str, legend: str, problem: str) -> None:
    assert problem in problems(query, legend)


def test_each_variable_asks_for_what_exists() -> None:
    existing = samples()
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    queries = [
        one["query"]["query"] for one in variables.values() if "definition" in one
    ]
    assert queries
    for query in queries:
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert asked is not None
        assert asked[2] in existing[asked[1]]
    used = set(re.findall(r"\$\{?(\w+)", FILE.read_text())) - {
        "__rate_interval",
        "__all",
    }
    assert used == set(variables)


def test_every_metric_but_the_rare_is_shown() -> None:
    shown = " ".join(query for _, query, _ in QUERIES)
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in samples()}
    missing = {name for name in families if name not in shown}
    assert missing == {
        "jobstore_changes_total",
        "jobstore_claims_total",
        "jobstore_upkeep_jobs_total",
    }


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, "Grafana's grid is 24 wide"
        taken |= cells


def test_the_alerts_in_the_docs_ask_for_what_exists() -> None:
    alerts = TEXT.split("```promql\n")[1].split("```")[0].splitlines()
    assert len(alerts) == 3
    assert [problems(alert, "") for alert in alerts] == [[], [], []]
