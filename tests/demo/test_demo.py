"""
The demonstration as a newcomer runs it: in a process of its own, to the end.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter

from demo.documents import SHIPPED, Unreadable, read_document

_REPOSITORY = Path(__file__).parents[2]
_PATIENCE_SECONDS = 120


def _environment() -> dict[str, str]:
    # Settings of whoever runs the tests must not lead it elsewhere.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JOBSTORE_", "DEMO_", "PG"))
    }
    return {**kept, "PYTHONPATH": str(_REPOSITORY), "COLUMNS": "100"}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "demo", *arguments]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments),
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )


def _pdf(pages: int) -> bytes:
    pdf = FPDF()
    pdf.set_font("Helvetica", size=12)
    for number in range(1, pages + 1):
        pdf.add_page()
        pdf.cell(text=f"This is page {number}.")
    return bytes(pdf.output())


def _processes_with(words: str) -> list[str]:
    listing = subprocess.run(
        ["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True
    )
    return [line for line in listing.stdout.splitlines() if words in line]


@contextlib.contextmanager
def _server_up(folder: Path, command: str) -> Iterator[None]:
    with subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"postgresql")
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    assert process.returncode == 0


@pytest.mark.slow
def test_it_runs_twice_and_can_be_looked_at_with_psql(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        done = _run(tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert "Nothing lost, nothing twice." in done.stdout
        (killed,) = re.findall(
            r"kill -9 (\w+), with pages? ([\d and]+) in", done.stdout
        )
        dead, pages = killed
        other = {"alpha": "beta", "beta": "alpha"}[dead]
        # Every page that the dead one held was lost by it and done by the other.
        for page in re.findall(r"\d+", pages):
            line = rf"page +{page} +2 +{dead}: lease_expired → {other}: completed"
            assert re.search(line, done.stdout), done.stdout
        assert re.search(rf"{dead} +\d+ +\d+ +[1-9]\d* +kill -9", done.stdout)
        # In the middle: it had done some of the work before.
        assert re.search(rf"page +\d+ +1 +{dead}: completed", done.stdout)
        ids.update(re.findall(r"^  (\w{26})$", done.stdout, flags=re.MULTILINE))
    assert len(ids) == 2

    commands = [
        line.strip() for line in done.stdout.splitlines() if line.startswith("  /")
    ]
    up, *queries = commands
    assert up.endswith(" -m jobstore up .demo")
    with _server_up(tmp_path, up):
        rows, explanation = (
            subprocess.run(
                ["sh", "-c", query],
                cwd=tmp_path,
                env=_environment(),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for query in queries
        )
    expected = len(PdfReader(SHIPPED).pages)
    assert rows.count("completed") == expected + 1
    assert "completed" in explanation


@pytest.mark.slow
def test_a_single_page_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "my document [v1].pdf"
    path.write_bytes(_pdf(1))
    done = _run(tmp_path, path.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with page 1 in hand" in done.stdout
    assert "my document [v1].pdf" in done.stdout


@pytest.mark.slow
def test_nothing_is_left_behind_when_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        _command(),
        cwd=tmp_path,
        env={**_environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "kill -9" in line:
                break
        queue = f"demo-{process.pid}"
        assert _processes_with(queue)
        process.kill()
        process.wait()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _processes_with(queue) or _processes_with(str(tmp_path)):
        assert time.monotonic() < deadline, _processes_with(str(tmp_path))
        time.sleep(0.05)
    done = _run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _encrypted(path: Path) -> None:
    writer = PdfWriter(clone_from=io.BytesIO(_pdf(1)))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(path)


def _without_pages(path: Path) -> None:
    PdfWriter().write(path)


def _cut_off(path: Path) -> None:
    path.write_bytes(_pdf(3)[:200])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "cannot read .*: No such file or directory"),
        (Path.mkdir, "cannot read .*: Is a directory"),
        (Path.touch, "is not a PDF that can be read: "),
        (lambda path: path.write_text("Dear all"), "is not a PDF that can be read: "),
        (_cut_off, "is not a PDF that can be read: "),
        (_encrypted, "is encrypted; give a document without a password"),
        (_without_pages, "has no pages"),
    ],
    ids=["missing", "folder", "empty", "text", "cut off", "encrypted", "no pages"],
)
def test_what_is_wrong_with_a_file_is_told_before_anything_is_started(
    tmp_path: Path, make: object, said: str
) -> None:
    assert callable(make)
    path = tmp_path / "file.pdf"
    make(path)
    with pytest.raises(Unreadable, match=said):
        read_document(path)


def test_a_bad_file_ends_it_with_one_line(tmp_path: Path) -> None:
    done = _run(tmp_path, "missing.pdf")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "demo: cannot read missing.pdf: No such file or directory\n"
    assert not (tmp_path / ".demo").exists()


def test_one_file_at_most(tmp_path: Path) -> None:
    done = _run(tmp_path, "one.pdf", "two.pdf")
    assert done.returncode == 1
    assert done.stderr.startswith("demo: give one FILE")


def test_the_shipped_document_is_real() -> None:
    document = read_document(SHIPPED)
    assert document.pages >= 10
    assert all(len(text.split()) > 20 for text in document.texts)
    assert len(document.pdf) < 300_000
