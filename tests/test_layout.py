"""The rules of the code base that a program can check: imports, sizes, names, the map, the glossary."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Four rings, from the truth outwards. A package imports its own level and those before it, and every package has a level here.
RINGS = {
    "foundations": [{
        "onejob.core", "onejob.errors", "onejob.codes", "onejob.clock", "onejob.backoff", "onejob.ids", "onejob.settings",
        "onejob.idempotency_key_header", "onejob.audit", "onejob.addresses", "onejob.logs",
    }],
    "truth": [
        {"onejob.engine"}, {"onejob.engines"}, {"onejob.resources"}, {"onejob.runtime", "onejob.tracing"}, {"onejob.ledger"},
        {"onejob.sync", "onejob.webhooks", "onejob.import_path"},
    ],
    "doors": [{"onejob.server"}, {"onejob.http", "onejob.worker", "onejob.client", "onejob.cli"}],
    "integrations": [{"onejob.middleware", "onejob.django", "onejob.transaction", "onejob.manager"}],
    "tools": [{
        "onejob.cli.commands", "onejob.conformance", "onejob.testing", "onejob.inside",
    }],
}  # fmt: skip
LEVELS = [level for ring in RINGS.values() for level in ring]
# An import against the rings -> its reason. Entries only leave.
AGAINST_THE_RINGS = {
    ("onejob.settings", "onejob.engines"): "says whether a URL has a password",
    ("onejob.settings", "onejob.http"): "reads the service's configuration, imported late",
    ("onejob.worker", "onejob.transaction"): "a handler ends its job in the caller's transaction, imported late",
}

# Package or module -> what it may import from onejob, where that is less than its level may.
ALLOWED_IMPORTS = {
    "onejob.core": {"onejob.core"},
    "onejob.codes": set[str](),
    "onejob.engine": {"onejob.core", "onejob.errors"},
    "onejob.resources": {
        "onejob.core.facts", "onejob.core.identity", "onejob.core.limits", "onejob.core.replies", "onejob.core.states",
        "onejob.core.timestamps", "onejob.engine.Durability", "onejob.resources",
    },
    "onejob.client": {
        "onejob.core.key", "onejob.core.fingerprint", "onejob.core.replies.LimitWarning", "onejob.core.timestamps",
        "onejob.client", "onejob.codes", "onejob.errors", "onejob.clock", "onejob.backoff", "onejob.ids",
        "onejob.settings", "onejob.resources",
    },
}  # fmt: skip
FORBIDDEN_IMPORTS = {
    "onejob.worker": {"onejob.http", "onejob.cli"},
    "onejob.middleware": {"onejob.http", "onejob.cli", "onejob.django"},
    "onejob": {"tests", "bench"},
}

# The core computes; what waits, draws random numbers or does I/O belongs elsewhere.
CORE_LIBRARIES = {"msgspec"} | set(sys.stdlib_module_names) - {
    "asyncio", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "threading", "time", "uuid",
}  # fmt: skip

# The one module for each access to the outside. The conformance suite ships tests, and tests may.
OUTSIDE_ACCESS = {
    "onejob.clock": {"time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"},
    "onejob.ids": {"random", "secrets", "uuid", "os.urandom"},
    "onejob.settings": {"os.environ", "os.environb", "os.getenv"},
}
OUTSIDE_ACCESS_EXEMPT = "onejob.conformance"

FUNCTION_LINES_MAX = 40
SMALL_MODULE_LINES = 80
LEDGER_NAMES_MAX = 60
# Small modules that have one importer on purpose, each with its reason. Entries only leave.
SMALL_MODULES = {
    "onejob.cli.__main__": "python -m onejob.cli",
    "onejob.django.apps": "Django finds it by its name",
    "onejob.django.management.commands.onejob_worker": "Django finds it by its name",
    "onejob.django.models": "Django finds it by its name",
    "onejob.worker.heartbeat": "one of three lease renewers, with its own reason to change",
    "onejob.testing.plugin": "the entry point of pytest",
    "onejob.inside": "the old name of a package, which says the new one",
}

# One file per promise, all imported by the contract; one file per command, found by its name.
ONE_FILE_EACH = {"onejob.conformance", "onejob.cli.commands"}

# Names that only insiders can guess: never again as the name of a module, class or function.
PRIVATE_WORDS = {
    "adoption", "anew", "answered", "asked", "awaited", "census", "departures", "foresee", "front", "judged", "kept",
    "keeping", "lookout", "looks", "patience", "pour", "said", "shelf", "sight", "tail", "tally", "told", "upkeep",
    "warrant",
}  # fmt: skip

# Habits of a translated text, and what to write instead (the pages take the same list).
ACCENT = {
    r"(?:(?:^|[.;:|] |\"\"\")Who (?!is |are |may )|\b(?:ask|to|of|from|by|otherwise|and|or) who )": "name a person or a program",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!more\b|longer\b|less\b|later\b|fewer\b|sooner\b|one\b)\w": "is not a",
    r"[,(:] as (?:`(?!application/)[^`]*:|'|https?:|sqlite:|postgresql:|\d|[a-z_]+=)": "e.g.",
    r"\b(?:anew|in vain|so many|for ever|go(?:es|ing)? on with|went on with|gone on with)\b": "again, wasted, this many, …",
}  # fmt: skip
VAGUE_VARIABLE = "one"

# In two halves, so that this file does not name what it looks for.
HOSTS = ["pypi" + ".org", "files.python" + "hosted.org", "registry.npm" + "js.org", "deb.debian" + ".org"]
MACHINE_PATHS = ["/ro" + "ot/", "/ho" + "me/"]


def test_imports_follow_the_dependency_rules() -> None:
    report(wrong for module, tree in modules() for wrong in wrong_imports(module, tree))


def test_a_wrong_import_is_found() -> None:
    def wrong(module: str, source: str) -> list[str]:
        return list(wrong_imports(module, ast.parse(source)))

    assert wrong("onejob.core.key", "import asyncio")
    assert wrong("onejob.core.key", "def late():\n    from os import path")
    assert wrong("onejob.core.key", "import requests")
    assert wrong("onejob.core.key", "from onejob import ledger")
    assert wrong("onejob.core.key", "from ..engines import sqlite")
    assert wrong("onejob.core.__init__", "from .. import ledger")
    assert wrong("onejob.engine", "from onejob.engines.sqlite import Sqlite")
    assert wrong("onejob.engines.sqlite", "import onejob.runtime.maintenance")
    assert wrong("onejob.ledger.quotas", "from onejob.http.app import app")
    assert wrong("onejob.client.flow", "from onejob.core.facts import Record")
    assert wrong("onejob.codes", "from onejob.core.facts import Record")
    assert wrong("onejob.cli", "from tests import simulation")
    assert wrong("onejob.runtime.claims", "from onejob.ledger.parse import Submission")
    assert wrong("onejob.worker.worker", "from onejob.manager.ledger import ManagedLedger")
    assert wrong("onejob.engines.new_package", "from onejob.new_package import x")

    assert not wrong("onejob.core.key", "import re, msgspec\nfrom onejob.core import states")
    assert not wrong("onejob.core.key", "from . import states\nfrom .states import State")
    assert not wrong("onejob.core.__init__", "from .states import State")
    assert not wrong("onejob.engines.sqlite", "import sqlite3\nfrom onejob.engine import Engine")
    assert not wrong("onejob.client.flow", "from onejob.core.key import Key")
    assert not wrong("onejob.cli", "from onejob.http.app import app")


def test_every_package_has_a_ring() -> None:
    packages = {".".join(module.removesuffix(".__init__").split(".")[:2]) for module, _ in modules()} - {"onejob"}
    report(f"{package} is in no ring" for package in sorted(packages - set().union(*LEVELS)))
    used = {pair for module, tree in modules() for pair in imports_against_the_rings(module, tree)}
    report(f"{pair} is not needed any more" for pair in sorted(AGAINST_THE_RINGS.keys() - used))


def test_one_module_each_reads_the_time_draws_random_numbers_and_reads_the_environment() -> None:
    report(
        f"{module} uses {used}: that is for {owner}"
        for module, tree in modules()
        if not is_inside(module, {OUTSIDE_ACCESS_EXEMPT})
        for owner, names in OUTSIDE_ACCESS.items()
        if module != owner
        for used in sorted(uses_of(tree, names))
    )


def test_an_access_to_the_outside_is_found() -> None:
    def used(owner: str, source: str) -> set[str]:
        return uses_of(ast.parse(source), OUTSIDE_ACCESS[owner])

    assert used("onejob.clock", "from time import monotonic")
    assert used("onejob.clock", "import datetime as dt\ndt.datetime.now(dt.UTC)")
    assert used("onejob.ids", "import os\nos.urandom(8)")
    assert used("onejob.settings", "import os\nos.environ.get('PORT')")
    assert used("onejob.settings", "from os import getenv")

    assert not used("onejob.clock", "from onejob.clock import Clock\nclock.now()")
    assert not used("onejob.clock", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)")


def test_functions_stay_short() -> None:
    report(
        f"{module}.{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    )


def test_a_file_is_an_idea_and_not_a_crumb() -> None:
    importers = defaultdict(set)
    names = {module for module, _ in modules()}
    for module, tree in modules():
        for name in imports(tree, module):
            target = name if name in names else name.rpartition(".")[0]
            importers[target].add(module)
    crumbs = {
        module
        for module, _ in modules()
        if not module.endswith("__init__") and not is_inside(module, ONE_FILE_EACH)
        if len(source_lines(module)) < SMALL_MODULE_LINES and len(importers[module] - {module}) <= 1
    }
    report(
        f"{module} has less than {SMALL_MODULE_LINES} lines and one importer ({', '.join(importers[module])}): move it there"
        for module in sorted(crumbs - set(SMALL_MODULES))
    )
    report(
        f"{module} is no small module with one importer any more: remove its entry"
        for module in set(SMALL_MODULES) - crumbs
    )


def test_every_fast_path_and_cache_is_in_the_table() -> None:
    """A row names a file, what it is called there, and the test that compares it with its twin."""
    text = (ROOT / "docs" / "fast-paths.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    listed = set()
    for first, *_, test in rows:
        path, *names = re.findall(r"`([^`]+)`", first.partition(":")[0])
        source = (SRC / "onejob" / path).read_text(encoding="utf-8")
        assert names, path
        assert all(re.search(rf"\b{name}\b", source) for name in names), first
        assert all((ROOT / name).exists() or (SRC / name).exists() for name in re.findall(r"`(\w+/[^`]+)`", test)), test
        listed |= {(path, name) for name in names}
    pattern = re.compile(r"^\s*(?:async )?(?:def )?(\w+_(?:fast|cached))(?:\(| = )", re.MULTILINE)
    found = {
        (module.relative_to(SRC / "onejob").as_posix(), name)
        for module in SRC.rglob("*.py")
        for name in pattern.findall(module.read_text(encoding="utf-8"))
    }
    assert found <= listed


def test_no_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    report(f"{name} is in {' and '.join(where)}" for name, where in places.items() if len(where) > 1)


def test_no_name_is_private_vocabulary() -> None:
    report(
        f"{module}: {name} is a private word; take the field's own (docs/glossary.md)"
        for module, tree in modules()
        for name in defined_names(module, tree)
        if name.strip("_").lower() in PRIVATE_WORDS
    )


def test_texts_are_plain_english() -> None:
    pages = [path for path in repository_files() if path.suffix == ".md" and path.parent in (ROOT, ROOT / "docs")]
    report(
        f"{path}:{line}: {text[:100]} ({advice})"
        for path in [*sorted(SRC.rglob("*.py")), *pages]
        for line, text in written_lines(path)
        for advice in accents(text)
    )


def test_an_accent_is_found() -> None:
    for wrong in (
        "Who holds a key settles it.",
        "it is hidden; ask who runs it",
        "'x' is no address",
        "write HOST:PORT, as 127.0.0.1:8002",
        "it is opened anew",
    ):
        assert accents(wrong), wrong
    for right in ("who the caller is", "there is no store", "it is no longer there", "the body, as JSON", "as stated"):
        assert not accents(right), right


def test_a_variable_says_what_it_holds() -> None:
    report(
        f"{path.relative_to(SRC)}:{node.lineno}: a variable called {VAGUE_VARIABLE!r}; name what it holds"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Name) and node.id == VAGUE_VARIABLE)
        or (isinstance(node, ast.arg) and node.arg == VAGUE_VARIABLE)
    )


def test_nothing_probes_an_engine() -> None:
    report(
        f"{module} uses runtime_checkable: the seam has no options"
        for module, tree in modules()
        if any(isinstance(node, ast.Name) and node.id == "runtime_checkable" for node in ast.walk(tree))
    )


def test_no_file_names_a_package_registry_or_a_machine() -> None:
    report(
        f"{path.relative_to(ROOT)} names {name}"
        for path in repository_files()
        for name in HOSTS + MACHINE_PATHS
        if name in path.read_text(encoding="utf-8", errors="replace")
    )


def test_only_the_ledger_reaches_the_runtime_of_a_ledger() -> None:
    """Servers, workers and commands ask for it by `runtime_of`; a ledger shows it to nobody."""
    report(
        f"{module}:{node.lineno} reaches the runtime of an object; what is needed is passed in, or asked of `runtime_of`"
        for module, tree in modules()
        if not is_inside(module, {"onejob.ledger", "onejob.runtime"})
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("runtime", "_runtime")
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "onejob"))
    )


def test_a_ledger_has_few_verbs() -> None:
    from onejob import Ledger, sync

    for ledger in (Ledger, sync.SyncLedger):
        names = [name for name in dir(ledger) if not name.startswith("_")]
        assert len(names) <= LEDGER_NAMES_MAX, f"{ledger.__name__} has {len(names)} public names: {names}"


def test_every_word_of_the_glossary_is_defined_once() -> None:
    words = [row[0] for row in glossary()]
    report(f"{word!r} is defined twice" for word in sorted(set(words)) if words.count(word) > 1)
    report(f"{row[0]!r} has no meaning" for row in glossary() if not all(row[:2]))


def test_no_class_is_named_by_a_banned_synonym() -> None:
    defined = {plain(row[0]) for row in glossary()}
    banned = {plain(synonym) for row in glossary() for synonym in row[2].split(",")} - defined
    report(
        f"{module}.{node.name}: the glossary has another word for it"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and plain(node.name) in banned
    )


def report(wrong: Iterator[str]) -> None:
    found = list(wrong)
    assert not found, "\n" + "\n".join(found)


def modules() -> list[tuple[str, ast.Module]]:
    """Every module of the package, by its dotted name."""
    found = [(module_name(path), parsed(path)) for path in sorted(SRC.rglob("*.py"))]
    assert found, "no modules: is this run from a checkout?"
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def source_lines(module: str) -> list[str]:
    return SRC.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8").splitlines()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def defined_names(module: str, tree: ast.Module) -> Iterator[str]:
    yield module.rpartition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    for name in sorted(imports(tree, module)):
        ours = is_inside(name, {"onejob", "tests", "bench"})
        allowed = [may for room, may in ALLOWED_IMPORTS.items() if is_inside(module, {room})]
        forbidden = [may_not for room, may_not in FORBIDDEN_IMPORTS.items() if is_inside(module, {room})]
        wrong = ours and not all(is_inside(name, may) for may in allowed)
        wrong |= any(is_inside(name, may_not) for may_not in forbidden)
        wrong |= ours and goes_outwards(module, name) and not is_excepted(module, name)
        wrong |= not ours and is_inside(module, {"onejob.core"}) and not is_inside(name, CORE_LIBRARIES)
        if wrong:
            yield f"{module} imports {name}"


def level_of(module: str) -> int:
    """The innermost level of the outermost package; a package of no level is outside of all, and so is `onejob` itself."""
    found = [number for number, level in enumerate(LEVELS) if is_inside(module, level)]
    return max(found, default=len(LEVELS))


def goes_outwards(module: str, name: str) -> bool:
    """`import onejob` is for the doors and what is outside of them."""
    target = "onejob.cli" if name == "onejob" else name
    return level_of(target) > level_of(module)


def is_excepted(module: str, name: str) -> bool:
    return any(is_inside(module, {source}) and is_inside(name, {target}) for source, target in AGAINST_THE_RINGS)


def imports_against_the_rings(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for name in imports(tree, module):
        if is_inside(name, {"onejob"}) and goes_outwards(module, name):
            yield from (
                (source, target)
                for source, target in AGAINST_THE_RINGS
                if is_inside(module, {source}) and is_inside(name, {target})
            )


def imports(tree: ast.Module, module: str = "") -> set[str]:
    """Full dotted names: `from a import b` is a.b, and relative imports are resolved."""
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


def uses_of(tree: ast.Module, names: set[str]) -> set[str]:
    dotted = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = {name for name in dotted if any(f".{name}".endswith(f".{one}") for one in names if "." in one)}
    return used | {name for name in imports(tree) if is_inside(name, names)}


def accents(text: str) -> list[str]:
    return [advice for pattern, advice in ACCENT.items() if re.search(pattern, text, re.MULTILINE)]


def written_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page; of a module those of its texts and comments."""
    text = path.read_text(encoding="utf-8")
    if not accents(text):  # most files: reading tokens is slow
        return
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from enumerate(token.string.splitlines(), token.start[0])


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


def plain(word: str) -> str:
    """IdempotencyKey, `idempotency_key` and "idempotency key" are one word."""
    return re.sub(r"[\W_]+", "", word).lower()
