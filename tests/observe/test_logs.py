"""
Events as log records.
"""

import json
import logging
from typing import Any

import pytest

from jobstore import InvalidInput, MemoryStore, NewJob
from jobstore.observe import JobsPromoted, StoreFailed, observed
from jobstore.observe.logs import logged

MARK = "m4rked-as-private"


def test_each_event_is_one_record_for_people_and_for_machines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = observed(MemoryStore(), logged())
    with caplog.at_level(logging.INFO, logger="jobstore.events"):
        job = store.create(
            NewJob(kind='a "kind"\nof two lines', payload=MARK.encode(), idem_key=MARK)
        ).job
        claim = store.claim_next(worker="w1")
        assert claim is not None
        store.fail(claim.lease, error_code="E_BAD", error_message=MARK, final=True)
    names = ["JobCreated", "JobClaimed", "JobFinished"]
    assert [record.levelno for record in caplog.records] == [logging.INFO] * 3
    for record, name in zip(caplog.records, names, strict=True):
        message = record.getMessage()
        assert message.startswith(f"{name} job_id={job.id} ")
        assert "\n" not in message
        data: dict[str, Any] = record.__dict__["jobstore"]
        assert data["event"] == name
        assert data["job_id"] == job.id
        assert json.loads(json.dumps(data)) == data, "plain values only"
        assert data["kind"] == 'a "kind"\nof two lines'
    assert caplog.records[1].__dict__["jobstore"]["waited"] >= 0.0
    assert caplog.records[2].__dict__["jobstore"]["end"] == "failed"
    assert MARK not in caplog.text
    assert MARK not in str([record.__dict__ for record in caplog.records])


def test_trouble_is_a_warning_and_goes_where_it_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = logged(logging.getLogger("host.jobs"))
    with caplog.at_level(logging.WARNING, logger="host.jobs"):
        listener(StoreFailed(verb="claim", code="STORE_BUSY"))
        listener(JobsPromoted(jobs=1))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("host.jobs", logging.WARNING)
    assert record.getMessage() == "StoreFailed verb=claim code='STORE_BUSY'"


def test_only_a_logger_is_logged_to() -> None:
    with pytest.raises(InvalidInput, match="logger"):
        logged("jobstore")  # type: ignore[arg-type]
