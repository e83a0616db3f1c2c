"""No test is lost: what is on record exists, or a line says what covers its promise now.

A line of moved_tests.txt is `old id -> new id, another one  # why these cover it`. Renewing adds ids and removes none.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.golden.conftest import FILES, RENEW

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("tests", "src/onejob/conformance")
_SUITE = re.compile("^Test|Contract$|Rules$")
ON_RECORD, MOVED = FILES / "test_ids.txt", FILES / "moved_tests.txt"


def test_every_test_on_record_exists_or_has_a_successor() -> None:
    existing = {test for place in PLACES for path in (ROOT / place).rglob("*.py") for test in ids_in(path, ROOT)}
    on_record = set(ON_RECORD.read_text(encoding="utf-8").splitlines()) if ON_RECORD.exists() else set[str]()
    if RENEW:
        on_record |= existing
        ON_RECORD.write_text("".join(f"{test}\n" for test in sorted(on_record)), encoding="utf-8")
    moved = parse_moved(MOVED.read_text(encoding="utf-8"))
    assert not (problems := list(missing_tests(existing, on_record, moved))), "\n" + "\n".join(problems)


def test_a_lost_test_is_found(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.write_text("""
from tests.test_b import helper, test_three as test_four

async def test_one(): ...

class TestB(Contract):
    def test_two(self): ...
    def helper(self): ...
""")
    existing = set(ids_in(path, tmp_path))
    assert existing == {
        "test_a.py::test_one",
        "test_a.py::test_four",
        "test_a.py::TestB::test_two",
        "test_a.py::TestB(Contract)",
    }

    def missing(moved: str) -> list[str]:
        return list(missing_tests(existing, existing | {"old.py::test_x"}, parse_moved(moved)))

    assert missing("") == ["old.py::test_x is gone; restore it, or add a line to moved_tests.txt"]
    assert not missing(
        "# a comment\n\nold.py::test_x -> test_a.py::test_one, test_a.py::TestB::test_two  # the same rule"
    )
    assert missing("old.py::test_x -> test_a.py::test_three") == [
        "old.py::test_x moved to test_a.py::test_three, which is not there"
    ]
    assert missing("old.py::test_x -> ") == ["old.py::test_x is gone; restore it, or add a line to moved_tests.txt"]
    assert missing("old.py::test_x -> test_a.py::test_one\nold.py::test_y -> test_a.py::test_one") == [
        "old.py::test_y is in moved_tests.txt and was never on record"
    ]


def ids_in(path: Path, root: Path) -> Iterator[str]:
    """The tests that a file defines or imports, without parameters; and from which suites its classes inherit."""
    name = path.relative_to(root).as_posix()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{name}::{node.name}::{test}" for test in names_of_tests(node.body))
            if _SUITE.search(node.name):
                yield from (f"{name}::{node.name}({ast.unparse(base)})" for base in node.bases)
        else:
            yield from (f"{name}::{test}" for test in names_of_tests([node]))


def names_of_tests(nodes: list[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [node.name]
        else:
            names = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name.startswith("test_"))


def parse_moved(text: str) -> dict[str, list[str]]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pairs = [line.partition("->") for line in lines if line]
    return {old.strip(): [new for new in re.split(r"[,\s]+", new.strip()) if new] for old, _, new in pairs}


def missing_tests(existing: set[str], on_record: set[str], moved: dict[str, list[str]]) -> Iterator[str]:
    for test in sorted(on_record - existing):
        if not moved.get(test):
            yield f"{test} is gone; restore it, or add a line to moved_tests.txt"
    for old, successors in moved.items():
        yield from (f"{old} moved to {new}, which is not there" for new in successors if new not in existing)
        if old not in on_record:
            yield f"{old} is in moved_tests.txt and was never on record"
