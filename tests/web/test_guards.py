"""
Who gets in, under which name, and what a visitor's words can't do.
"""

import re
import string
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobstore.errors import InvalidInput
from jobstore.web import guards
from jobstore.web.guards import HEADERS, Token
from jobstore.web.reading import FILTERS
from tests.operators.support import Place
from tests.web.conftest import BASE, TOKEN

Open = Callable[..., httpx.AsyncClient]
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "</title><svg onload=alert(1)>",
    "javascript:alert(1)",
    "\u202egpj.exe",
    "a\x1b[31mb\x07",
]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_text_of_a_job_becomes_part_of_the_page(
    page: httpx.AsyncClient, place: Place, attack: str
) -> None:
    job = place.add(attack, tenant=attack, queue=attack)
    claim = place.store.claim_next(queue=attack, worker=attack)
    assert claim is not None
    place.store.fail(
        claim.lease, error_code=attack, error_message=attack * 3, final=True
    )
    place.add(attack, tenant=attack, queue=attack)
    paths = ["/", "/jobs", "/failures", f"/jobs/{job.id}", "/jobs?status=queued"]
    for path in paths:
        answer = await page.get(path)
        assert answer.status_code == 200
        check_harmless(answer.text)
    for name in ("tenant", "kind", "status", "after", "id", "window", "queue"):
        for path in ("/jobs", "/failures"):
            check_harmless((await page.get(path, params={name: attack})).text)
    check_harmless((await page.get("/jobs/" + quote(attack, safe=""))).text)


def check_harmless(text: str) -> None:
    """
    Every tag is one that our templates write, with attributes that they write.
    """
    for tag in re.findall(r"<[a-z!/][^>]*>", text):
        assert not re.search(r"\s(on\w+|style)\s*=", re.sub(r'"[^"]*"', '""', tag)), tag
    assert set(re.findall(r"<script[^>]*>", text)) <= {
        '<script src="/static/refresh.js" defer>'
    }
    assert "<img" not in text
    assert "49" not in re.findall(r"<bdi>(.*?)</bdi>", text)
    # What a visitor filters by comes back in its field as he wrote it.
    told = re.sub(r'(<input[^>]* value=)"[^"]*"', r"\1", text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", told)
    for target in re.findall(r'(?:href|src|action)="([^"]*)"', text):
        assert target.startswith(("/", "#")), target


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/nowhere", "/jobs?status=x", "/static/page.css"]
)
async def test_every_answer_has_the_strict_headers(
    page: httpx.AsyncClient, path: str
) -> None:
    answer = await page.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9000", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example:8080", 421),
        ("localhost@evil.example", 421),
        ("localhost:80:80", 421),
        ("localhost:port", 421),
        ("", 421),
        ("localhost, evil.example", 421),
        ("127.0.0.1.nip.example", 421),
        ("192.0.2.1", 421),
    ],
)
async def test_only_its_own_names_are_served(
    page: httpx.AsyncClient, host: str, status: int
) -> None:
    answer = await page.get("/", headers={"Host": host})
    assert answer.status_code == status


async def test_two_hosts_are_none(page: httpx.AsyncClient) -> None:
    request = httpx.Request(
        "GET", BASE, headers=[("Host", "localhost"), ("Host", "evil.example")]
    )
    assert (await page.send(request)).status_code == 421


async def test_forwarding_headers_open_nothing(opened: Open) -> None:
    page = opened(token=TOKEN)
    lies = {
        "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Host": "localhost",
        "X-Forwarded-Proto": "https",
        "Forwarded": "for=127.0.0.1;host=localhost",
        "X-Real-IP": "127.0.0.1",
        "X-Original-URL": "/login",
        "X-Rewrite-URL": "/static/page.css",
        "X-HTTP-Method-Override": "POST",
        "Origin": "http://localhost:8080",
        "Referer": "http://localhost:8080/",
    }
    assert (await page.get("/", headers=lies)).status_code == 303
    lies |= {"Host": "evil.example"}
    assert (await page.get("/", headers=lies)).status_code == 421


async def test_names_that_are_allowed(opened: Open) -> None:
    page = opened(hosts=["jobs.example"])
    assert (await page.get("/", headers={"Host": "jobs.example"})).status_code == 200
    assert (await page.get("/")).status_code == 421


CLOSED = ["/", "/jobs", "/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/failures", "/nowhere"]


@pytest.mark.parametrize("path", [*CLOSED, "/login/", "//login", "/login/../jobs"])
async def test_without_the_token_nothing_is_shown(opened: Open, path: str) -> None:
    page = opened(token=TOKEN)
    answer = await page.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    bare = await page.get(path, headers={"Accept": "*/*"})
    assert bare.status_code == 401
    assert (await page.post(path)).status_code == 401


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        "Bearer \xff",
    ],
)
async def test_a_wrong_bearer_is_refused(opened: Open, given: str) -> None:
    page = opened(token=TOKEN)
    headers = {b"Authorization": given.encode("latin-1"), b"Accept": b"*/*"}
    assert (await page.get("/", headers=headers)).status_code == 401


async def test_a_bearer_gets_in(opened: Open) -> None:
    page = opened(token=TOKEN)
    answer = await page.get("/", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


async def log_in(page: httpx.AsyncClient, token: str, **headers: str) -> httpx.Response:
    form = await page.get("/login")
    assert form.status_code == 200
    seal = re.search(r'name="seal" value="(\w+)"', form.text)
    assert seal is not None
    given = {"Origin": BASE} | headers
    data = {"token": token, "seal": seal[1]}
    return await page.post("/login", data=data, headers=given)


async def test_the_form_lets_in_and_out(opened: Open) -> None:
    page = opened(token=TOKEN)
    answer = await log_in(page, TOKEN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    made = answer.headers["set-cookie"]
    assert "HttpOnly" in made
    assert "SameSite=strict" in made
    assert "Secure" not in made
    assert TOKEN not in made
    assert (await page.get("/")).status_code == 200
    assert (await page.post("/logout")).headers["location"] == "/login"
    assert (await page.get("/")).status_code == 303


async def test_behind_tls_the_cookie_is_secure(opened: Open) -> None:
    page = opened(base="https://localhost:8080", token=TOKEN)
    answer = await log_in(page, TOKEN, Origin="https://localhost:8080")
    assert "Secure" in answer.headers["set-cookie"]


async def test_the_form_refuses_another_token(opened: Open) -> None:
    page = opened(token=TOKEN)
    answer = await log_in(page, "wrong" * 5)
    assert answer.status_code == 403
    assert guards.SESSION_COOKIE not in answer.headers.get("set-cookie", "")
    assert "wrong" not in answer.text
    assert (await page.get("/")).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost:9999"},
        {"Origin": "http://localhost:8080.evil.example"},
        {"Origin": f"{BASE}/path"},
        {"Origin": "http://user@localhost:8080"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_from_elsewhere_is_refused(
    opened: Open, headers: dict[str, str]
) -> None:
    page = opened(token=TOKEN)
    answer = await log_in(page, TOKEN, **headers)
    assert answer.status_code == 403
    assert (await page.get("/")).status_code == 303


async def test_a_form_without_its_seal_is_refused(opened: Open) -> None:
    page = opened(token=TOKEN)
    await page.get("/login")
    other = opened(token=TOKEN)
    stolen = re.search(r'name="seal" value="(\w+)"', (await other.get("/login")).text)
    assert stolen is not None
    for seal in ("", "0" * 64, stolen[1]):
        answer = await page.post(
            "/login", data={"token": TOKEN, "seal": seal}, headers={"Origin": BASE}
        )
        assert answer.status_code == 403


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"", "", 415),
        (b"x=" + b"y" * 70_000, "application/x-www-form-urlencoded", 413),
        (
            b"&".join(b"a=1" for _ in range(30)),
            "application/x-www-form-urlencoded",
            400,
        ),
        (b"seal=\xff", "application/x-www-form-urlencoded", 400),
        (b"seal=%ff%fe", "application/x-www-form-urlencoded", 403),
    ],
)
async def test_what_is_no_form_is_refused(
    opened: Open, content: bytes, kind: str, status: int
) -> None:
    page = opened(token=TOKEN)
    headers = {"Origin": BASE, "Content-Type": kind}
    answer = await page.post("/login", content=content, headers=headers)
    assert answer.status_code == status


def test_sessions_end_and_cannot_be_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    token = Token(TOKEN)
    session = token.new_session()
    assert token.is_session(session)
    assert not Token(TOKEN + "2").is_session(session), "another token ends them"
    end, mark, signature = session.split(".")
    for made_up in (
        f"{int(end) + 1}.{mark}.{signature}",
        f"{end}.{mark}.{'0' * 64}",
        f"{end}.{mark}.",
        "",
        ".",
        "é.é",
    ):
        assert not token.is_session(made_up)
    late = time.time() + guards.SESSION_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: late)
    assert not token.is_session(session)


@pytest.mark.parametrize(
    "token", ["", "short", "fifteen letters", "é" * 20, "a\n" * 20]
)
def test_a_token_that_is_easy_to_guess_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Token(token)
    assert not token or token not in str(refused.value)


TEXTS = st.text(max_size=40) | st.sampled_from(ATTACKS)
HEADER_TEXTS = st.text(string.printable.strip() + "\xe9\xff ", max_size=40)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
async def test_nothing_that_is_asked_breaks_it(
    page: httpx.AsyncClient, place: Place, data: Any
) -> None:
    method = data.draw(st.sampled_from(["GET", "GET", "GET", "POST", "HEAD", "PUT"]))
    start = data.draw(
        st.sampled_from(["/", "/jobs", "/jobs/", "/failures", "/static/", "/login"])
    )
    path = start + "".join(
        data.draw(
            st.lists(
                st.sampled_from(
                    ["/", "%", "..", "%00", "%ff", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]
                )
                | st.text(string.ascii_letters + string.digits, max_size=8),
                max_size=4,
            )
        )
    )
    names = st.sampled_from(
        [*FILTERS, "status", "after", "id", "window", "children_after"]
    )
    query = data.draw(
        st.lists(st.tuples(names | st.text(max_size=5), TEXTS), max_size=3)
    )
    headers = data.draw(
        st.dictionaries(
            st.sampled_from(["Cookie", "Authorization", "Origin", "Accept", "Range"]),
            HEADER_TEXTS.map(lambda text: text.strip().encode("latin-1")),
            max_size=2,
        )
    )
    try:
        url = httpx.URL(BASE + path)
        url = url.copy_merge_params([(n, v) for n, v in query]) if query else url
    except (httpx.InvalidURL, UnicodeEncodeError):
        return
    answer = await page.request(method, url, headers=headers)
    assert answer.status_code < 500, (method, url, answer.text)
    check_harmless(answer.text)
