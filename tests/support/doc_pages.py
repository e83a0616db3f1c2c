"""The blocks of a documentation page, and a reader who types them: files are saved, commands are run, outputs are compared."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from threading import Thread, Timer
from typing import NamedTuple

from packaging.requirements import Requirement

from tests.support.postgres_server import free_port

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60
_DONE = "--done--"
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"[\w./]+\.\w+")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def is_file(self) -> bool:
        return _FILE.fullmatch(self.title) is not None


def blocks_of(path: Path) -> list[Block]:
    return blocks_in(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def blocks_in(name: str, text: str) -> list[Block]:
    found = []
    for block in _BLOCK.finditer(text):
        language, _, rest = block["info"].strip().partition(" ")
        title = re.search(r'title="([^"]*)"', rest)
        lines = [line.removeprefix(block["indent"]) for line in block["text"].splitlines()]
        number = text.count("\n", 0, block.start()) + 1
        found.append(Block(name, number, language, title[1] if title else "", "\n".join([*lines, ""])))
    return found


class Reader:
    """Follows a page in an empty folder, with one shell; `Terminal N` is a process that goes on running."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self._folder = folder
        self._ports = ports
        here = os.pathsep.join([str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))])
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {
            "PATH": programs, "PYTHONPATH": here, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "onejob.testing.plugin,pytest_asyncio.plugin",  # the only ones that a reader has
        }  # fmt: skip
        if "8001" in ports:
            self._environment["ONEJOB_PORT"] = str(ports["8001"])  # where `onejob serve` names none
        self._background: dict[str, subprocess.Popen[str]] = {}
        self._shell = self._start("bash", stdin=subprocess.PIPE)

    def close(self) -> None:
        for process in [*self._background.values(), self._shell]:
            _end(process)

    def follow(self, blocks: list[Block]) -> None:
        output = ""
        for block in blocks:
            text = self._with_free_ports(block.text)
            if block.is_file:
                (self._folder / block.title).write_text(text, encoding="utf-8")
            elif block.title.startswith("Terminal"):
                self._run_in_background(block, text)
            elif block.language == "sh":
                output = self._type(block, text)
            elif block.language == "python":
                (self._folder / "program.py").write_text(text, encoding="utf-8")
                output = self._type(block, "python program.py")
            elif block.language == "text":
                assert _matches(self._with_free_ports(block.text), output), f"{block.page}:{block.line}: got\n{output}"

    def _with_free_ports(self, text: str) -> str:
        for printed, port in self._ports.items():
            text = text.replace(printed, str(port))
        return text

    def _start(self, *command: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip

    def _run_in_background(self, block: Block, text: str) -> None:
        """Start it, and wait for its first line: it is ready then."""
        if earlier := self._background.get(block.title):
            _end(earlier)
        command = text.strip().replace("make serve", "onejob serve")  # what it sets up is there
        process = self._background[block.title] = self._start("bash", "-c", f"exec {command}")
        assert process.stdout is not None
        assert process.stdout.readline(), f"{block.page}:{block.line}: it ended at once"
        Thread(target=process.stdout.read, daemon=True).start()  # so that it never waits for its reader

    def _type(self, block: Block, text: str) -> str:
        shell = self._shell
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"{_without_installing(text)}\nprintf '\\n{_DONE}%s\\n' $?\n")
        shell.stdin.flush()
        watchdog = Timer(SECONDS_MAX, os.killpg, (shell.pid, signal.SIGKILL))
        watchdog.start()
        lines: list[str] = []
        for line in shell.stdout:
            if line.startswith(_DONE):
                watchdog.cancel()
                assert line.strip() == f"{_DONE}0", f"{block.page}:{block.line}: {line}{''.join(lines)}"
                break
            lines.append(line)
        else:
            raise TimeoutError(f"{block.page}:{block.line}: {''.join(lines)}")
        output = "".join(lines)
        assert not re.search(r"Traceback|command not found|^usage: ", output, re.MULTILINE), output
        return output


def _without_installing(text: str) -> str:
    """Installing takes longer than the rest of a page, so that what is to be installed is only looked for."""
    if "-m venv" not in text:
        text = text.replace(". .venv/bin/activate\n", "")
    lines = []
    for line in text.replace("-m venv .venv", "-m venv --without-pip .venv").splitlines():
        if line.startswith("pip install "):
            _find_installed([name.removeprefix("../") for name in shlex.split(line)[2:]])
        else:
            lines.append(line)
    return "\n".join(lines)


def _find_installed(names: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for requirement in map(Requirement, names):
        assert metadata.version(requirement.name)
        assert requirement.name != "onejob" or requirement.extras <= set(extras), f"{requirement} has no such extra"


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(SECONDS_MAX)
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            stream.close()


def _matches(printed: str, output: str) -> bool:
    """The printed lines are those of the output; `…` stands for anything, also for several lines, `01a1e9dd-…` for any id."""
    pattern = ".*".join(map(re.escape, re.sub(r"[0-9a-f]{8}-…", "…", printed.strip()).split("…")))
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


@contextmanager
def reading(folder: Path, *ports: str) -> Iterator[Reader]:
    """A reader in this folder, for whom these ports of the page are free ones."""
    reader = Reader(folder, {port: free_port() for port in ports})
    try:
        yield reader
    finally:
        reader.close()
