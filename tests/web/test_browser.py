"""
The page in a real browser: it opens, it can be used, and it keeps to itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect

from jobstore import NewJob, PostgresStore, migrate
from jobstore.postgres.schema import Schema
from tests.servers import connect
from tests.web.browser import chromium, launched, served
from tests.web.conftest import TOKEN
from tests.web.filled import fill

axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
EXECUTABLE = chromium()
pytestmark = pytest.mark.skipif(
    EXECUTABLE is None, reason="no Chromium here: apt-get install chromium"
)
SCHEMA = "page in a browser"


@dataclass
class Site:
    """
    The page on a filled schema, and what it has in it.
    """

    url: str
    dsn: str
    ids: dict[str, str]

    def kinds(self) -> list[str]:
        """
        Give one path for each kind of page.
        """
        ids = self.ids
        jobs = [f"jobs/{ids[name]}" for name in ("parent", "failed", "running")]
        lists = ["", "jobs?status=failed", "jobs?queue=none", "failures"]
        return [*lists, *jobs, f"jobs/{ids['parent']}/cancel", "jobs/nonsense"]

    def paths(self) -> list[str]:
        jobs = [f"jobs/{job_id}" for job_id in self.ids.values()]
        changes = [
            f"jobs/{self.ids['parent']}/cancel",
            f"jobs/{self.ids['failed']}/requeue",
            f"jobs/{self.ids['completed']}/requeue",
        ]
        lists = ["jobs", "jobs?status=failed", "jobs?queue=none", "failures"]
        return ["", *lists, *jobs, *changes, "jobs/nonsense", "failures?window=7d"]


@dataclass
class Visit:
    """
    One page, and what its browser noticed.
    """

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert EXECUTABLE is not None
    with launched(EXECUTABLE) as browser:
        yield browser


@pytest.fixture(scope="module")
def site(dsn: str) -> Iterator[Site]:
    migrate.upgrade(dsn, schema=SCHEMA)
    try:
        ids = fill(dsn, SCHEMA)
        with served(dsn, SCHEMA, "--operate") as url:
            yield Site(url, dsn, ids)
    finally:
        with connect(dsn) as connection:
            quoted = Schema(SCHEMA).quoted
            connection.execute(f"DROP SCHEMA {quoted} CASCADE".encode())


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def visit(context: BrowserContext) -> Visit:
    page = context.new_page()
    noticed = Visit(page)
    page.on("request", lambda request: noticed.asked.append(request.url))
    page.on("console", lambda message: noticed.complaints.append(message.text))
    page.on("pageerror", lambda error: noticed.complaints.append(str(error)))
    return noticed


def new_context(browser: Browser, scheme: str) -> BrowserContext:
    return browser.new_context(color_scheme="dark" if scheme == "dark" else "light")


def test_every_page_opens_and_asks_nobody_else(visit: Visit, site: Site) -> None:
    for path in site.paths():
        answer = visit.page.goto(site.url + path)
        assert answer is not None
        expected = {"jobs/nonsense": 404, f"jobs/{site.ids['completed']}/requeue": 409}
        assert answer.status == expected.get(path, 200), path
        expect(visit.page.locator("h1")).to_be_visible()
    strangers = [url for url in visit.asked if not url.startswith(site.url)]
    assert strangers == []
    assert any("refresh.js" in url for url in visit.asked)
    told = [text for text in visit.complaints if "status of 4" not in text]
    assert told == [], "no script failed, and the policy refused nothing"


def test_it_is_accessible_by_day_and_by_night(
    browser: Browser, site: Site, scheme: str
) -> None:
    """
    Contrast, labels, names, order of headings, language: by axe, in both themes.
    """
    context = new_context(browser, scheme)
    page = context.new_page()
    try:
        for path in site.kinds():
            page.goto(site.url + path)
            found = axe.run(page).response["violations"]
            assert found == [], (
                path,
                [
                    (one["id"], node["html"], node["failureSummary"])
                    for one in found
                    for node in one["nodes"]
                ],
            )
            page.keyboard.press("Tab")
            assert page.locator(":focus").inner_text() == "To the content"
    finally:
        context.close()


def test_the_themes_differ(browser: Browser, site: Site) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        context = new_context(browser, scheme)
        page = context.new_page()
        page.goto(site.url)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert len(grounds) == 2


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_it_fits_its_window(browser: Browser, site: Site, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    try:
        for path in site.kinds():
            page.goto(site.url + path)
            needed = page.evaluate("document.documentElement.scrollWidth")
            assert needed <= width, path
    finally:
        context.close()


def test_filters_work(visit: Visit, site: Site) -> None:
    page = visit.page
    page.goto(site.url)
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("Status").select_option("failed")
    page.get_by_label("Error code").fill("E_QUOTA")
    page.get_by_role("button", name="Filter").click()
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("E_QUOTA")
    assert set(rows.locator(".status").all_inner_texts()) == {"failed"}
    assert all("E_QUOTA" in text for text in rows.all_inner_texts())
    assert page.get_by_label("Error code").input_value() == "E_QUOTA"
    page.get_by_role("link", name="Clear").click()
    assert page.get_by_label("Error code").input_value() == ""
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="First page").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_from_a_failure_to_its_job_with_the_keyboard_alone(
    visit: Visit, site: Site
) -> None:
    page = visit.page
    page.goto(site.url + "failures")

    def walk_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            focus = page.locator(":focus")
            if focus.inner_text().startswith(name):
                style = "getComputedStyle(document.activeElement).outlineStyle"
                assert page.evaluate(style) == "solid", "one sees where one is"
                page.keyboard.press("Enter")
                return
        raise AssertionError(f"{name} can't be reached")

    walk_to("E_BAD_PDF")
    page.wait_for_url(re.compile("error_code=E_BAD_PDF"))
    walk_to(site.ids["failed"])
    page.wait_for_url(re.compile(site.ids["failed"]))
    expect(page.locator("h1")).to_contain_text("document")


def test_a_job_is_found_by_its_id(visit: Visit, site: Site) -> None:
    visit.page.goto(site.url)
    visit.page.get_by_label("Job id").fill(site.ids["parent"].lower())
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("h1")).to_contain_text("waiting")
    family = visit.page.get_by_role("region", name="Jobs")
    family.get_by_role("link", name=site.ids["retried"]).click()
    expect(visit.page.locator("h1")).to_contain_text("scheduled")
    parent = visit.page.locator("ol.line").get_by_role("link")
    assert parent.inner_text() == site.ids["parent"]


def test_the_figures_are_fetched_anew(
    visit: Visit, site: Site, context: BrowserContext
) -> None:
    page = visit.page
    page.clock.install()
    page.goto(site.url)
    ready = page.locator(".tiles b").first
    before = int(ready.inner_text())
    store = PostgresStore(site.dsn, schema=SCHEMA, wake_ups=False)
    store.create(NewJob(kind="fresh", queue="fresh"))
    page.locator("summary").click()
    page.clock.run_for(10_000)
    expect(ready).to_have_text(str(before + 1))
    expect(page.locator("summary")).to_be_focused()
    expect(page.get_by_role("region", name="Jobs by minute")).to_be_visible()
    context.set_offline(True)
    page.clock.run_for(10_000)
    expect(page.locator("#live.old")).to_be_visible()
    context.set_offline(False)
    page.clock.run_for(10_000)
    expect(page.locator("#live:not(.old)")).to_be_visible()
    page.get_by_role("checkbox").uncheck()
    store.create(NewJob(kind="fresh", queue="fresh"))
    store.close()
    asked = len(visit.asked)
    page.clock.run_for(60_000)
    assert len(visit.asked) == asked
    page.reload()
    assert not page.get_by_role("checkbox").is_checked(), "it remembers"


def test_it_works_without_scripts(browser: Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    expect(page.locator(".tiles b").first).to_have_text(re.compile(r"\d+"))
    page.get_by_text("The same in figures").click()
    expect(page.get_by_role("region", name="Jobs by minute")).to_be_visible()
    page.goto(f"{site.url}jobs/{site.ids['scheduled']}")
    page.get_by_role("link", name="Requeue").click()
    page.get_by_label("Why").fill("now, not tomorrow (ada)")
    page.get_by_role("button", name="Requeue 1 job").click()
    expect(page.locator("h1")).to_contain_text("queued")
    context.close()


def test_a_script_in_a_name_does_not_run(visit: Visit, site: Site) -> None:
    page = visit.page
    attack = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>"
    dialogs: list[str] = []

    def noted(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.accept()

    page.on("dialog", noted)
    store = PostgresStore(site.dsn, schema=SCHEMA, wake_ups=False)
    job = store.create(NewJob(kind=attack, tenant=attack, queue=attack[:128])).job
    claim = store.claim_next(queue=attack[:128], worker=attack)
    assert claim is not None
    store.fail(claim.lease, error_code=attack, error_message=attack, final=True)
    store.create(NewJob(kind=attack, tenant=attack, queue=attack[:128]))
    store.close()
    for path in ("", "jobs", "failures", f"jobs/{job.id}", f"jobs/{job.id}/requeue"):
        page.goto(site.url + path)
        assert page.title() != "owned"
        assert page.locator("img").count() == 0
    expect(page.locator("h1")).to_contain_text("Requeue")
    page.goto(f"{site.url}jobs/{job.id}")
    expect(page.locator("h1")).to_contain_text("<img src=x")
    # Even markup that got past the templates would not run: the policy forbids it. Our
    # listener comes after the one in the markup would have.
    page.evaluate(
        """markup => new Promise(done => {
            document.body.insertAdjacentHTML("beforeend", markup);
            document.querySelector("img").addEventListener("error", () => done());
        })""",
        attack,
    )
    assert page.title() != "owned"
    assert dialogs == []


def test_requeue_and_cancel(visit: Visit, site: Site) -> None:
    page = visit.page
    page.goto(f"{site.url}jobs/{site.ids['failed']}")
    page.get_by_role("link", name="Requeue").click()
    button = page.get_by_role("button", name="Requeue 1 job")
    button.click()
    expect(page.get_by_label("Why")).to_be_focused()  # it is required
    page.get_by_label("Why").fill("a fixed parser (ada)")
    button.click()
    expect(page.locator("h1")).to_contain_text("queued")
    expect(page.locator(".deeds")).to_contain_text("requeue_job")
    expect(page.locator(".deeds")).to_contain_text("a fixed parser (ada)")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_label("Why").fill("not worth it (ada)")
    page.get_by_role("button", name="Cancel 1 job").click()
    expect(page.locator("h1")).to_contain_text("cancelled")


def test_another_site_cannot_press_our_buttons(
    browser: Browser, site: Site, context: BrowserContext
) -> None:
    """
    A page on another port of this machine, as near as a stranger can get.
    """
    page = context.new_page()
    job_id = site.ids["child"]
    page.goto(f"{site.url}jobs/{job_id}/cancel")
    seal = page.locator("input[name=seal]").input_value()
    elsewhere = "http://localhost:9/"
    form = f"""
        <form method="post" action="{site.url}jobs/{job_id}/cancel">
        <input name="seal" value="{seal}"><input name="was" value="queued">
        <input name="reason" value="forged"><button>Win a prize</button></form>
        <iframe src="{site.url}"></iframe>
    """
    page.route(
        elsewhere, lambda route: route.fulfill(body=form, content_type="text/html")
    )
    page.goto(elsewhere)
    assert page.frames[1].url.startswith("chrome-error:"), "it is not framed"
    with page.expect_navigation() as navigated:
        page.get_by_role("button").click()
    assert navigated.value is not None
    assert navigated.value.status == 403
    page.goto(f"{site.url}jobs/{job_id}")
    expect(page.locator("h1")).to_contain_text("queued")


def test_login(
    context: BrowserContext, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBSTORE_WEB_TOKEN", TOKEN)
    page = context.new_page()
    with served(site.dsn, SCHEMA) as url:
        page.goto(url + "failures")
        page.get_by_label("Token").fill("not the right one")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        assert axe.run(page).response["violations"] == []
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Overview")
        assert page.evaluate("document.cookie") == "", "no script sees the session"
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(url)
        expect(page.get_by_label("Token")).to_be_visible()
