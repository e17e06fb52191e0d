"""
What is shipped: an installed library must be able to migrate, and be typed.
"""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_brings_all_migrations(wheel: zipfile.ZipFile) -> None:
    shipped = {
        name.removeprefix("jobstore/_migrations/")
        for name in wheel.namelist()
        if name.startswith("jobstore/_migrations/")
    }
    chain = {
        path.relative_to(ROOT / "migrations").as_posix()
        for path in (ROOT / "migrations").rglob("*")
        if path.suffix in {".py", ".mako"}
    }
    assert chain <= shipped
    assert "env.py" in shipped


def test_the_wheel_is_typed_and_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "jobstore/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"jobstore", "jobstore-0.1.0.dist-info"}


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "jobstore").rglob("*.py")
    }
    assert modules <= set(wheel.namelist())


def test_the_wheel_holds_what_the_page_is_made_of(wheel: zipfile.ZipFile) -> None:
    folder = ROOT / "jobstore" / "web"
    parts = {
        path.relative_to(ROOT).as_posix()
        for place in ("templates", "static")
        for path in (folder / place).iterdir()
    }
    assert len(parts) > 8
    assert parts <= set(wheel.namelist())


def test_the_lock_pins_by_hash_and_names_no_place() -> None:
    text = (ROOT / "requirements-dev.lock").read_text()
    assert not re.search(r"https?:|file:|--(?:extra-)?index|--find-links|/tmp", text)
    pins = re.findall(r"^([a-z0-9][a-z0-9._-]*)==\S+ \\$", text, re.MULTILINE)
    assert len(pins) == len(set(pins)) > 20
    assert text.count("--hash=sha256:") >= len(pins)


def test_the_lock_knows_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = (ROOT / "requirements-dev.lock").read_text()
    for requirement in wanted:
        name = re.split(r"[\[<>=!~ ]", requirement)[0].lower().replace("_", "-")
        assert re.search(rf"^{re.escape(name)}==", pinned, re.MULTILINE), name
