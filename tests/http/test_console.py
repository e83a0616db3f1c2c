"""The console in a real browser: every page, every action, roles, and what goes wrong."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import onejob
from onejob import sync
from onejob.clock import SystemClock
from onejob.core.credentials import Role
from onejob.core.identity import Actor
from onejob.core.limits import Limits
from onejob.core.sites import Sites
from onejob.core.states import Delivery
from onejob.engines.memory import MemoryEngine
from onejob.errors import IdempotencyConflict
from onejob.http.app import HttpApp
from onejob.ledger.base import runtime_of
from onejob.testing import FaultyEngine, open_ledger
from tests.support.postgres_server import free_port
from tests.support.serve_process import ServeProcess, run_serve_process

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GATE_KEY = "ojg_0123456789ab." + "A" * 43
HOSTILE = "<script>document.title='hit'</script><img src=x onerror=alert(1)>"
MANY = 10_000
HEADINGS = {
    "/": "Overview", "/jobs": "Jobs", "/lost": "Lost jobs", "/keys": "Keys", "/types": "Types", "/workers": "Workers",
    "/callbacks": "Callbacks", "/quotas": "Quotas", "/reservations": "Reservations", "/sequences": "Sequences",
    "/schedules": "Schedules", "/api-keys": "API keys",
    "/search?q=nothing": "Found for “nothing”", "/jobs?state=failed&type=t": "Jobs",
}  # fmt: skip
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# What the browser says about the status of a response; mistakes of a script and of the policy are none of these.
ABOUT_RESPONSES = re.compile("Failed to load resource")

expect.set_options(timeout=20_000)  # the machine may be busy

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed; install the package chromium to look at the console"
)


class Console(NamedTuple):
    """A server with authentication where each user sees its own, an operator on its store, and a browser."""

    url: str
    server: ServeProcess
    operator: sync.SyncLedger
    contexts: dict[Role, BrowserContext]

    def as_user(self, user: str) -> sync.SyncLedger:
        return self.operator.acting_as(tenant="default", user=user, actor=Actor.user(user))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    url = f"sqlite:///{folder / 'onejob.db'}"
    config, key_file = folder / "onejob.toml", folder / "fra.key"
    key_file.write_text(GATE_KEY, encoding="ascii")
    config.write_text(
        f'engine = "{url}"\nauth = true\nkey_owner = "user"\ncallbacks = "any"\n[sites]\nhere = "ber"\n'
        f'[sites.ledgers.fra]\nmanagers = "http://127.0.0.1:{free_port()}"\ngate_key_file = "{key_file}"\n',
        encoding="utf-8",
    )
    sites = Sites(here="ber", others=("fra",))
    with (
        sync.open(url, sweep=False, sites=sites) as operator,
        run_serve_process(folder, "--config", str(config)) as server,
    ):
        keys = {role: sync.SyncApiKeys(operator).create(role, roles=[role], user=role.value).text for role in Role}
        contexts = {}
        for role in (Role.ADMIN, Role.OPERATOR, Role.SUBMITTER):
            contexts[role] = browser.new_context(base_url=server.base_url, viewport={"width": 1200, "height": 800})
            page = contexts[role].new_page()
            page.goto("/")
            page.get_by_label("API key or token").fill(keys[role])
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("main h1")).to_have_text("Jobs" if role is Role.SUBMITTER else "Overview")
            page.close()
        yield Console(url, server, operator, contexts)


@pytest.fixture
def open_page(console: Console) -> Iterator[Callable[..., Page]]:
    """Open a path as somebody with a role. No script may fail, and nothing may break the policy of the page."""
    pages: list[Page] = []
    mistakes: list[str] = []

    def open_as(path: str, role: Role = Role.ADMIN) -> Page:
        page = console.contexts[role].new_page()
        pages.append(page)
        watch(page, mistakes)
        page.goto(path)
        expect(page.locator("main h1, main .empty h2").first).to_be_visible()
        return page

    yield open_as
    for page in pages:
        page.close()
    assert not mistakes


def watch(page: Page, mistakes: list[str]) -> None:
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("dialog", lambda dialog: mistakes.append(dialog.message))

    def on_message(message: Any) -> None:
        if message.type == "error" and not ABOUT_RESPONSES.search(message.text):
            mistakes.append(message.text)

    page.on("console", on_message)


def confirm(page: Page) -> None:
    page.locator("#dialog-action").click()


def test_every_page_opens_by_its_address_on_a_screen_and_on_a_phone(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    for path, heading in HEADINGS.items():
        page.set_viewport_size({"width": 1200, "height": 800})
        page.goto(path)
        expect(page.locator("main h1")).to_have_text(heading)
        page.set_viewport_size({"width": 375, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
    page.locator("#menu").click()
    page.get_by_role("link", name="Workers").click()
    expect(page.locator("main h1")).to_have_text("Workers")
    assert page.url.endswith("/workers")


def test_a_filter_survives_a_reload_and_the_back_button(console: Console, open_page: Callable[..., Page]) -> None:
    for user in ("fay", "gus"):
        console.as_user(user).submit("filtered", idempotency_key=f"{user}-1", labels={"shop": "rome"})
    page = open_page("/jobs")
    page.get_by_label("User").fill("fay")
    page.keyboard.press("Enter")
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="pending").first.click()
    assert "user=fay" in page.url
    assert "state=pending" in page.url
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("User")).to_have_value("fay")
    rows.get_by_role("link", name="filtered").click()
    expect(page.locator("#job-id")).to_be_visible()
    page.go_back()
    expect(rows).to_have_count(1)
    page.goto("/jobs?label=shop%3Drome&user=gus")
    expect(rows).to_have_count(1)


def test_a_job_is_cancelled_and_rerun_after_a_confirmation(console: Console, open_page: Callable[..., Page]) -> None:
    job = console.as_user("ann").submit("acted", {"n": 1}, idempotency_key="acted-1", max_attempts=1).job_id
    (attempt,) = console.operator.claim("acted", start=True)
    console.operator.finish(attempt, error="ValueError at x.py:1", message="the whole message")
    page = open_page(f"/jobs/{job}", Role.OPERATOR)
    expect(page.locator("#job-error")).to_have_text("ValueError at x.py:1")
    expect(page.locator(".message")).to_have_text("the whole message")
    expect(page.locator("#input")).to_contain_text('"n": 1')
    page.locator("[data-action=rerun]").click()
    page.get_by_label("Note").fill("once more")
    confirm(page)
    expect(page.locator(".heading .state")).to_have_text("pending")
    expect(page.locator(".timeline")).to_contain_text("once more")
    page.locator("[data-action=cancel]").click()
    confirm(page)
    expect(page.locator(".heading .state")).to_have_text("cancelled")
    assert console.operator.job(job).state == "cancelled"


def test_one_act_on_all_that_match_says_how_many(console: Console, open_page: Callable[..., Page]) -> None:
    for number in range(7):
        console.as_user("ann").submit("bulk", number)
    page = open_page("/jobs?type=bulk")
    page.locator(".bulk [data-action=cancel]").click()
    expect(page.locator("#dialog-title")).to_have_text("Cancel: 7 jobs?")
    page.get_by_role("button", name="Go back").click()
    assert {job.state for job in console.operator.jobs(type="bulk")} == {"pending"}
    page.locator(".bulk [data-action=cancel]").click()
    confirm(page)
    expect(page.locator("#toasts")).to_contain_text("7 jobs cancelled")
    assert {job.state for job in console.operator.jobs(type="bulk")} == {"cancelled"}


def test_lost_jobs_are_resolved(console: Console, open_page: Callable[..., Page]) -> None:
    page = open_page("/lost", Role.OPERATOR)
    expect(page.locator("main")).to_contain_text("No lost job")
    jobs = [console.as_user("ann").submit("risky", n, delivery=Delivery.AT_MOST_ONCE).job_id for n in range(3)]
    console.operator.claim("risky", limit=3, start=True, lease=timedelta(milliseconds=100))
    page.wait_for_timeout(150)  # the leases end
    console.operator.admin.sweep()
    page.keyboard.press("r")
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(3)
    for left, action in ((2, "resolve-succeeded"), (1, "resolve-failed"), (0, "rerun")):
        rows.first.locator(f"[data-action={action}]").click()
        confirm(page)
        expect(rows).to_have_count(left)
    assert sorted(console.operator.job(job).state for job in jobs) == ["failed", "pending", "success"]


def test_the_story_of_a_key(console: Console, open_page: Callable[..., Page]) -> None:
    ann = console.as_user("ann")
    ann.submit("pay", {"order": 7, "amount": 42}, idempotency_key="orders/7")
    ann.submit("pay", {"order": 7, "amount": 42}, idempotency_key="orders/7")
    with pytest.raises(IdempotencyConflict):
        ann.submit("pay", {"order": 7, "amount": 43}, idempotency_key="orders/7")
    assert ann.explain("orders/7", scope="pay").hits == 1  # stores what this process has counted
    page = open_page("/keys?scope=pay", Role.OPERATOR)
    page.get_by_role("link", name="orders/7").click()
    expect(page.locator("#story")).to_contain_text("1 repetition was answered with the same job, and 1 submission")
    expect(page.locator("#conflicts")).to_have_text("1")
    expect(page.locator("#timeline")).to_contain_text("by user:ann")
    expect(page.locator("#timeline code")).to_have_text("/input/amount")
    expect(page.locator("main")).to_contain_text("only ann can try this one")
    assert "/keys/pay/orders%2F7" in page.url
    page.reload()
    expect(page.locator("main h1")).to_have_text("orders/7")


def test_a_dry_run_shows_what_a_submission_would_be_answered(console: Console, open_page: Callable[..., Page]) -> None:
    own = console.as_user("operator")
    own.submit("pay", {"order": 8, "amount": 12345678901234567890}, idempotency_key="order-8")
    page = open_page("/keys/pay/order-8", Role.OPERATOR)
    expect(page.locator("#answer")).to_contain_text("replayed")
    page.get_by_label("Input").fill('{"order": 8, "amount": 1}')
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#answer")).to_contain_text("conflict")
    expect(page.locator("#answer code")).to_have_text("/input/amount")
    assert (
        console.operator.acting_as(tenant="default", user="operator", actor=Actor.user("operator"))
        .explain("order-8", scope="pay")
        .conflicts
        == 0
    )
    page.locator("#forget").click()
    confirm(page)
    expect(page.locator("#job-id")).to_be_visible()


def test_a_search_finds_a_job_by_its_id_and_a_key_without_its_scope(
    console: Console, open_page: Callable[..., Page]
) -> None:
    job = console.as_user("ann").submit("found", idempotency_key="find me", scope="special").job_id
    page = open_page("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("find me")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("find me")
    assert "/keys/special/find%20me" in page.url
    page.locator("#search-text").fill(job)
    page.keyboard.press("Enter")
    expect(page.locator("#job-id")).to_have_text(job)


def test_the_keyboard_moves_in_lists_and_between_pages(console: Console, open_page: Callable[..., Page]) -> None:
    for number in range(3):
        console.as_user("ann").submit("listed", number)
    page = open_page("/jobs?type=listed")
    newest, second = (job.id for job in console.operator.jobs(type="listed")[:2])
    page.keyboard.press("j")
    assert newest in str(page.evaluate("document.activeElement.href"))
    page.keyboard.press("j")
    assert second in str(page.evaluate("document.activeElement.href"))
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("#job-id")).to_have_text(newest)
    page.keyboard.press("?")
    expect(page.locator("#dialog-title")).to_have_text("Keyboard")
    page.keyboard.press("Escape")
    expect(page.locator("#dialog-title")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.locator("main h1")).to_have_text("Workers")


def test_a_running_job_shows_its_progress_and_log_lines_as_they_come(
    console: Console, open_page: Callable[..., Page]
) -> None:
    job = console.as_user("ann").submit("watched", None).job_id
    (attempt,) = console.operator.claim("watched", start=True)
    attempt = console.operator.extend(attempt, progress={"done": 1, "total": 4}, logs=["first line"])
    page = open_page(f"/jobs/{job}")
    expect(page.locator("#log")).to_have_text("first line\n")
    expect(page.locator("#progress")).to_contain_text('"done":1')
    attempt = console.operator.extend(attempt, logs=["second line"])
    console.operator.finish(attempt, {"sum": 12345678901234567890})
    expect(page.locator(".heading .state")).to_have_text("success")
    expect(page.locator("#log")).to_have_text("first line\nsecond line\n")
    expect(page.locator("#result")).to_contain_text("12345678901234567890")


def test_a_job_shows_where_its_sites_stand(console: Console, open_page: Callable[..., Page]) -> None:
    receipt = console.operator.submit("reindex", idempotency_key="reindex-7", sites=["ber", "fra"])
    page = open_page(f"/jobs/{receipt.job_id}")
    expect(page.locator("#sites tr[data-key=ber]")).to_contain_text("pending")
    fra = page.locator("#sites tr[data-key=fra]")
    expect(fra).to_contain_text("no answer yet")
    expect(fra).to_contain_text("submission on its way")
    expect(fra.locator(".bad")).to_be_visible()


def test_a_type_is_paused_and_resumed(console: Console, open_page: Callable[..., Page]) -> None:
    console.operator.admin.pause_type("stopped")
    page = open_page("/types", Role.OPERATOR)
    button = page.locator("[data-type=stopped]")
    expect(button).to_have_text("Resume")
    button.click()
    expect(page.locator("#toasts")).to_contain_text("stopped goes on")
    console.as_user("ann").submit("stopped")
    assert console.operator.claim("stopped", start=True)


def test_a_schedule_is_paused_and_resumed(console: Console, open_page: Callable[..., Page]) -> None:
    console.operator.admin.register_schedule("nightly", type="report", timetable="0 3 * * *", catch_up=1)
    page = open_page("/schedules", Role.OPERATOR)
    button = page.locator("[data-schedule=nightly]")
    button.click()
    confirm(page)
    expect(button).to_have_text("Resume")
    assert console.operator.admin.schedules()[0].paused_at
    button.click()
    expect(button).to_have_text("Pause…")
    assert console.operator.admin.schedules()[0].paused_at is None


def test_limits_are_set_and_shown_with_what_is_used(console: Console, open_page: Callable[..., Page]) -> None:
    page = open_page("/quotas")
    page.locator("#set-user").click()
    page.get_by_role("textbox", name="User").fill("eve")
    page.get_by_label("Jobs at once").fill("4")
    confirm(page)
    expect(page.locator("[data-key=eve]")).to_contain_text("0 / 4")
    console.as_user("eve").submit("limited")
    page.reload()
    expect(page.locator("[data-key=eve]")).to_contain_text("1 / 4")
    page.locator("[data-user=eve]").click()
    page.get_by_label("Jobs at once").fill("")
    confirm(page)
    expect(page.locator("[data-key=eve]")).not_to_contain_text("own limits")
    assert console.operator.quota("eve").limits == Limits()


def test_a_reserved_slot_is_released(console: Console, open_page: Callable[..., Page]) -> None:
    slot = console.operator.reserve_job_slot("bob", max_concurrent=5)
    page = open_page("/reservations", Role.OPERATOR)
    row = page.locator(f"[data-key='{slot}']")
    expect(row).to_contain_text("bob")
    row.locator("[data-action=release]").click()
    confirm(page)
    expect(row.locator("[data-action=release]")).to_have_count(0)
    assert not [one for one in console.operator.reservations("bob") if one.state == "active"]


def test_sequences_callbacks_and_workers_are_listed(console: Console, open_page: Callable[..., Page]) -> None:
    console.operator.submit_sequence("till-1", 1, "till-1-1", "close", scope="tills")
    job = console.as_user("ann").submit("reported", callback="http://127.0.0.1:9/hook").job_id
    page = open_page("/sequences", Role.OPERATOR)
    expect(page.locator("tbody tr")).to_contain_text("till-1")
    page.goto("/callbacks")
    expect(page.locator("tbody tr")).to_contain_text("http://127.0.0.1:9/hook")
    page.locator("tbody tr").get_by_role("link", name=f"…{job[-12:]}").click()
    expect(page.locator("#job-id")).to_have_text(job)
    expect(page.locator("main")).to_contain_text("waits for the end of the job")


def test_an_api_key_is_shown_once_rotated_and_revoked(console: Console, open_page: Callable[..., Page]) -> None:
    page = open_page("/api-keys")
    page.locator("#new-api-key").click()
    page.get_by_label("Name").fill("robot")
    confirm(page)
    text = page.locator("#new-key").inner_text()
    assert console.server.get("/api/jobs", authorization=f"Bearer {text}").status == 200
    confirm(page)
    row = page.locator("tr", has_text="robot")
    row.locator("[data-action=rotate]").click()
    page.get_by_label("The old text ends").select_option("0")
    confirm(page)
    renewed = page.locator("#new-key").inner_text()
    assert console.server.get("/api/jobs", authorization=f"Bearer {text}").status == 401
    confirm(page)
    page.reload()
    expect(row).to_be_visible()
    assert renewed not in page.content()
    row.locator("[data-action=revoke]").click()
    confirm(page)
    expect(row).to_contain_text("revoked")
    assert console.server.get("/api/jobs", authorization=f"Bearer {renewed}").status == 401


def test_a_submitter_sees_its_own_jobs_and_no_page_of_operators(
    console: Console, open_page: Callable[..., Page]
) -> None:
    others = console.as_user("ann").submit("private", {"secret": 1}, idempotency_key="hidden").job_id
    own = console.as_user("submitter").submit("private", {"mine": 1}, idempotency_key="shown").job_id
    page = open_page("/", Role.SUBMITTER)
    assert page.url.endswith("/jobs")
    expect(page.locator("#jobs")).to_contain_text("shown")
    expect(page.locator("#jobs")).not_to_contain_text("hidden")
    for name in ("Overview", "Lost jobs", "Workers", "API keys"):
        expect(page.locator("#side").get_by_role("link", name=name)).to_have_count(0)
    for path in (f"/jobs/{others}", "/keys/private/hidden", "/keys/private/hidden?user=ann"):
        page.goto(path)
        expect(page.locator("main")).to_contain_text("Not found")
    page.goto("/search?q=hidden")
    expect(page.locator("main")).to_contain_text("Nothing found")
    page.goto("/api-keys")
    expect(page.locator("main")).to_contain_text("Your role does not allow this")
    page.goto(f"/jobs/{own}")
    expect(page.locator("main")).to_contain_text("Inputs are for operators")
    page.locator("[data-action=cancel]").click()
    confirm(page)
    expect(page.locator(".heading .state")).to_have_text("cancelled")


def test_text_of_callers_never_becomes_markup(console: Console, open_page: Callable[..., Page]) -> None:
    job = (
        console.as_user(HOSTILE[:90])
        .submit(HOSTILE, {"html": HOSTILE}, idempotency_key=HOSTILE, labels={HOSTILE[:20]: HOSTILE})
        .job_id
    )
    (attempt,) = console.operator.claim(HOSTILE, start=True)
    console.operator.extend(attempt, progress=HOSTILE, logs=[HOSTILE])
    console.operator.admin.pause_type(HOSTILE)  # so that it is listed before jobs are counted again
    page = open_page(f"/jobs/{job}")
    expect(page.locator("main h1")).to_have_text(HOSTILE)
    expect(page.locator("#input")).to_contain_text("<script>")
    expect(page.locator("#log")).to_have_text(f"{HOSTILE}\n")
    for path in (f"/jobs?type={HOSTILE}", "/", "/keys", "/types"):
        page.goto(path)
        expect(page.locator("main")).to_contain_text("<script>")
        assert page.locator("main script, main img").count() == 0
        assert page.title() != "hit"


def test_ten_thousand_jobs_are_paged_through_and_counted(console: Console, open_page: Callable[..., Page]) -> None:
    ann = console.as_user("ann")
    for start in range(0, MANY, 1000):
        ann.submit_many([onejob.Submission(type="many", input=n) for n in range(start, start + 1000)])
    page = open_page("/jobs?type=many&state=pending")
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(50)
    first = rows.first.get_attribute("data-key")
    page.locator("#next-page").click()
    expect(page.get_by_role("link", name="← First page")).to_be_visible()
    expect(rows).to_have_count(50)
    assert rows.first.get_attribute("data-key") != first
    page.locator(".bulk [data-action=cancel]").click()
    expect(page.locator("#dialog-title")).to_have_text("Cancel: 10,000 jobs?")


def test_signing_out_ends_the_session_and_a_wrong_key_opens_none(console: Console, browser: Browser) -> None:
    key = sync.SyncApiKeys(console.operator).create("visitor", roles=[Role.OPERATOR]).text
    with browser.new_context(base_url=console.server.base_url) as context:
        page = context.new_page()
        page.goto("/workers")
        page.get_by_label("API key or token").fill("oj_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("API key or token").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main h1")).to_have_text("Workers")
        assert not page.evaluate("document.cookie"), "no script can read the session"
        page.locator("#sign-out").click()
        expect(page.get_by_label("API key or token")).to_be_visible()
        page.reload()
        expect(page.get_by_label("API key or token")).to_be_visible()


def test_two_processes_show_the_same_numbers(
    console: Console, open_page: Callable[..., Page], browser: Browser, tmp_path: Path
) -> None:
    console.as_user("ann").submit("counted", 1, idempotency_key="counted")
    console.operator.run(runtime_of(console.operator._ledger).activity.report())  # as every process does now and then
    with run_serve_process(tmp_path, "--engine", console.url) as other:
        first = open_page("/")
        with browser.new_context(base_url=other.base_url) as context:
            second = context.new_page()
            second.goto("/")
            expect(second.locator("[data-plot=created] .figure")).to_be_visible()
            deadline = monotonic() + 10
            while (shown := figures(first)) != figures(second):
                assert monotonic() < deadline, shown
                for page in (first, second):
                    page.keyboard.press("r")
                    page.wait_for_timeout(200)
            assert int(shown[0].split()[1].replace(",", "")) > 0


def figures(page: Page) -> list[str]:
    return [page.locator(place).inner_text() for place in (".plots", ".legend")]


class FaultyServer:
    """A server without authentication in a thread, on a store that a test can take away."""

    def __init__(self) -> None:
        self.engine = FaultyEngine(MemoryEngine(SystemClock()))
        self._ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        async with open_ledger(self.engine, clock=SystemClock()) as ledger:
            await ledger.submit("t", idempotency_key="k")
            config = uvicorn.Config(HttpApp(ledger), port=0, log_level="error", lifespan="off", ws="none")
            listener = config.bind_socket()
            listener.listen()
            self.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._server = uvicorn.Server(config)
            self._ready.set()
            await self._server.serve(sockets=[listener])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


def test_a_dead_store_is_said_and_the_page_recovers_by_itself(browser: Browser) -> None:
    server = FaultyServer()
    try:
        with browser.new_context(base_url=server.base_url) as context:
            page = context.new_page()
            server.engine.fail_before(100_000)
            page.goto("/types")
            expect(page.get_by_role("alert")).to_contain_text("The store does not answer")
            server.engine.clear_faults()
            expect(page.locator("main h1")).to_have_text("Types")
            server.engine.fail_before(100_000)
            page.keyboard.press("r")
            expect(page.get_by_role("alert")).to_contain_text("What you see is from before")
            expect(page.locator("main h1")).to_have_text("Types")
            server.engine.clear_faults()
            expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        server.close()
