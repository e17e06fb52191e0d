"""
Renew migrations/expected.json from what the chain makes: `make expected-schema`.
"""

import sys
import tempfile
from pathlib import Path

from sqlalchemy import create_engine

from jobstore import migrate
from jobstore.migrate.catalog import describe, render
from jobstore.postgres.schema import Schema
from tests import servers

FILE = Path(__file__).parents[2] / "migrations" / "expected.json"


def built(dsn: str, schema: str) -> str:
    engine = create_engine(dsn)
    with engine.connect() as connection:
        parts = describe(connection, Schema(schema))
    engine.dispose()
    return render(migrate.head(), parts)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = servers.start(servers.choose(), Path(folder) / "postgresql")
        try:
            with servers.created_database(server.admin_dsn) as dsn:
                migrate.upgrade(dsn)
                FILE.write_text(built(dsn, "jobstore"), "utf-8")
        finally:
            server.stop()
    sys.stdout.write(f"wrote {FILE}\n")


if __name__ == "__main__":
    main()
