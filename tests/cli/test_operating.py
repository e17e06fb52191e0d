"""
Commands that change.
"""

from jobstore import Failed, JobStatus, NewJob, PostgresStore
from tests.cli.conftest import Cli
from tests.servers import connect


def test_cancel_and_requeue(cli: Cli, store: PostgresStore) -> None:
    ids = [store.create(NewJob(kind="k")).job.id for _ in range(2)]
    ran = cli.ok("cancel", *ids, "--reason", "no need")
    assert ran.out.splitlines() == [f"{one} cancelled" for one in ids]
    assert store.get(ids[0]).error_message == "no need"
    assert cli.ok("requeue", ids[0], "--json").json == {
        "id": ids[0],
        "status": "queued",
    }
    assert store.get(ids[0]).status is JobStatus.QUEUED


def test_what_the_state_forbids(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k")).job
    claim = store.claim_next(worker="w")
    assert claim is not None
    store.complete(claim.lease, b"")
    for command in ("cancel", "requeue"):
        ran = cli(command, job.id)
        assert (ran.code, ran.raw) == (5, b"")
        assert "is completed" in ran.err


def test_reclaim(cli: Cli, store: PostgresStore) -> None:
    job = store.create(NewJob(kind="k")).job
    store.claim_next(worker="w")
    told = cli.ok("reclaim", "--visibility-timeout", "1h", "--json").json
    assert told == {"requeued": 0, "failed": 0}
    told = cli.ok("reclaim", "--visibility-timeout", "0s").out
    assert told == "1 queued again, 0 failed\n"
    assert store.get(job.id).status is JobStatus.QUEUED


def test_prune(cli: Cli, store: PostgresStore, dsn: str, schema: str) -> None:
    job = store.create(NewJob(kind="k")).job
    claim = store.claim_next(worker="w")
    assert claim is not None
    store.set_results([(claim.lease, Failed("E", final=True))])
    assert cli.ok("prune", "--older-than", "1h", "--json").json == {"deleted": 0}
    with connect(dsn) as connection:
        connection.execute(
            f"UPDATE {schema}.job SET finished_at = finished_at - interval '2 h'"
        )
    other = cli.ok("prune", "--older-than", "1h", "--status", "completed")
    assert other.out == "0 jobs deleted\n"
    assert cli.ok("prune", "--older-than", "1h", "--json").json == {"deleted": 1}
    assert cli("show", job.id).code == 3
    # An open job is never old enough; asking for it is a mistake.
    assert cli("prune", "--older-than", "1h", "--status", "queued").code == 2
