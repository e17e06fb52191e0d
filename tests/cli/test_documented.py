"""
docs/cli.md says what the program does.
"""

import re

import jobstore.cli.exits
from jobstore.cli.app import cli
from jobstore.cli.exits import Exit
from tests.cli.conftest import ROOT

TEXT = (ROOT / "docs" / "cli.md").read_text()


def test_every_command_is_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z]+)", TEXT.split("## ")[0], re.MULTILINE))
    assert documented == set(cli.commands)


def test_the_exit_codes_are_those_of_the_program() -> None:
    section = TEXT.split("## Exit codes")[1].split("\n## ")[0]
    documented = {
        int(code): meaning
        for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)
    }
    source = jobstore.cli.exits.__file__
    assert source is not None
    with open(source) as file:  # noqa: PTH123 - a module's own path
        said = re.findall(r'= (\d+)\n    """([^"]+)"""', file.read())
    assert {code: documented[code] for code in documented if code} == {
        int(code): meaning for code, meaning in said
    }
    assert set(documented) == {int(one) for one in Exit}
