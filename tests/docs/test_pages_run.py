"""The tutorial and the how-to pages, typed as they are printed. A page that is not here is checked in test_blocks.py."""

from pathlib import Path

import pytest

from tests.support.doc_pages import ROOT, Block, blocks_of, reading

DOCS = ROOT / "docs"
REQUEST_PAGES = ["quotas.md", "sequences.md", "cloud.md"]


def test_the_readme_runs_as_it_is_printed(tmp_path: Path) -> None:
    with reading(tmp_path, "8001") as reader:
        reader.follow(blocks_of(ROOT / "README.md"))


def test_the_tutorial_ends_with_one_charge_although_the_worker_was_killed_after_paying(tmp_path: Path) -> None:
    with reading(tmp_path, "8010", "8001") as reader:
        reader.follow(blocks_of(DOCS / "tutorial.md"))


@pytest.mark.parametrize(
    "page", ["celery.md", "ci.md", "fastapi.md", "held-keys.md", "migrating.md", "testing.md", "upgrading.md"]
)
def test_a_how_to_runs_as_it_is_printed(page: str, tmp_path: Path) -> None:
    with reading(tmp_path, "8001", "8003") as reader:
        reader.follow(blocks_of(DOCS / page))


def test_the_requests_of_the_how_tos_succeed(tmp_path: Path) -> None:
    """Pages that print requests to a service which is there already, in their order."""
    service = Block("", 0, "sh", "Terminal 1", "onejob serve")
    refusals = Block("", 0, "sh", "", 'curl() { command curl --silent --show-error --fail-with-body "$@"; }')
    pages = [block for page in REQUEST_PAGES for block in blocks_of(DOCS / page) if block.language == "sh"]
    with reading(tmp_path, "8001") as reader:
        reader.follow([service, refusals, *pages])
