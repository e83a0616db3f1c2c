"""The reference pages that are generated from the code."""

import pytest

from docs import generate
from tests.golden.conftest import GoldenCheck


@pytest.mark.parametrize("name", ["settings.md", "errors.md", "states.md", "metrics.md"])
def test_generated_page(name: str, golden: GoldenCheck) -> None:
    golden(f"pages/{name}", generate.PAGES[name]())
