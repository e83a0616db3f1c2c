"""What the pages print exists: Python compiles and imports, commands and settings parse, paths of the API and files are there."""

import ast
import importlib
import json
import re
import shlex
import tomllib
from argparse import _SubParsersAction
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not worth a dependency

import onejob
from docs import build_site
from onejob import testing
from onejob.cli import parser
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from tests.support.doc_pages import ROOT, Block, blocks_in

PAGES = sorted(name for name in {*build_site.pages(), "README.md"} if name.endswith(".md"))
OPERATORS = {"|", "||", "&&", ";", "&", "(", ")", "{", "}", "do", "then", "in"}
SERVICE_HOSTS = ("127.0.0.1:8001", "localhost:8001")
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def all_blocks() -> list[Block]:
    return [block for name in PAGES for block in blocks_in(name, build_site.page_text(name))]


def check_python(block: Block) -> None:
    tree = compile(block.text, block.page, "exec", flags=ast.PyCF_ONLY_AST | FLAGS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onejob":
            module = importlib.import_module(node.module or "")
            missing = [alias.name for alias in node.names if not _is_in(module, alias.name)]
            assert not missing, f"{node.module} has no {missing}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "onejob":
            assert _is_in(onejob, node.attr), f"onejob has no {node.attr}"


def _is_in(module: Any, name: str) -> bool:
    try:
        return hasattr(module, name) or bool(importlib.import_module(f"{module.__name__}.{name}"))
    except ModuleNotFoundError:
        return False


def check_commands(block: Block) -> None:
    for words in _commands(block.text):
        if words[0].rpartition("/")[2] == "onejob":
            _parse(words[1:])
        elif words[0] == "curl":
            _find_path(words[1:])
        elif words[0] == "make" and len(words) > 1 and words[1].isalpha():
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), words


def _commands(text: str) -> Iterator[list[str]]:
    """Each command of a shell block, split into words, without what is assigned and redirected."""
    for line in text.replace("\\\n", " ").splitlines():
        if "──" in line or "│" in line:
            continue  # a drawing
        try:
            reader = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
            reader.whitespace_split, reader.commenters = True, ""
            words = list(reader)
        except ValueError:
            continue  # a command over several lines, as JSON in quotes
        command: list[str] = []
        for word in [*words, ";"]:
            is_end = word.startswith("#") or word in OPERATORS or set(word) <= set(";&|()")
            if is_end and command:
                yield command
            if word.startswith("#"):
                break
            if is_end:
                command = []
            elif command or not re.match(r"\w+=", word):
                command.append(word)


@cache
def command_parser() -> Any:
    return parser.build_parser()


def _parse(words: list[str]) -> None:
    if ">" in words:
        words = words[: words.index(">")]
    try:
        command_parser().parse_args(words)
    except SystemExit as stopped:
        if stopped.code:
            raise ValueError(f"onejob {shlex.join(words)}") from None


@cache
def service_app() -> HttpApp:
    return HttpApp(testing.open_ledger())


def _find_path(words: list[str]) -> None:
    urls = [word for word in words if any(host in word for host in SERVICE_HOSTS)]
    for url in urls:
        path = url.split("8001", 1)[1].partition("?")[0]
        found = service_app().routes.find(re.sub(r"\$\w+|\{\w+\}", "x", path) or "/")
        sends_body = any(word in words for word in ("-d", "--json", "--data"))
        method = words[words.index("-X") + 1] if "-X" in words else "POST" if sends_body else "GET"
        assert method in (found[0] if found else ()), f"{method} {path}"


def check_json(block: Block) -> None:
    json.loads(block.text)


def check_yaml(block: Block) -> None:
    assert yaml.safe_load(block.text) is not None


def check_toml(block: Block) -> None:
    known = {field.name for field in msgspec.structs.fields(ServiceConfig)}
    assert set(tomllib.loads(block.text)) <= known


def check_text(block: Block) -> None:
    assert block.text.strip()


CHECKS: dict[str, Callable[[Block], None]] = {
    "python": check_python, "sh": check_commands, "": check_commands, "json": check_json, "yaml": check_yaml,
    "toml": check_toml, "sql": check_text, "text": check_text, "pyi": check_text,
    "diff": check_text,  # applied by test_adding_things.py
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_prints_exists(page: str) -> None:
    for block in blocks_in(page, build_site.page_text(page)):
        try:
            CHECKS[block.language](block)
        except Exception as error:
            raise AssertionError(f"{page}:{block.line}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md" and "decisions" not in page])
def test_what_a_page_names_exists(page: str) -> None:
    """Files, commands and public names in the prose; decisions and changes may speak of what is gone."""
    (commands,) = [action for action in command_parser()._actions if isinstance(action, _SubParsersAction)]
    prose = [line for _, line, is_prose in build_site.prose_lines(build_site.page_text(page)) if is_prose]
    for code in re.findall(r"`([^`]+)`", "\n".join(prose)):
        if found := re.match(r"(?:docs|ops|tests|src|examples|bench)/[\w./-]+", code):
            assert (ROOT / found[0].rstrip("./")).exists(), f"{page} names {code}"
        if found := re.match(r"onejob ([a-z][\w-]*)", code):
            assert found[1] in commands.choices, f"{page} names {code}"
        if found := re.match(r"onejob\.([A-Z]\w+)(?!\.)", code):
            assert found[1] in onejob.__all__ or re.match(r"E\d|W\d", found[1]), f"{page} names {code}"


def test_a_block_that_names_what_does_not_exist_is_found() -> None:
    def wrong(language: str, text: str) -> bool:
        try:
            CHECKS[language](Block("page", 1, language, "", text))
        except Exception:  # noqa: BLE001 - whatever it raises, it is found
            return True
        return False

    assert wrong("python", "from onejob import NoSuchThing\n")
    assert wrong("python", "x = onejob.NoSuchThing\n")
    assert wrong("python", "def f(:\n")
    assert wrong("sh", "onejob subnit charge\n")
    assert wrong("", "onejob serve --no-such-option && onejob jobs\n")
    assert wrong("sh", "curl http://127.0.0.1:8001/api/jobz\n")
    assert wrong("sh", "curl -X DELETE http://127.0.0.1:8001/api/jobs\n")
    assert wrong("toml", "no_such_setting = 1\n")
    assert wrong("yaml", "a: [\n")
    assert not wrong("python", "async with onejob.open() as queue:\n    await queue.submit('x')\n")
    assert not wrong("sh", "ONEJOB_PORT=1 onejob serve | cat  # a comment: onejob subnit\n")
    assert not wrong("", "client ── onejob gate (any number) ── onejob manager\n")


def test_every_page_of_the_documentation_is_checked() -> None:
    assert {Path(page).name for page in PAGES} >= {path.name for path in (ROOT / "docs").glob("*.md")}
