"""
How turns are taken and what a figure says, without a database.
"""

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.measure import Figure, compare, percentile


def test_both_sides_take_turns_and_each_goes_first_in_half_of_them() -> None:
    order: list[str] = []

    def side(name: str, rate: float) -> object:
        def turn(number: int) -> float:
            order.append(f"{name}{number}")
            return rate

        return turn

    figure = compare(
        "work",
        side("store", 50.0),  # type: ignore[arg-type]
        side("twin", 100.0),  # type: ignore[arg-type]
        against="something",
        rounds=3,
        before=lambda: order.append("before"),
    )

    turns = [entry for entry in order if entry != "before"]
    assert turns == [
        "store-1",
        "twin-1",
        "store0",
        "twin0",
        "twin1",
        "store1",
        "store2",
        "twin2",
    ]
    assert order[::2] == ["before"] * 8
    assert figure.ratio == 0.5
    assert figure.spread == (0.5, 0.5)


def test_a_slow_moment_of_the_machine_does_not_change_the_ratio() -> None:
    slowness = [1.0, 1.0, 10.0, 1.0]

    figure = compare(
        "work",
        lambda number: 60.0 / slowness[number + 1],
        lambda number: 100.0 / slowness[number + 1],
        against="something",
        rounds=3,
    )

    assert figure.ratio == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("figure", "reached"),
    [
        (Figure(name="a", unit="jobs/s", value=9, ratio=0.8, target=0.75), True),
        (Figure(name="a", unit="jobs/s", value=9, ratio=0.7, target=0.75), False),
        (Figure(name="a", unit="ms", value=4, target=5, at_most=True), True),
        (Figure(name="a", unit="ms", value=6, target=5, at_most=True), False),
        (Figure(name="a", unit="ms", value=6), None),
    ],
)
def test_a_figure_knows_whether_its_target_is_reached(
    figure: Figure, reached: bool | None
) -> None:
    assert figure.is_reached is reached


def test_the_file_holds_figures_and_circumstances(tmp_path: Path) -> None:
    figure = Figure(name="work", unit="jobs/s", value=9, ratio=0.8, target=0.75)

    path = report.write(tmp_path / "new" / "figures.json", {"revision": "x"}, [figure])

    read = json.loads(path.read_text())
    assert read["circumstances"] == {"revision": "x"}
    assert read["figures"][0]["name"] == "work"
    assert read["figures"][0]["reached"] is True


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.99) == 7
