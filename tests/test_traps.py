"""The table of traps names tests that exist; what no other test has is tested here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from onejob.codes import CODES
from onejob.http.app import _response_headers
from onejob.http.problems import problem
from onejob.http.responses import problem_response

HERE = Path(__file__).parent
CONFORMANCE = HERE.parent / "src" / "onejob"
# How many traps of each kind were found in others.
TRAPS_BY_KIND = {"R": 11, "L": 12, "C": 18, "K": 11}
REASONS = {"durable steps belong to workflow engines"}

ROWS = re.findall(r"^\| ([A-Z]-\d\d) \|[^|]+\| ([^|]+) \|$", (HERE / "traps.md").read_text(), flags=re.MULTILINE)


def test_every_trap_is_in_the_table_once() -> None:
    expected = [f"{kind}-{n:02}" for kind, count in TRAPS_BY_KIND.items() for n in range(1, count + 1)]
    assert [trap for trap, _ in ROWS] == expected


@pytest.mark.parametrize(("trap", "tests"), ROWS, ids=[trap for trap, _ in ROWS])
def test_every_trap_has_tests_that_exist(trap: str, tests: str) -> None:
    if tests.startswith("none: "):
        assert tests.removeprefix("none: ") in REASONS
        return
    for named in tests.split(", "):
        path, _, name = named.partition("::")
        folder = CONFORMANCE if path.startswith("conformance/") else HERE
        assert name in defined_functions(folder / path), f"{trap}: {named} is gone"


@pytest.mark.parametrize("code", CODES)
def test_no_answer_may_be_kept_by_a_proxy(code: str) -> None:
    headers = dict(_response_headers(problem_response(problem(code, "text"), "r"), "r"))
    assert headers[b"cache-control"] == b"no-store"


@cache
def defined_functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
