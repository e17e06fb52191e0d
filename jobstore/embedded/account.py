"""
Who runs the server, for PostgreSQL refuses to run as root.

Root's server runs as the account ``postgres`` where there is one, else ``nobody``;
no account is made and no permission of an existing folder is changed.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobstore.embedded.errors import EmbeddedUnavailable

__all__ = ["Account", "account_for"]

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    The user that the server's processes belong to.
    """

    uid: int
    gid: int
    # Whether it is another one than ours, that is: we are root.
    is_other: bool

    def process_options(self) -> dict[str, Any]:
        """
        Return the arguments that make `subprocess` run something as this user.
        """
        if not self.is_other:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, path: Path) -> bool:
        """
        Tell whether this user gets to *path*, through all folders above it.
        """
        if not self.is_other:
            return True
        # Asked of the kernel, by a process of that user: modes alone don't tell.
        answer = subprocess.run(  # noqa: S603 - a fixed program and one path
            ["/bin/sh", "-c", 'test -r "$1" && test -x "$1"', "sh", str(path)],
            cwd="/",
            check=False,
            stderr=subprocess.DEVNULL,
            **self.process_options(),
        )
        return answer.returncode == 0

    def own(self, path: Path) -> None:
        """
        Give *path* to this user, if it isn't theirs by being ours.
        """
        if self.is_other:
            os.chown(path, self.uid, self.gid)


def account_for(cluster: Path) -> Account:
    """
    Choose the account for the server on *cluster*, which need not exist yet.

    Raises:
        EmbeddedUnavailable: This is root, and the system knows no unprivileged user.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), is_other=False)
    try:
        # PostgreSQL insists that the owner of the data runs the server.
        owner = cluster.stat()
    except FileNotFoundError:
        pass
    else:
        if owner.st_uid != 0:
            return Account(uid=owner.st_uid, gid=owner.st_gid, is_other=True)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, is_other=True)
    message = (
        "PostgreSQL does not run as root, and there is neither an account "
        f"{' nor '.join(_CANDIDATES)}; start this as another user"
    )
    raise EmbeddedUnavailable(message)
