"""
What the pages show, and what they never do.
"""

import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from jobstore import JobClass
from tests.operators.support import Place
from tests.web.filled import fill

SECRET = b"s3cr3t-content"


def ids_in(text: str) -> list[str]:
    return re.findall(r'class="id" href="/jobs/([0-9A-Z]{26})"', text)


async def test_an_empty_store_has_all_its_pages(page: httpx.AsyncClient) -> None:
    for path, said in {
        "/": "No open job, and none",
        "/jobs": "No job matches",
        "/failures": "No job failed",
    }.items():
        answer = await page.get(path)
        assert answer.status_code == 200
        assert said in answer.text


async def test_the_overview_counts_what_is_open(
    page: httpx.AsyncClient, place: Place
) -> None:
    for _ in range(3):
        place.add(queue="ocr", job_class=JobClass.INTERACTIVE)
    held = place.claim("w1", "ocr").job
    place.silence(held.id, 120)
    place.age(place.add(queue="mail").id, updated_at=timedelta(minutes=7))
    text = (await page.get("/")).text
    rows = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).split()
        for row in re.findall(r"<tr>.*?</tr>", text.split('id="queues"')[1], re.DOTALL)
    ]
    mail, ocr = rows[1:]
    assert mail[:6] == ["mail", "batch", "0", "1", "7", "min"]
    assert ocr[:4] == ["ocr", "interactive", "0", "2"]
    assert ocr[-4:] == ["1", "0", "\u2013", "0"], "one lease has expired"


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ({}, ["f", "e", "d", "c", "b", "a"]),
        ({"status": "queued"}, ["a", "c", "d"]),
        ({"status": "processing"}, ["b"]),
        ({"status": "failed"}, ["f"]),
        ({"status": "completed"}, ["e"]),
        ({"status": "cancelled"}, []),
        ({"queue": "q2"}, ["f", "e", "b"]),
        ({"kind": "c"}, ["c"]),
        ({"tenant": "t2", "status": "queued"}, ["d"]),
        ({"job_class": "interactive"}, ["a"]),
        ({"worker": "w2"}, ["e"]),
        ({"error_code": "E_BROKEN"}, ["f"]),
        ({"queue": " q2 ", "kind": ""}, ["f", "e", "b"]),
    ],
)
async def test_filters(
    page: httpx.AsyncClient, place: Place, query: dict[str, str], kinds: list[str]
) -> None:
    place.add("a", job_class=JobClass.INTERACTIVE)
    place.add("b", queue="q2")
    place.claim("w1", "q2")
    place.add("c")
    place.add("d", tenant="t2")
    place.add("e", queue="q2")
    place.store.complete(place.claim("w2", "q2").lease)
    place.add("f", queue="q2")
    place.fail(place.claim("w3", "q2"))
    answer = await page.get("/jobs", params=query)
    shown = [
        str(place.value("SELECT kind FROM {s}.job WHERE id = %s", job_id))
        for job_id in ids_in(answer.text)
    ]
    assert shown == kinds


@pytest.mark.parametrize("status", ["", "queued", "scheduled", "failed", "completed"])
async def test_pages_follow_each_other_without_gap_or_double(
    page: httpx.AsyncClient, place: Place, status: str
) -> None:
    for number in range(130):
        place.add(queue=f"q{number % 3}")
    if status == "scheduled":
        place.ask("UPDATE {s}.job SET status = 'scheduled'")
    elif status in {"failed", "completed"}:
        place.ask(
            "UPDATE {s}.job SET status = %s, finished_at = now(), started_at = now(), "
            "worker = 'w', fence = 1, error_code = %s",
            status,
            "E" if status == "failed" else None,
        )
    url = f"/jobs?status={status}"
    seen: list[str] = []
    for size in (50, 50, 30):
        text = (await page.get(url)).text
        found = ids_in(text)
        assert len(found) == size
        seen += found
        following = re.search(r'rel="next" href="([^"]+)"', text)
        if following:
            url = following[1].replace("&amp;", "&")
    assert following is None
    assert len(set(seen)) == 130


async def test_one_job_with_all_around_it(
    page: httpx.AsyncClient, dsn: str, schema: str
) -> None:
    ids = fill(dsn, schema)
    parent = (await page.get(f"/jobs/{ids['parent']}")).text
    assert "It waits until its children have ended." in parent
    assert ids["completed"] in ids_in(parent), "a child"
    assert "3 children, 2 open, 0 failed" in parent
    assert "3.1 KiB, <bdi>application/pdf" in parent
    child = (await page.get(f"/jobs/{ids['completed'].lower()}")).text
    assert ids["parent"] in ids_in(child)
    assert "14 bytes" in child
    failed = (await page.get(f"/jobs/{ids['failed']}")).text
    assert failed.count("attempt 2: failed") == 1
    assert "page 3 has no content stream" in failed


async def test_a_silent_worker_is_seen_in_the_list(
    page: httpx.AsyncClient, place: Place
) -> None:
    for _ in range(2):
        place.add()
        job = place.claim().job
    place.silence(job.id, 300)
    text = (await page.get("/jobs?status=processing")).text
    assert text.count("silent for") == 1
    assert re.search(r"silent for <time[^>]*>5 min \d+ s", text)


async def test_failures_are_grouped(page: httpx.AsyncClient, place: Place) -> None:
    for code in ("E_A", "E_B", "E_A"):
        place.add(tenant=f"tenant of {code}")
        place.fail(place.claim(), code=code)
    old = place.add()
    place.fail(place.claim(), code="E_OLD")
    place.age(old.id, finished_at=timedelta(days=2))
    text = (await page.get("/failures")).text
    rows = re.findall(
        r'<th scope="row">.*?<bdi>(\w+)</bdi>.*?class="n">(\d+)<', text, re.DOTALL
    )
    assert rows == [("E_A", "2"), ("E_B", "1")]
    assert "tenant of E_A" in text
    assert "E_OLD" in (await page.get("/failures?window=7d")).text


async def test_no_content_and_no_key_is_ever_shown(
    page: httpx.AsyncClient, place: Place
) -> None:
    key = SECRET.decode()
    job = place.add(payload=SECRET, idem_key=key)
    place.store.complete(place.claim().lease, SECRET)
    for path in ("/", "/jobs", f"/jobs/{job.id}", "/jobs?status=completed"):
        answer = await page.get(path)
        assert answer.status_code == 200
        assert key not in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404),
        ("/jobs/nonsense", 404),
        ("/jobs?id=nonsense", 404),
        ("/jobs?status=done", 400),
        ("/jobs?job_class=gold", 400),
        (f"/jobs?kind={'k' * 256}", 400),
        ("/jobs?tenant=a%00b", 400),
        ("/jobs?tenant=%ed%a0%80", 200),
        ("/jobs?after=nonsense", 404),
        ("/jobs?status=failed&after=01ARZ3NDEKTSV4RRFFQ69G5FAV", 404),
        ("/failures?window=1y", 400),
        ("/nowhere", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
    ],
)
async def test_what_does_not_fit_is_told(
    page: httpx.AsyncClient, path: str, status: int
) -> None:
    assert (await page.get(path)).status_code == status


async def test_an_id_leads_to_its_job(page: httpx.AsyncClient, place: Place) -> None:
    job = place.add()
    answer = await page.get("/jobs", params={"id": f" {job.id.lower()} "})
    assert answer.headers["location"] == f"/jobs/{job.id}"


async def test_through_a_pooler_nothing_is_set_at_the_start(
    opened: Callable[..., httpx.AsyncClient], place: Place
) -> None:
    page = opened(through_pooler=True, operate=True)
    job = place.add()
    for path in (
        "/",
        "/jobs",
        "/failures",
        f"/jobs/{job.id}",
        f"/jobs/{job.id}/cancel",
    ):
        assert (await page.get(path)).status_code == 200
    (session,) = place.ask(
        "SELECT DISTINCT application_name FROM pg_stat_activity "
        "WHERE application_name = 'jobstore web'"
    )
    assert session


async def test_its_sessions_cannot_write(dsn: str, schema: str) -> None:
    from jobstore import NewJob, StoreUnavailable
    from jobstore.web.reading import Reader

    reader = Reader(dsn, schema=schema)
    try:
        with pytest.raises(StoreUnavailable, match="read-only"):
            reader.create(NewJob(kind="k"))
    finally:
        reader.close()


async def test_mounted_in_another_application(dsn: str, schema: str) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from jobstore.web.app import create_app

    inner = create_app(dsn, schema=schema)
    app = Starlette(routes=[Mount("/queue", inner)])
    async with (
        inner.router.lifespan_context(inner),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        answer = await client.get("/queue/")
        assert answer.status_code == 200
        links = re.findall(r'(?:href|action|src)="(/[^"]*)"', answer.text)
        assert links
        assert all(link.startswith("/queue/") for link in links)
        assert (await client.get("/queue/static/page.css")).status_code == 200


def test_the_pictures_in_the_documentation_are_there_and_small() -> None:
    docs = Path(__file__).parents[2] / "docs"
    named = re.findall(r"\((images/web-[^)]+)\)", (docs / "web.md").read_text())
    assert len(set(named)) == len(list((docs / "images").glob("web-*.png")))
    for name in named:
        assert 0 < (docs / name).stat().st_size < 200_000


async def test_a_database_that_is_away_is_told() -> None:
    from jobstore.web.app import create_app

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        app = create_app(f"postgresql://ada:s3cr3t@127.0.0.1:{port}/app", operate=True)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            for path in ("/", "/jobs", "/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel"):
                answer = await client.get(path)
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "5"
                assert "cannot connect" in answer.text
                assert "s3cr3t" not in answer.text
            assert (await client.get("/static/page.css")).status_code == 200


async def test_a_schema_that_is_missing_is_told(dsn: str, empty_schema: str) -> None:
    from jobstore.web.app import create_app

    app = create_app(dsn, schema=empty_schema)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        answer = await client.get("/")
    assert answer.status_code == 503
    assert "jobstore migrate up" in answer.text
