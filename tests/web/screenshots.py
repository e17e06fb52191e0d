"""
Renew the pictures in the documentation: `make screenshots`, or

    python -m tests.web.screenshots docs/images
"""

import sys
import tempfile
from pathlib import Path

from jobstore import migrate
from jobstore.embedded import EmbeddedServer
from tests.web.browser import chromium, launched, served
from tests.web.filled import fill

WIDTH, HEIGHT = 1200, 760


def main(folder: Path) -> None:
    executable = chromium()
    if executable is None:
        sys.exit("no Chromium here: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, EmbeddedServer(place) as server:
        migrate.upgrade(server.dsn)
        ids = fill(server.dsn, "jobstore")
        pages = {
            "overview": "",
            "job": f"jobs/{ids['failed']}",
            "failures": "failures",
            "cancel": f"jobs/{ids['parent']}/cancel",
        }
        with (
            served(server.dsn, "jobstore", "--operate") as url,
            launched(executable) as browser,
        ):
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    color_scheme="dark" if scheme == "dark" else "light",
                    viewport={"width": WIDTH, "height": HEIGHT},
                )
                page = context.new_page()
                for name, path in pages.items():
                    page.goto(url + path)
                    picture = folder / f"web-{name}-{scheme}.png"
                    page.screenshot(path=picture, full_page=name == "overview")
                context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
