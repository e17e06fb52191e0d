"""
The chain of revisions: where its files are, and how Alembic is told about them.
"""

import importlib.util
from argparse import Namespace
from pathlib import Path

from alembic.config import Config
from alembic.script import Script, ScriptDirectory

from jobstore.errors import SchemaError

__all__ = ["config_of", "head", "script_location", "scripts"]


def head() -> str:
    """
    Return the newest revision that this code knows.
    """
    return scripts()[-1].revision


def scripts() -> list[Script]:
    """
    Return the revisions that this code knows, oldest first.
    """
    known = ScriptDirectory.from_config(config_of("jobstore")).walk_revisions()
    return list(reversed(list(known)))


def config_of(schema: str, x_arguments: list[str] | None = None) -> Config:
    """
    Make Alembic's configuration for *schema*, without any file.
    """
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes["schema"] = schema
    config.cmd_opts = Namespace(x=x_arguments or [])
    return config


def script_location() -> Path:
    """
    Find the chain: in the wheel inside the package, in a checkout beside it.
    """
    package = importlib.util.find_spec("jobstore")
    assert package is not None
    assert package.origin is not None
    here = Path(package.origin).parent
    for folder in (here / "_migrations", here.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    message = f"no migrations beside {here}: the installation is incomplete"
    raise SchemaError(message)
