"""
Payloads and results of a hundred megabytes, through every door.
"""

import hashlib
import random
from collections.abc import Iterator

import pytest

from jobstore import AsyncPostgresStore, InvalidInput, NewJob, PostgresStore

SIZE = 100 * 1024 * 1024


@pytest.fixture(scope="module")
def large() -> bytes:
    return random.Random(1).randbytes(SIZE)  # noqa: S311 - bytes that don't compress


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(dsn, schema=schema, wake_ups=False)
    yield made
    made.close()


@pytest.mark.slow
def test_a_hundred_megabytes_come_back_as_they_were(
    store: PostgresStore, large: bytes
) -> None:
    digest = hashlib.sha256(large).digest()
    job = store.create(NewJob(kind="k", payload=large, idem_key="k")).job
    again = store.create(NewJob(kind="k", payload=large, idem_key="k"))
    assert (again.job.id, again.payload_matches) == (job.id, True)
    assert hashlib.sha256(store.payload(job.id).data).digest() == digest
    claim = store.claim_next()
    assert claim is not None
    store.complete(claim.lease, large)
    assert hashlib.sha256(store.get(job.id).result or b"").digest() == digest
    assert store.list(with_result=False)[0].result is None


@pytest.mark.slow
async def test_the_asynchronous_store_takes_them_too(
    dsn: str, schema: str, large: bytes
) -> None:
    store = AsyncPostgresStore(dsn, schema=schema, wake_ups=False)
    created = await store.create_many(
        [NewJob(kind="k", payload=large), NewJob(kind="k", payload=b"small")]
    )
    assert (await store.payload(created[0].job.id)).data == large
    assert (await store.payload(created[1].job.id)).data == b"small"
    await store.close()


def test_the_limit_is_the_stores(dsn: str, schema: str) -> None:
    store = PostgresStore(dsn, schema=schema, max_payload_bytes=10, wake_ups=False)
    assert store.create(NewJob(kind="k", payload=b"x" * 10)).created
    with pytest.raises(InvalidInput, match="max_payload_bytes"):
        store.create(NewJob(kind="k", payload=b"x" * 11))
    with pytest.raises(InvalidInput, match="max_payload_bytes"):
        store.create_many([NewJob(kind="k"), NewJob(kind="k", payload=b"x" * 11)])
    assert len(store.list()) == 1
    store.close()
