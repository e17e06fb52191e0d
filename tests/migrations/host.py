"""
A host application with its own Alembic, in the database that jobstore is in too.
"""

import io
import textwrap
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Integer, MetaData, Table, create_engine

ENV = """
from alembic import context
from sqlalchemy import create_engine, event, pool

from jobstore import migrate

settings = context.config.attributes
engine = create_engine(
    settings["dsn"],
    poolclass=pool.NullPool,
    connect_args={"options": f"-csearch_path={settings['search_path']}"},
)


def offline():
    context.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},
        literal_binds=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def online():
    with engine.connect() as connection:
        options = {}
        if settings["with_helper"]:
            options = migrate.without_jobstore(
                connection, schema=settings["jobstore"], **settings["own_filters"]
            )
        context.configure(
            connection=connection,
            target_metadata=settings["tables"],
            include_schemas=settings["include_schemas"],
            **options,
        )
        with context.begin_transaction():
            context.run_migrations()


offline() if context.is_offline_mode() else online()
"""


@dataclass(kw_only=True)
class Host:
    """
    The application: its folder with env.py and revisions, and its tables.
    """

    folder: Path
    dsn: str
    tables: MetaData
    search_path: str = "public"
    include_schemas: bool = True
    with_helper: bool = True
    jobstore: str = "jobstore"

    def __post_init__(self) -> None:
        (self.folder / "versions").mkdir(parents=True, exist_ok=True)
        (self.folder / "env.py").write_text(ENV)
        self.own_filters: dict[str, Any] = {}

    def revision(self, name: str, below: str | None, up: str, down: str) -> None:
        """
        Write a revision of the host's; *up* and *down* are bodies of functions.
        """
        text = f'''
"""{name}"""
from alembic import op
from jobstore import migrate

revision = {name!r}
down_revision = {below!r}


def upgrade():
{textwrap.indent(textwrap.dedent(up).strip(), "    ")}


def downgrade():
{textwrap.indent(textwrap.dedent(down).strip(), "    ")}
'''
        (self.folder / "versions" / f"{name}.py").write_text(text)

    def config(self) -> Config:
        config = Config()
        config.set_main_option("script_location", str(self.folder))
        config.set_main_option("path_separator", "os")
        config.attributes.update(
            dsn=self.dsn,
            tables=self.tables,
            search_path=self.search_path,
            include_schemas=self.include_schemas,
            with_helper=self.with_helper,
            jobstore=self.jobstore,
            own_filters=self.own_filters,
        )
        return config

    def upgrade(self, revision: str = "heads") -> None:
        command.upgrade(self.config(), revision)

    def downgrade(self, revision: str, *, allow_data_loss: bool = False) -> None:
        config = self.config()
        words = ["allow-data-loss=yes"] if allow_data_loss else []
        config.cmd_opts = Namespace(x=words)
        command.downgrade(config, revision)

    def sql(self, span: str, *, is_down: bool = False) -> str:
        """
        What ``alembic upgrade --sql`` prints.
        """
        config = self.config()
        config.output_buffer = io.StringIO()
        config.cmd_opts = Namespace(x=["allow-data-loss=yes"])
        (command.downgrade if is_down else command.upgrade)(config, span, sql=True)
        return config.output_buffer.getvalue()

    def proposals(self) -> list[str]:
        """
        What ``alembic revision --autogenerate`` would write, and what it is about.
        """
        found: list[str] = []

        def collect(_context: Any, _revision: Any, directives: Any) -> None:
            (script,) = directives
            found.extend(
                " ".join(str(part) for part in op.to_diff_tuple()[:2])
                if not hasattr(op, "ops")
                else f"modify {op.table_name}"
                for op in script.upgrade_ops.ops
            )
            directives[:] = []

        command.revision(
            self.config(), autogenerate=True, process_revision_directives=collect
        )
        return sorted(found)


def tables_of_the_host(schema: str | None = None) -> MetaData:
    tables = MetaData(schema=schema)
    Table("invoice", tables, Column("id", Integer, primary_key=True))
    return tables


def make_tables(dsn: str, tables: MetaData, search_path: str = "public") -> None:
    engine = create_engine(
        dsn, connect_args={"options": f"-csearch_path={search_path}"}
    )
    tables.create_all(engine)
    engine.dispose()
