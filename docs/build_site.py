"""Builds the documentation site, `make site`: lays out the pages in build/pages, then runs MkDocs over them.

The pages are written to be read in the repository, where they link to files outside of docs. Here every file gets its place in
the site, and links are rewritten to it. Nothing of this depends on the generator but `docs/mkdocs.yml`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not worth a dependency

from docs.generate import REFERENCE

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
CONFIG = ROOT / "docs" / "mkdocs.yml"
# Pages and files outside of docs, and where they are in the site.
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
HOME = {"README.md": "index.md", "docs": "index.md"}  # links to them lead home
COPIED_FOLDERS = ("examples", "ops")
COPIED_FILES = ("LICENSE", "Dockerfile", "compose.yaml", "action.yml")
PAGE_SUFFIXES = {".css", ".md", ".png", ".svg"}

_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)")
_INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_OUTSIDE_ASSET = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+\bsrc=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//"""
)


def pages() -> dict[str, str]:
    """Every page and picture: its path in the repository, and its path in the site."""
    found = dict(ROOT_PAGES)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in PAGE_SUFFIXES:
            found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    found |= {f"docs/{name}": name for name in REFERENCE}
    for folder in COPIED_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT).as_posix()
    return found | {name: name for name in COPIED_FILES}


@cache
def page_text(source: str) -> str:
    """A page by its path in the repository; what is made from the code is made now."""
    render = REFERENCE.get(source.removeprefix("docs/"))
    return (ROOT / source).read_text(encoding="utf-8") if render is None else render()


def is_page(source: str) -> bool:
    return source.removeprefix("docs/") in REFERENCE or (ROOT / source).is_file()


def prose_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each line with its number from 0, and whether it is prose: not inside a fenced block."""
    fence = ""
    for number, line in enumerate(text.splitlines()):
        opened = _FENCE.match(line)
        if fence:
            yield number, line, False
            if opened and line.strip() == fence:
                fence = ""
        elif opened:
            fence = opened["ticks"]
            yield number, line, False
        else:
            yield number, line, True


def links(text: str) -> Iterator[str]:
    """The targets of all links and pictures, without those in code."""
    for _, line, is_prose in prose_lines(text):
        if is_prose:
            yield from (found[2] for found in _LINK.finditer(_INLINE_CODE.sub("", line)))


def anchors(text: str) -> list[str]:
    """The anchors of the headings; not of those for which the site and the usual repository hosts make different ones."""
    headings = [line.lstrip("# ") for _, line, is_prose in prose_lines(text) if is_prose and re.match(r"#{1,6} ", line)]
    return [slug(heading) for heading in headings if slug(heading) == host_slug(heading)]


def slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", _without_links(heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def host_slug(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", _without_links(heading)).lower().replace(" ", "-")


def _without_links(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())


def resolve(source: str, target: str) -> str:
    """The path in the repository that a link in the page `source` means."""
    return os.path.normpath(PurePosixPath(source).parent / target).replace(os.sep, "/")


def rewritten(source: str, text: str, places: dict[str, str]) -> str:
    """The page with its links as the site has them."""
    here = PurePosixPath(places[source]).parent

    def place(found: re.Match[str]) -> str:
        path, _, anchor = found[2].partition("#")
        if not path or ":" in path:
            return found[0]
        wanted = resolve(source, path)
        index = f"{wanted}/README.md"
        there = HOME.get(wanted) or places.get(wanted) or places[index]
        linked = os.path.relpath(there, here).replace(os.sep, "/")
        return f"{found[1]}{linked}{'#' if anchor else ''}{anchor}{found[3]}"

    lines = [_outside_code(line, place) if is_prose else line for _, line, is_prose in prose_lines(text)]
    return "\n".join([*lines, ""])


def _outside_code(line: str, place: Callable[[re.Match[str]], str]) -> str:
    pieces, end = [], 0
    for code in _INLINE_CODE.finditer(line):
        inside_link = _LINK.search(line[end:])
        if inside_link and end + inside_link.start() < code.start() < end + inside_link.end():
            continue  # a link whose text is code
        pieces += [_LINK.sub(place, line[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _LINK.sub(place, line[end:])])


def site_config() -> dict[str, Any]:
    """docs/mkdocs.yml, with a page for each decision."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    decisions = [f"decisions/{path.name}" for path in sorted((ROOT / "docs" / "decisions").glob("0*.md"))]
    (explanation,) = (part["Explanation"] for part in config["nav"] if "Explanation" in part)
    for part in explanation:
        if "Decisions" in part:
            part["Decisions"] = [part["Decisions"], *decisions]
    return config


def nav_pages(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            for part in nav.values():
                yield from nav_pages(part)
        case list():
            for part in nav:
                yield from nav_pages(part)


def lay_out(folder: Path) -> None:
    """Write every page into the folder, as the site has it."""
    places = pages()
    for source, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(rewritten(source, page_text(source), places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)


def outside_assets(site: Path) -> list[str]:
    """The pages that would load something from another server."""
    return [str(page) for page in site.rglob("*.html") if _OUTSIDE_ASSET.search(page.read_text(encoding="utf-8"))]


def main() -> None:
    shutil.rmtree(BUILD / "pages", ignore_errors=True)
    lay_out(BUILD / "pages")
    (BUILD / "mkdocs.yml").write_text(json.dumps(site_config()), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--config-file",
        str(BUILD / "mkdocs.yml"),
    ]
    ran = subprocess.run(command, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    if ran.returncode:
        sys.exit(ran.returncode)
    if wrong := outside_assets(BUILD / "site"):
        sys.exit(f"{len(wrong)} pages load something from another server, as {wrong[0]}")
    sys.stdout.write(f"{BUILD / 'site' / 'index.html'}; with search: python3 -m http.server --directory build/site\n")


if __name__ == "__main__":
    main()
