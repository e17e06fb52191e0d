"""
Everything runs as an ordinary role that owns the schema, and nothing else.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from jobstore import PostgresStore, migrate
from jobstore.doctor import Severity, examine, explain
from jobstore.migrate import State
from tests.migrations.test_migrating import REVISIONS
from tests.postgres.test_schemas import live_a_life
from tests.servers import connect, created_role

RIGHTS = """
SELECT rolsuper, rolcreatedb, rolcreaterole, rolbypassrls, rolreplication,
    has_database_privilege(current_database(), 'CREATE'),
    EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid)
FROM pg_roles WHERE rolname = current_user
"""

# A name that must be quoted wherever it stands.
SCHEMA = "Owner's jobs"


@pytest.fixture(params=["may create the schema", "was given the schema"])
def owner(request: pytest.FixtureRequest, database: str) -> Iterator[str]:
    may_create = request.param == "may create the schema"
    with created_role(database, may_create=may_create) as dsn:
        with connect(database) as admin:
            # Others are in the same database; their things are nobody's business here.
            admin.execute("CREATE SCHEMA host; CREATE TABLE host.secret (id int)")
            admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            if not may_create:
                role = make_url(dsn).username
                admin.execute(
                    f'CREATE SCHEMA "{SCHEMA}" AUTHORIZATION "{role}"'.encode()
                )
        with connect(dsn) as connection:
            assert connection.execute(RIGHTS).fetchall() == [
                (False, False, False, False, False, may_create, False)
            ]
        yield dsn


def test_up_and_down_one_by_one_and_all_between(owner: str) -> None:
    assert migrate.check(owner, schema=SCHEMA).state is State.MISSING
    for revision in REVISIONS:
        assert migrate.upgrade(owner, schema=SCHEMA, revision=revision) == revision
    assert migrate.check(owner, schema=SCHEMA).state is State.OK
    assert all(step.is_applied for step in migrate.history(owner, schema=SCHEMA))
    store = PostgresStore(owner, schema=SCHEMA)
    live_a_life(store)
    job = store.list()[0]
    assert explain(owner, job.id, schema=SCHEMA)
    report = examine(owner, schema=SCHEMA)
    assert not [one for one in report.findings if "could not" in one.message]
    assert report.checks["revision"] is Severity.OK
    assert report.checks["tables"] is Severity.OK
    assert report.checks["rows"] is Severity.OK
    for revision in [*reversed(REVISIONS[:-1]), "base"]:
        migrate.downgrade(owner, revision, schema=SCHEMA, allow_data_loss=True)
    assert migrate.current(owner, schema=SCHEMA) is None
    assert migrate.upgrade(owner, schema=SCHEMA) == migrate.head()
    live_a_life(store)
    store.close()


@pytest.mark.slow
def test_from_the_shell_and_by_plain_alembic(owner: str) -> None:
    environment = {**os.environ, "JOBSTORE_DSN": owner, "JOBSTORE_SCHEMA": SCHEMA}

    def run(module: str, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("alembic", "upgrade", "head")
    assert migrate.head() in run("alembic", "current")
    run("alembic", "check")
    run("jobstore", "migrate", "check")
    run("alembic", "downgrade", "base")
    run("jobstore", "migrate", "up")
    run("jobstore", "migrate", "down", "base")
