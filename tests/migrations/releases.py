"""
A next release that does not exist: our chain, and throw-away revisions after it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobstore import migrate
from jobstore.migrate import chain

_REVISION = '''"""
{title}.
"""

from alembic import context, op

{imports}
revision = {revision!r}
down_revision = {before!r}
branch_labels = None
depends_on = None
compatible_from = {compatible_from!r}


def upgrade() -> None:
    {upgrade}


def downgrade() -> None:
    {downgrade}
'''


class NextRelease:
    """
    A copy of the chain that revisions can be added to.
    """

    def __init__(self, folder: Path) -> None:
        shutil.copytree(chain.script_location(), folder)
        self._folder = folder
        self._head = migrate.head()

    def add(
        self,
        upgrade: str,
        downgrade: str,
        *,
        compatible_from: str,
        imports: str = "",
    ) -> str:
        """
        Add a revision of these statements of Python, and return its name.

        The schema's quoted name is ``s`` in neither: they call ``run("… {s}.job …")``.
        """
        before, self._head = self._head, f"{int(self._head) + 1:04}"
        text = _REVISION.format(
            title="Throw away",
            imports=imports + _RUN,
            revision=self._head,
            before=before,
            compatible_from=compatible_from,
            upgrade=upgrade,
            downgrade=downgrade,
        )
        (self._folder / "versions" / f"{self._head}_throw_away.py").write_text(text)
        return self._head

    @contextmanager
    def installed(self) -> Iterator[None]:
        """
        Migrate as the next release would, while this lasts.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chain, "script_location", lambda: self._folder)
            yield


_RUN = """
def run(sql: str) -> None:
    name = context.config.attributes["schema"]
    op.execute(sql.replace("{s}", '"' + name + '"'))


"""
