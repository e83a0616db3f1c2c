"""What is generated is up to date, what is printed runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", list(generator().PAGES))
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generator().PAGES[name](), "run `make docs`"


def test_the_python_of_the_readme_runs_again_and_again(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert programs
    for program in [*programs, *programs]:
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_links_between_the_pages_exist() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points at {target}"
