"""The tutorial and the how-to pages, typed as they are printed. A page that is not here is checked in test_blocks.py."""

from pathlib import Path

import pytest

from tests.support.doc_pages import ROOT, blocks_of, reading

DOCS = ROOT / "docs"


def test_the_tutorial_ends_with_one_charge_although_the_worker_was_killed_after_paying(tmp_path: Path) -> None:
    with reading(tmp_path, "8010", "8001") as reader:
        reader.follow(blocks_of(DOCS / "tutorial.md"))


@pytest.mark.parametrize("page", ["celery.md", "ci.md", "fastapi.md", "migrating.md", "testing.md", "upgrading.md"])
def test_a_how_to_runs_as_it_is_printed(page: str, tmp_path: Path) -> None:
    with reading(tmp_path, "8001", "8003") as reader:
        reader.follow(blocks_of(DOCS / page))
