"""The HTML pages: safe as they are sent, and correct as a browser renders them."""

import hashlib
import html
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serve_process import ServeProcess, run_serve_process

PAGES = ("/", "/docs")
HOSTILE = "<img src=x onerror=alert(1)>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What turns a text into markup or code.
DANGEROUS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed; install the package chromium to render the pages"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, shared_url: str) -> Iterator[ServeProcess]:
    with run_serve_process(tmp_path_factory.mktemp("pages"), "--engine", shared_url) as running:
        yield running


def rendered_dom(address: str, folder: Path) -> str:
    """The DOM of a page after its script has run."""
    assert CHROMIUM is not None
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", f"--user-data-dir={folder}", "--virtual-time-budget=4000", "--dump-dom",
    ]  # fmt: skip
    found = subprocess.run([CHROMIUM, *flags, address], capture_output=True, text=True, check=True, timeout=90)
    return found.stdout


def element(dom: str, id: str) -> str:
    found = re.search(rf'<(\w+)[^>]*\bid="{id}"[^>]*>(.*?)</\1>', dom, re.DOTALL)
    assert found, id
    return found[2]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_its_own_script_and_nothing_else(service: ServeProcess, path: str) -> None:
    answer = service.get(path)
    text = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_nothing_external_and_escapes_text(service: ServeProcess, path: str) -> None:
    text = service.get(path).body.decode()
    assert set(re.findall(r"https?://[^\s'\"`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not DANGEROUS.search(text)
    assert not re.search(r"<[^>]+\s(?:style|on\w+)=", text.partition("<script>")[0])
    assert "localStorage" not in text
    assert "cookie" not in text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_finds_every_element_it_uses(service: ServeProcess, path: str) -> None:
    text = service.get(path).body.decode()
    ids = re.findall(r'\bid="([\w-]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'\bat\("([\w-]+)"\)', text)) <= set(ids)
    labelled = re.findall(r'<label for="([\w-]+)"', text)
    assert set(re.findall(r'<input id="([\w-]+)"', text)) <= set(labelled)


@needs_chromium
def test_the_first_page_shows_counters_the_latest_job_and_the_history_of_a_key(
    service: ServeProcess, tmp_path: Path
) -> None:
    for amount in (1, 1, 2):
        service.submit(HOSTILE, {"amount": amount}, key="orders/7")
    stats = service.get("/api/stats").json["outcomes"]
    dom = rendered_dom(f"{service.base_url}/#key=orders%2F7&scope={HOSTILE}", tmp_path)
    for outcome in ("created", "replayed", "conflict"):
        assert element(dom, outcome) == str(stats[outcome]) != "0"
    assert element(dom, "waiting") == "0"
    assert element(dom, "live") == "live"
    assert html.escape(HOSTILE, quote=False) in element(dom, "jobs")
    assert "orders/7" in element(dom, "jobs")
    assert "<img" not in dom
    history = dom.partition('id="history"')[2]
    assert "1 duplicate, 1 conflict" in history
    assert "conflict, another body under the key" in history
    assert "/input/amount" in history
    assert "Show the input and the failures" in history
    assert "submitted" in history
    assert "window ends" in history


@needs_chromium
def test_the_docs_list_every_operation_and_open_the_one_that_is_linked(service: ServeProcess, tmp_path: Path) -> None:
    dom = rendered_dom(f"{service.base_url}/docs#postApiJobs", tmp_path)
    described = service.get("/openapi.json").json["paths"]
    for path, methods in described.items():
        for method, operation in methods.items():
            assert f'id="{operation["operationId"]}"' in dom, (method, path)
            assert html.escape(operation["summary"], quote=False) in dom
    assert 'id="postApiJobs-header-Idempotency-Key"' in dom
    assert "Schema of the body" in dom


@needs_chromium
def test_where_a_credential_is_needed_the_page_asks_for_it_and_shows_nothing(tmp_path: Path, settings: str) -> None:
    config = tmp_path / "onejob.toml"
    config.write_text(f"{settings}auth = true\n", encoding="utf-8")
    with run_serve_process(tmp_path, "--config", str(config)) as locked:
        assert locked.get("/api/stats").status == 401
        dom = rendered_dom(f"{locked.base_url}/", tmp_path / "browser")
    assert re.search(r'<form class="panel" id="credential">', dom)
    assert re.search(r'<div id="inside" hidden="">', dom)
    assert element(dom, "live") == "needs a credential"
