"""What is generated is up to date, what is printed runs."""

import re
from functools import cache
from pathlib import Path

import pytest

import onejob.testing
from docs import build_site, generate
from onejob.http.metrics import Metrics

ROOT = Path(__file__).parents[1]
PAGES = [name for name in build_site.pages() if name.endswith(".md")]


def test_the_list_of_modules_is_up_to_date() -> None:
    assert (ROOT / "docs" / "modules.md").read_text(encoding="utf-8") == generate.module_map(), "run `make docs`"


def test_the_plan_names_what_exists_and_stays_short() -> None:
    plan = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(plan.encode()) <= 15 * 1024
    named = set(re.findall(r"`([\w/]+\.py)`", plan))
    assert len(named) > 30
    assert not {path for path in named if not (ROOT / "src" / "onejob" / path).exists() and not (ROOT / path).exists()}


def test_pages_that_are_made_from_the_code_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {f"/docs/{name}" for name in generate.REFERENCE} <= set(ignored)


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_links_and_anchors_of_a_page_exist(page: str) -> None:
    for link in build_site.links(build_site.page_text(page)):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://") or "127.0.0.1" in target, f"{page} points at {link}"
            continue
        found = build_site.resolve(page, target) if target else page
        found = f"{found}/README.md" if (ROOT / found).is_dir() else found
        assert build_site.is_page(found), f"{page} points at {link}"
        if anchor:
            assert anchors_of(found).count(anchor) == 1, f"{page} points at {link}"


@cache
def anchors_of(page: str) -> list[str]:
    return build_site.anchors(build_site.page_text(page))


def test_every_page_has_one_place_in_the_navigation() -> None:
    nav = list(build_site.nav_pages(build_site.site_config()["nav"]))
    places = [place for place in build_site.pages().values() if place.endswith(".md")]
    assert sorted(nav) == sorted(places), "give every page a place in docs/mkdocs.yml"


def test_the_site_is_laid_out_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    build_site.lay_out(tmp_path)
    for page in tmp_path.rglob("*.md"):
        for link in build_site.links(page.read_text(encoding="utf-8")):
            target = link.partition("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                assert (page.parent / target).is_file(), f"{page.relative_to(tmp_path)} points at {link}"


def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<link rel="stylesheet" href="assets/a.css"><a href="https://example.com">there</a>'
    )
    assert not build_site.outside_assets(tmp_path)
    for wrong in (
        '<link href="https://fonts.example/x.css" rel="stylesheet">',
        '<script src="//cdn.example/x.js"></script>',
    ):
        (tmp_path / "wrong.html").write_text(wrong)
        assert build_site.outside_assets(tmp_path)


def test_links_are_rewritten_outside_of_code_only() -> None:
    places = {
        "docs/a.md": "a.md",
        "ARCHITECTURE.md": "architecture.md",
        "docs/decisions/README.md": "decisions/README.md",
    }
    text = "[x](../ARCHITECTURE.md#map), `[y](../ARCHITECTURE.md)`, [`z`](decisions/), [home](../README.md)\n"
    assert build_site.rewritten("docs/a.md", text, places) == (
        "[x](architecture.md#map), `[y](../ARCHITECTURE.md)`, [`z`](decisions/README.md), [home](index.md)\n"
    )


def test_the_python_reference_has_every_public_name() -> None:
    page = generate.python_api()
    names = set(onejob.__all__) - {"sync", "AsyncClient"}
    assert not [name for name in names if f"### {name}\n" not in page and f"| `{name}` |" not in page]


def test_the_metrics_page_has_every_metric_that_is_served() -> None:
    page = generate.metrics()
    families = Metrics(onejob.testing.open_ledger()).families()
    served = [family.name for family in families if family.name.startswith("onejob")]
    assert served
    assert not [name for name in served if not re.search(rf"`{name}(_total|_info)?`", page)]
