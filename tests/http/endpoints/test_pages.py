"""The pages as they are sent: they run their own scripts and nothing else. tests/http/test_console.py looks at them."""

import hashlib
import html
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob.http.endpoints.pages import CONSOLE_PATHS
from tests.support.serve_process import ServeProcess, run_serve_process

PATHS = [path.replace("{", "").replace("}", "") for path in CONSOLE_PATHS]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What turns a text into markup or code.
DANGEROUS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
FOREIGN = re.compile(r"https?://[^\s'\"`]+")
SVG = "http://www.w3.org/2000/svg"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with run_serve_process(tmp_path_factory.mktemp("pages"), "--engine", "memory://") as running:
        yield running


def asset_paths(service: ServeProcess) -> list[str]:
    text = service.get("/").body.decode()
    return sorted(set(re.findall(r'(?:href|src)="(/assets/[^"]+)"', text)))


@pytest.mark.parametrize("path", [*PATHS, "/docs"])
def test_a_page_may_run_only_what_this_server_wrote(service: ServeProcess, path: str) -> None:
    answer = service.get(path)
    text = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert not re.search(r"<[^>]+\s(?:style|on\w+)=", text.partition("<script>")[0])


def test_the_console_is_one_page_for_all_its_paths(service: ServeProcess) -> None:
    assert len({service.get(path).body for path in PATHS}) == 1
    answer = service.get("/keys/a%2Fb/c%3Fd")
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert not re.search(r"<script[^>]*>[^<]", answer.body.decode()), "no script is inside the page"
    for path in ("/jobs/a/b", "/keys/a", "/nowhere", "/assets/0/app.js"):
        assert service.get(path).status == 404


def test_the_page_of_the_api_allows_exactly_its_inline_style_and_script(service: ServeProcess) -> None:
    answer = service.get("/docs")
    for tag in ("script", "style"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.body.decode(), re.DOTALL)
        digest = b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in answer.headers["content-security-policy"]


def test_scripts_and_styles_are_kept_by_browsers_under_addresses_that_name_their_content(service: ServeProcess) -> None:
    paths = asset_paths(service)
    names = {path.rpartition("/")[2] for path in paths}
    assert {"app.js", "console.css", "style.css"} <= names
    for path in paths:
        answer = service.get(path)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].startswith("text/css" if path.endswith("css") else "text/javascript")
        for imported in re.findall(r'from "\./([^"]+)"', answer.body.decode()):
            assert imported in names, f"{path} imports {imported}, which is loaded late"


def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup(service: ServeProcess) -> None:
    for path in (*asset_paths(service), "/", "/docs"):
        text = service.get(path).body.decode()
        assert set(FOREIGN.findall(text)) <= {SVG}, path
        assert not DANGEROUS.search(text), path
        assert "localStorage" not in text
        assert "document.cookie" not in text


def test_a_page_finds_every_element_it_uses(service: ServeProcess) -> None:
    text = service.get("/docs").body.decode()
    ids = re.findall(r'\bid="([\w-]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'\bat\("([\w-]+)"\)', text)) <= set(ids)
    labelled = re.findall(r'<label for="([\w-]+)"', text)
    assert set(re.findall(r'<input id="([\w-]+)"', text)) <= set(labelled)


@pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed; install the package chromium to render the pages"
)
def test_the_docs_list_every_operation_and_open_the_one_that_is_linked(service: ServeProcess, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=4000"]
    address = f"{service.base_url}/docs#postApiJobs"
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path}", "--dump-dom", address]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    described = service.get("/openapi.json").json["paths"]
    for path, methods in described.items():
        for method, operation in methods.items():
            assert f'id="{operation["operationId"]}"' in dom, (method, path)
            assert html.escape(operation["summary"], quote=False) in dom
    assert 'id="postApiJobs-header-Idempotency-Key"' in dom
    assert "Schema of the body" in dom
