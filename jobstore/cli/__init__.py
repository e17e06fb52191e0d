"""
The command line, on the public API only. Its exit codes: `jobstore.cli.exits`.
"""

from jobstore.cli.app import main

__all__ = ["main"]
