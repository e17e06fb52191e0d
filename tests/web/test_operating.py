"""
Requeue and cancel: only if asked for, only by our own forms, and never unseen.
"""

import asyncio
import re
from collections.abc import Callable

import httpx
import pytest

from tests.operators.support import Place
from tests.web.conftest import BASE, TOKEN

Open = Callable[..., httpx.AsyncClient]
REASON = "the upstream is back (ada)"
ORIGIN = {"Origin": BASE}


@pytest.fixture
def desk(opened: Open) -> httpx.AsyncClient:
    return opened(operate=True)


def failed(place: Place) -> str:
    job = place.add()
    place.fail(place.claim())
    return job.id


def fields(text: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(\w+)" value="(\w*)"', text))


def state(place: Place, job_id: str) -> str:
    return str(place.value("SELECT status FROM {s}.job WHERE id = %s", job_id))


def audits(place: Place) -> int:
    return int(place.value("SELECT count(*) FROM {s}.audit"))


async def test_requeue_is_shown_then_done_and_audited(
    desk: httpx.AsyncClient, place: Place
) -> None:
    job_id = failed(place)
    assert f"/jobs/{job_id}/requeue" in (await desk.get(f"/jobs/{job_id}")).text
    form = await desk.get(f"/jobs/{job_id}/requeue")
    assert "Nothing has been done yet" in form.text
    assert (state(place, job_id), audits(place)) == ("failed", 0)
    answer = await desk.post(
        f"/jobs/{job_id}/requeue",
        data=fields(form.text) | {"reason": REASON},
        headers=ORIGIN,
    )
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    assert state(place, job_id) == "queued"
    (row,) = place.ask("SELECT action, reason, application, job_ids FROM {s}.audit")
    assert row == ("requeue_job", REASON, "jobstore web", [job_id])
    text = (await desk.get(f"/jobs/{job_id}")).text
    assert "By hand" in text
    assert REASON in text


async def test_cancel_takes_the_family_along(
    desk: httpx.AsyncClient, place: Place
) -> None:
    parent = place.add()
    children = place.fan_out(place.claim(), [f"page {n}" for n in range(60)])
    path = f"/jobs/{parent.id}/cancel"
    form = await desk.get(path)
    assert "61 jobs in all; the first 50 are shown" in form.text
    assert parent.id in form.text
    answer = await desk.post(
        path, data=fields(form.text) | {"reason": REASON}, headers=ORIGIN
    )
    assert answer.status_code == 303
    assert state(place, children[59].id) == "cancelled"
    again = await desk.get(path)
    assert "it has been done already" in again.text


async def test_idle_workers_are_told(desk: httpx.AsyncClient, place: Place) -> None:
    job_id = failed(place)
    told: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(queue: str | None) -> None:
        loop.call_soon_threadsafe(told.put_nowait, queue)

    listening = place.store.listen(tell)
    try:
        assert await asyncio.wait_for(told.get(), 30) is None, "it listens now"
        form = await desk.get(f"/jobs/{job_id}/requeue")
        data = fields(form.text) | {"reason": REASON}
        await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=ORIGIN)
        assert await asyncio.wait_for(told.get(), 30) == "default"
    finally:
        listening.close()


@pytest.mark.parametrize("action", ["requeue", "cancel"])
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REQUEUE"]
)
async def test_without_operate_there_is_no_such_route(
    page: httpx.AsyncClient, place: Place, method: str, action: str
) -> None:
    job_id = failed(place)
    answer = await page.request(
        method, f"/jobs/{job_id}/{action}", data={"reason": REASON}, headers=ORIGIN
    )
    assert answer.status_code == 404
    assert state(place, job_id) == "failed"
    assert "Requeue" not in (await page.get(f"/jobs/{job_id}")).text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": BASE, "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"},
        {"Referer": f"{BASE}/"},
    ],
)
async def test_a_form_from_elsewhere_changes_nothing(
    desk: httpx.AsyncClient, place: Place, headers: dict[str, str]
) -> None:
    job_id = failed(place)
    form = await desk.get(f"/jobs/{job_id}/requeue")
    data = fields(form.text) | {"reason": REASON}
    answer = await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=headers)
    assert answer.status_code == 403
    assert (state(place, job_id), audits(place)) == ("failed", 0)


async def test_a_seal_holds_for_one_browser_job_and_deed(
    desk: httpx.AsyncClient, opened: Open, place: Place
) -> None:
    job_id, other = failed(place), failed(place)
    running = place.add().id
    seals = {
        "none": "",
        "made up": "0" * 64,
        "not even ascii": "é" * 64,
        "another job's": fields((await desk.get(f"/jobs/{other}/requeue")).text)[
            "seal"
        ],
        "another deed's": fields((await desk.get(f"/jobs/{running}/cancel")).text)[
            "seal"
        ],
    }
    stranger = opened(operate=True)
    form = await stranger.get(f"/jobs/{job_id}/requeue")
    seals["a stranger's"] = fields(form.text)["seal"]
    for name, seal in seals.items():
        data = {"seal": seal, "was": "failed", "reason": REASON}
        answer = await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=ORIGIN)
        assert answer.status_code == 403, name
    desk.cookies.clear()
    form = await desk.get(f"/jobs/{job_id}/requeue")
    desk.cookies.clear()
    data = fields(form.text) | {"reason": REASON}
    answer = await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=ORIGIN)
    assert answer.status_code == 403, "without the browser's mark"
    assert (state(place, job_id), audits(place)) == ("failed", 0)


@pytest.mark.parametrize("reason", ["", "   ", "\t\n", "x" * 1001])
async def test_a_reason_is_asked_for(
    desk: httpx.AsyncClient, place: Place, reason: str
) -> None:
    job_id = failed(place)
    form = await desk.get(f"/jobs/{job_id}/requeue")
    data = fields(form.text) | {"reason": reason}
    answer = await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=ORIGIN)
    assert answer.status_code == 400
    assert "Say why" in answer.text
    assert audits(place) == 0


async def test_what_has_changed_since_is_shown_again(
    desk: httpx.AsyncClient, place: Place
) -> None:
    job_id = place.add().id
    form = await desk.get(f"/jobs/{job_id}/cancel")
    place.claim()
    data = fields(form.text) | {"reason": REASON}
    answer = await desk.post(f"/jobs/{job_id}/cancel", data=data, headers=ORIGIN)
    assert answer.status_code == 409
    assert "has changed since you looked" in answer.text
    assert REASON in answer.text, "nobody types it twice"
    assert state(place, job_id) == "processing"
    data = fields(answer.text) | {"reason": REASON}
    answer = await desk.post(f"/jobs/{job_id}/cancel", data=data, headers=ORIGIN)
    assert answer.status_code == 303
    assert state(place, job_id) == "cancelled"


async def test_the_state_machine_has_the_last_word(
    desk: httpx.AsyncClient, place: Place
) -> None:
    job_id = place.add().id
    place.store.complete(place.claim().lease)
    for action in ("requeue", "cancel"):
        form = await desk.get(f"/jobs/{job_id}/{action}")
        assert form.status_code == 409
        assert "is completed" in form.text
        assert "<button" not in form.text.split("<main")[1]
    unknown = "/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV/requeue"
    assert (await desk.get(unknown)).status_code == 404
    assert (await desk.get("/jobs/nonsense/cancel")).status_code == 404


async def test_with_a_token_it_is_behind_it(opened: Open, place: Place) -> None:
    job_id = failed(place)
    desk = opened(operate=True, token=TOKEN)
    assert (await desk.get(f"/jobs/{job_id}/requeue")).status_code == 303
    answer = await desk.post(f"/jobs/{job_id}/requeue", headers=ORIGIN)
    assert answer.status_code == 401


async def test_reasons_are_kept_and_shown_as_text(
    desk: httpx.AsyncClient, place: Place
) -> None:
    job_id = failed(place)
    reason = "<script>alert(1)</script> \u202e %s {{ 7 * 7 }}"
    form = await desk.get(f"/jobs/{job_id}/requeue")
    data = fields(form.text) | {"reason": reason}
    await desk.post(f"/jobs/{job_id}/requeue", data=data, headers=ORIGIN)
    assert place.value("SELECT reason FROM {s}.audit") == reason
    text = (await desk.get(f"/jobs/{job_id}")).text
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202e %s {{ 7 * 7 }}" in text
