"""The layout of the house, as rules: who imports whom, who asks the outside, how large a room may be."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Room -> what it may import from onejob. A room that is not listed may import anything not forbidden below.
ALLOWED_IMPORTS = {
    "onejob.core": {"onejob.core"},
    "onejob.engine": {"onejob.core", "onejob.errors"},
    "onejob.engines": {
        "onejob.core", "onejob.engine", "onejob.engines",
        "onejob.errors", "onejob.clock", "onejob.ids", "onejob.settings",
    },
    "onejob.client": {
        "onejob.core.key", "onejob.core.fingerprint", "onejob.client",
        "onejob.errors", "onejob.clock", "onejob.ids", "onejob.settings",
    },
}  # fmt: skip
FORBIDDEN_IMPORTS = {
    "onejob.ledger": {"onejob.http", "onejob.cli"},
    "onejob.sync": {"onejob.http", "onejob.cli"},
    "onejob.ledger.maintenance": {"onejob.http", "onejob.cli"},
    "onejob": {"tests", "bench"},
}

# The core computes; whatever waits, draws, asks or touches the world is somebody else's.
CORE_LIBRARIES = {"msgspec"} | set(sys.stdlib_module_names) - {
    "asyncio", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "threading", "time", "uuid",
}  # fmt: skip

# The one file for each question to the outside world. The conformance suite ships tests, and tests may ask.
OUTSIDE_ACCESS = {
    "onejob.clock": {"time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"},
    "onejob.ids": {"random", "secrets", "uuid", "os.urandom"},
    "onejob.settings": {"os.environ", "os.environb", "os.getenv"},
}
OUTSIDE_ACCESS_EXEMPT = "onejob.conformance"

FUNCTION_LINES_MAX = 40
FILE_LINES_MAX = 300
# Path, or path::function -> the lines it has for now. Entries only shrink, and leave.
LENGTH_EXCEPTIONS: dict[str, int] = {}

# In two halves, so that this file does not name what it looks for.
HOSTS = ["pypi" + ".org", "files.python" + "hosted.org", "registry.npm" + "js.org", "deb.debian" + ".org"]
MACHINE_PATHS = ["/ro" + "ot/", "/ho" + "me/"]


def test_imports_follow_the_dependency_rules() -> None:
    report(wrong for module, tree in modules() for wrong in wrong_imports(module, tree))


def test_a_wrong_import_is_found() -> None:
    def seen(module: str, source: str) -> list[str]:
        return list(wrong_imports(module, ast.parse(source)))

    assert seen("onejob.core.key", "import asyncio")
    assert seen("onejob.core.key", "def late():\n    from os import path")
    assert seen("onejob.core.key", "import requests")
    assert seen("onejob.core.key", "from onejob import ledger")
    assert seen("onejob.core.key", "from ..engines import sqlite")
    assert seen("onejob.core.__init__", "from .. import ledger")
    assert seen("onejob.engine", "from onejob.engines.sqlite import Sqlite")
    assert seen("onejob.engines.sqlite", "import onejob.ledger.maintenance")
    assert seen("onejob.ledger", "from onejob.http.app import app")
    assert seen("onejob.client.flow", "from onejob.core.facts import Record")
    assert seen("onejob.cli", "from tests import walks")

    assert not seen("onejob.core.key", "import re, msgspec\nfrom onejob.core import states")
    assert not seen("onejob.core.key", "from . import states\nfrom .states import State")
    assert not seen("onejob.core.__init__", "from .states import State")
    assert not seen("onejob.engines.sqlite", "import sqlite3\nfrom onejob.engine import Engine")
    assert not seen("onejob.client.flow", "from onejob.core.key import Key")
    assert not seen("onejob.cli", "from onejob.http.app import app")


def test_only_one_module_reads_the_clock_random_numbers_or_the_environment() -> None:
    report(
        f"{module} uses {used}: that is for {owner}"
        for module, tree in modules()
        if not is_inside(module, {OUTSIDE_ACCESS_EXEMPT})
        for owner, asked in OUTSIDE_ACCESS.items()
        if module != owner
        for used in sorted(outside_uses(tree, asked))
    )


def test_an_access_to_the_outside_is_found() -> None:
    def seen(owner: str, source: str) -> set[str]:
        return outside_uses(ast.parse(source), OUTSIDE_ACCESS[owner])

    assert seen("onejob.clock", "from time import monotonic")
    assert seen("onejob.clock", "import datetime as dt\ndt.datetime.now(dt.UTC)")
    assert seen("onejob.ids", "import os\nos.urandom(8)")
    assert seen("onejob.settings", "import os\nos.environ.get('PORT')")
    assert seen("onejob.settings", "from os import getenv")

    assert not seen("onejob.clock", "from onejob.clock import Clock\nclock.now()")
    assert not seen("onejob.clock", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)")


def test_functions_stay_short() -> None:
    sizes = list(lengths())
    large = {room for room, lines in sizes if lines > length_max(room)}
    report(
        f"{room} has {lines} lines, at most {LENGTH_EXCEPTIONS.get(room, length_max(room))}"
        for room, lines in sizes
        if lines > LENGTH_EXCEPTIONS.get(room, length_max(room))
    )
    report(f"{room} is small or gone: strike its entry" for room in LENGTH_EXCEPTIONS if room not in large)


def test_no_file_names_a_package_registry_or_a_machine() -> None:
    report(
        f"{path.relative_to(ROOT)} names {name}"
        for path in repository_files()
        for name in HOSTS + MACHINE_PATHS
        if name in path.read_text(encoding="utf-8", errors="replace")
    )


def test_every_glossary_term_is_defined_once() -> None:
    words = [row[0] for row in glossary()]
    report(f"{word!r} is defined twice" for word in sorted(set(words)) if words.count(word) > 1)
    report(f"{row[0]!r} has no meaning" for row in glossary() if not all(row[:2]))


def test_no_class_is_named_by_a_banned_synonym() -> None:
    defined = {normalized(row[0]) for row in glossary()}
    banned = {normalized(synonym) for row in glossary() for synonym in row[2].split(",")} - defined
    report(
        f"{module}.{node.name}: the glossary has another word for it"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and normalized(node.name) in banned
    )


def report(wrong: Iterator[str]) -> None:
    found = list(wrong)
    assert not found, "\n" + "\n".join(found)


def modules() -> list[tuple[str, ast.Module]]:
    """Every module of the package, by its dotted name."""
    found = [(module_name(path), parse(path)) for path in sorted(SRC.rglob("*.py"))]
    assert found, "no rooms: is this run from a checkout?"
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    for name in sorted(imports(tree, module)):
        ours = is_inside(name, {"onejob", "tests", "bench"})
        allowed = [may for room, may in ALLOWED_IMPORTS.items() if is_inside(module, {room})]
        forbidden = [may_not for room, may_not in FORBIDDEN_IMPORTS.items() if is_inside(module, {room})]
        wrong = ours and not all(is_inside(name, may) for may in allowed)
        wrong |= any(is_inside(name, may_not) for may_not in forbidden)
        wrong |= not ours and is_inside(module, {"onejob.core"}) and not is_inside(name, CORE_LIBRARIES)
        if wrong:
            yield f"{module} imports {name}"


def imports(tree: ast.Module, module: str = "") -> set[str]:
    """Full dotted names: `from a import b` is a.b, and dots are resolved from where the module stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{source}.{alias.name}" for alias in node.names}
    return found


def is_inside(name: str, parents: set[str]) -> bool:
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def outside_uses(tree: ast.Module, asked: set[str]) -> set[str]:
    dotted = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = {name for name in dotted if any(f".{name}".endswith(f".{ask}") for ask in asked if "." in ask)}
    return used | {name for name in imports(tree) if is_inside(name, asked)}


def lengths() -> Iterator[tuple[str, int]]:
    """Lines of every file, and of every function in it."""
    for path in sorted(SRC.rglob("*.py")):
        room = path.relative_to(ROOT).as_posix()
        yield room, len(path.read_text(encoding="utf-8").splitlines())
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{room}::{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def length_max(room: str) -> int:
    return FUNCTION_LINES_MAX if "::" in room else FILE_LINES_MAX


def repository_files() -> list[Path]:
    """What git has or would take; without git, everything outside hidden folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL, text=True).split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        below = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        listed = [str(path) for path in below if path.parts[0] == ".ci" or not path.parts[0].startswith(".")]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def glossary() -> list[tuple[str, str, str]]:
    """Word, meaning and, where the table has a column `Not`, the words not to use for it."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    lines = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip(" *`") for cell in line.split("|")] for line in lines]
    assert len(table) > 2, "docs/glossary.md has no table"
    heads = [head.lower() for head in table[0]]
    rows = [row for row in table if row[0] != table[0][0] and not re.fullmatch(r"[:-]+", row[0])]
    return [(row[0], row[1], row[heads.index("not")] if "not" in heads else "") for row in rows]


def normalized(word: str) -> str:
    """IdempotencyKey, `idempotency_key` and "idempotency key" are one word."""
    return re.sub(r"[\W_]+", "", word).lower()
