"""
All of it works in a schema of any legal name, and goes away without a trace.
"""

import pytest
from sqlalchemy import create_engine, inspect

from jobstore import migrate
from jobstore.doctor import Severity, examine
from jobstore.errors import SchemaError
from jobstore.postgres.engine import engine_url
from tests.operators.support import open_place
from tests.operators.test_views import VIEWS

ODD_NAMES = ["o'clock", 'say "hi"', "100 %s", ":name", "ünï", "a.b", "$function$"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    for place in open_place(database, name):
        job = place.add(payload=b"work")
        for view in VIEWS:
            place.ask(f"SELECT * FROM {{s}}.{view}")
        assert place.ask("SELECT id FROM {s}.ready") == [(job.id,)]
        tables = place.ask("SELECT table_name FROM {s}.table_health")
        assert ("job",) in tables
        assert "It is ready" in place.value("SELECT {s}.explain_job(%s)", job.id)
        place.ask("SELECT * FROM {s}.cancel_job(%s, 'why', false)", job.id)
        place.ask("SELECT * FROM {s}.requeue_job(%s, 'why', false)", job.id)
        place.ask("SELECT * FROM {s}.retry_failed('why', false)")
        place.ask("SELECT * FROM {s}.release_worker('w', 'why', false)")
        checks = examine(database, schema=name).checks
        assert {checks["tables"], checks["indexes"], checks["rows"]} == {Severity.OK}


def test_the_way_down_keeps_jobs_and_asks_about_the_audit(database: str) -> None:
    migrate.upgrade(database)
    for place in open_place(database, "jobstore"):
        job = place.add(payload=b"work")
        place.ask("SELECT * FROM {s}.cancel_job(%s, 'why', false)", job.id)
        before = place.dump()
        with pytest.raises(SchemaError, match="audit"):
            migrate.downgrade(database, "0001")
        # It was asked before the first step.
        assert migrate.check(database).is_ok
        assert place.value("SELECT count(*) FROM {s}.audit") == 1
        migrate.downgrade(database, "0001", allow_data_loss=True)
        assert place.dump() == before
    engine = create_engine(engine_url(database))
    there = inspect(engine)
    assert there.get_view_names(schema="jobstore") == []
    assert "audit" not in there.get_table_names(schema="jobstore")
    engine.dispose()
    migrate.upgrade(database)
    assert migrate.current(database) == migrate.head()
