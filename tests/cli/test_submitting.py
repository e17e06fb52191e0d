"""
Submitting: files, standard input, many at once, and never half of a list.
"""

import hashlib
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from jobstore import JobStatus, NewJob, PostgresStore
from tests.cli.conftest import Cli


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{number}.pdf" for number in range(30)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 10)
    return [str(path) for path in paths]


@pytest.mark.parametrize("source", ["name", "hash"])
def test_many_files_twice_are_the_same_jobs(
    cli: Cli, store: PostgresStore, files: list[str], source: str
) -> None:
    command = ["submit", "--kind", "k", "--key-from", source, *files]
    first = cli.ok(*command).out.split()
    again = cli.ok(*command)
    assert again.out.split() == first
    assert len(set(first)) == len(files)
    assert again.err.count("known already") == len(files)
    job = store.get(first[3])
    expected = {"name": files[3], "hash": hashlib.sha256(b"\3" * 10).hexdigest()}
    assert job.idem_key == expected[source]
    payload = store.payload(job.id)
    assert (payload.data, payload.content_type) == (b"\3" * 10, "application/pdf")


def test_each_file_is_told_as_json(cli: Cli, files: list[str]) -> None:
    lines = cli.ok("submit", "--kind", "k", "--json", *files[:2]).out.splitlines()
    for path, line in zip(files, lines, strict=False):
        told = json.loads(line)
        assert list(told) == ["id", "file", "created", "payload_matches"]
        assert (told["file"], told["created"]) == (path, True)
        assert told["payload_matches"] is True


def test_standard_input_byte_for_byte(cli: Cli, store: PostgresStore) -> None:
    every_byte = bytes(range(256))
    ran = cli.ok("submit", "--kind", "k", "-", stdin=every_byte)
    assert store.payload(ran.out.strip()).data == every_byte


def test_the_fields_of_a_job(cli: Cli, store: PostgresStore) -> None:
    flags = "--kind k --tenant t --queue q --class interactive --key i --max-attempts 2"
    ran = cli.ok("submit", *flags.split(), "--content-type", "text/x", "-")
    job = store.get(ran.out.strip())
    assert (job.tenant, job.queue, job.job_class) == ("t", "q", "interactive")
    assert (job.idem_key, job.max_attempts) == ("i", 2)
    assert store.payload(job.id).content_type == "text/x"


def test_one_bad_name_and_nothing_is_submitted(
    cli: Cli, store: PostgresStore, files: list[str], tmp_path: Path
) -> None:
    for bad, why in ((tmp_path / "none", "no such file"), (tmp_path, "is a folder")):
        ran = cli("submit", "--kind", "k", *files, str(bad))
        assert (ran.code, ran.raw) == (2, b"")
        assert f"{bad}: {why}" in ran.err
    assert store.list() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(
    cli: Cli, store: PostgresStore, files: list[str]
) -> None:
    Path(files[-1]).chmod(0)
    ran = cli("submit", "--kind", "k", *files)
    assert (ran.code, ran.raw) == (2, b"")
    assert f"{files[-1]}: may not be read" in ran.err
    assert store.list() == []


def test_a_file_that_fails_while_it_is_read(cli: Cli, store: PostgresStore) -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs a file that opens and cannot be read")
    ran = cli("submit", "--kind", "k", "/proc/self/mem")
    assert ran.code == 1
    assert ran.err.startswith("jobstore: ")
    assert ran.err.count("\n") == 1
    assert store.list() == []


def test_a_pipe_is_a_file(cli: Cli, store: PostgresStore) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"through a pipe")
    os.close(theirs)
    try:
        ran = cli.ok("submit", "--kind", "k", f"/dev/fd/{ours}")
    finally:
        os.close(ours)
    assert store.payload(ran.out.strip()).data == b"through a pipe"


def test_strict_refuses_other_work(cli: Cli, store: PostgresStore) -> None:
    known = cli.ok("submit", "--kind", "k", "--key", "i", "-", stdin=b"1").out
    quiet = cli.ok("submit", "--kind", "k", "--key", "i", "-", stdin=b"2")
    assert quiet.out == known
    assert "OTHER work" in quiet.err
    strict = cli("submit", "--kind", "k", "--key", "i", "--strict", "-", stdin=b"2")
    assert (strict.code, strict.raw) == (5, b"")
    assert known.strip() in strict.err


def test_later(cli: Cli, store: PostgresStore) -> None:
    delayed = store.get(cli.ok("submit", "--kind", "k", "--delay", "2h", "-").out[:26])
    assert delayed.status is JobStatus.SCHEDULED
    ahead = delayed.available_at - delayed.created_at
    assert timedelta(minutes=110) < ahead < timedelta(minutes=130)
    at = "2999-01-31T18:00:00+02:00"
    dated = store.get(cli.ok("submit", "--kind", "k", "--at", at, "-").out[:26])
    assert dated.available_at.isoformat() == "2999-01-31T16:00:00+00:00"


def test_parts_of_a_job(cli: Cli, store: PostgresStore) -> None:
    parent = store.create(NewJob(kind="whole")).job
    ran = cli.ok("submit", "--kind", "part", "--parent", parent.id, "-")
    assert store.get(ran.out.strip()).parent_id == parent.id
    unknown = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
    assert cli("submit", "--kind", "k", "--parent", unknown, "-").code == 5


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--key", "i", "-", "other"], 2),
        (["--key", "i", "--key-from", "hash", "-"], 2),
        (["--at", "2030-01-01", "--delay", "1h", "-"], 2),
        (["--delay", "soon", "-"], 2),
        (["--at", "tomorrow", "-"], 2),
        (["-", "-"], 2),
        ([], 2),
        # What is given counts, even where it is nothing: no default takes its place.
        (["--content-type", "", "-"], 4),
        (["--queue", "", "-"], 4),
        (["--tenant", "", "-"], 4),
        (["--max-attempts", "0", "-"], 4),
    ],
)
def test_what_cannot_be_meant(
    cli: Cli, store: PostgresStore, flags: list[str], code: int
) -> None:
    ran = cli("submit", "--kind", "k", *flags)
    assert (ran.code, ran.raw) == (code, b"")
    assert ran.err
    assert store.list() == []
