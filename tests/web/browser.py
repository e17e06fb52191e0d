"""
The system's Chromium, and the page served to it as a program.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

__all__ = ["chromium", "launched", "served"]

ROOT = Path(__file__).parents[2]
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    # It opens our own pages only, and a sandbox works neither for root nor in most
    # containers.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """
    Find the system's Chromium; None if there is none.
    """
    found = (shutil.which(name) for name in _NAMES)
    return next((path for path in found if path), None)


@contextlib.contextmanager
def launched(executable: str) -> Iterator[Browser]:
    """
    Start the browser for a while.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=_ARGUMENTS
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def served(dsn: str, schema: str, *options: str) -> Iterator[str]:
    """
    Serve the page by `jobstore web` for a while; give its address.
    """
    program = [sys.executable, "-m", "jobstore", "web", "--listen", "127.0.0.1:0"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JOBSTORE_DSN": dsn,
        "JOBSTORE_SCHEMA": schema,
    }
    with subprocess.Popen(
        [*program, *options], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.terminate()
            running.wait(30)
