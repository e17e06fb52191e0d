"""
The page needs no more than the operator's rights, its buttons included.
"""

import re

import httpx

from jobstore import NewJob, PostgresStore
from jobstore.web.app import create_app
from jobstore.web.queries import ORDERS
from tests.grants.conftest import Granted

SECRET = "hidden-0123456789"  # noqa: S105 - looked for, never used
BASE = "http://localhost"


async def test_the_operator_has_the_whole_page(clean: Granted) -> None:
    store = PostgresStore(clean.runtime, wake_ups=False)
    parent = store.create(
        NewJob(kind="document", payload=SECRET.encode(), idem_key=SECRET)
    ).job
    claim = store.claim_next(worker="w1")
    assert claim is not None
    store.fan_out(claim.lease, [claim.job.child(kind="page") for _ in range(2)])
    child = store.claim_next(worker="w1")
    assert child is not None
    store.fail(child.lease, error_code="E", final=True)
    done = store.claim_next(worker="w1")
    assert done is not None
    store.complete(done.lease, SECRET.encode())
    store.close()
    app = create_app(clean.operator, operate=True)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as page,
    ):
        lists = [
            "/",
            "/failures",
            "/jobs",
            *(f"/jobs?status={word}&kind=page" for word in ORDERS),
        ]
        for path in [*lists, *(f"/jobs/{one.id}" for one in (parent, done.job))]:
            answer = await page.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert SECRET not in answer.text
        text = (await page.get(f"/jobs/{parent.id}")).text
        assert child.job.id in text
        assert "this role may not look" in text
        path = f"/jobs/{child.job.id}/requeue"
        form = await page.get(path)
        fields = re.findall(r'name="(\w+)" value="(\w*)"', form.text)
        answer = await page.post(
            path, data=dict(fields) | {"reason": "why"}, headers={"Origin": BASE}
        )
        assert answer.status_code == 303
        assert "By hand" in (await page.get(f"/jobs/{child.job.id}")).text
    assert clean.ask(
        "admin", "SELECT who, application, reason FROM jobstore.audit"
    ) == [(clean.roles.operator, "jobstore web", "why")]


async def test_the_reader_is_told_that_he_may_not(clean: Granted) -> None:
    app = create_app(clean.reader)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as page,
    ):
        answer = await page.get("/jobs")
    assert answer.status_code == 403
    assert "The role that this page uses" in answer.text
