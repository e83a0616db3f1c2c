"""What every `--help` says; where its lines are wrapped and its columns begin is left to argparse."""

import re
from collections.abc import Iterator

import pytest

from onejob.cli import main
from tests.golden.conftest import GoldenCheck

_COMMANDS = re.compile(r"^ {2}([a-z][a-z-]*) {2}", re.MULTILINE)
_SUBCOMMANDS = re.compile(r"^ {4}([a-z][a-z-]*)(?: {2,}.*)?$", re.MULTILINE)


def test_help_of_every_command(
    golden: GoldenCheck, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("NO_COLOR", "1")
    texts = [f"$ onejob {' '.join([*words, '--help'])}\n{text}" for words, text in help_texts(capsys)]
    assert len(texts) > 50
    golden("help.txt", "\n".join(texts))


def help_texts(capsys: pytest.CaptureFixture[str], *words: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The text of a command, and of those that it lists."""
    assert main([*words, "--help"]) == 0
    text = portable_help(capsys.readouterr().out)
    yield words, text
    listed = _SUBCOMMANDS.findall(text.partition("\nsubcommands:\n")[2].partition("\n\n")[0])
    for name in listed if words else _COMMANDS.findall(text):
        yield from help_texts(capsys, *words, name)


def portable_help(text: str) -> str:
    """Each option in a line of its own, two spaces before its meaning: versions of Python lay them out differently."""
    joined = re.sub(r"(?m)^( +\S.*)\n {10,}(?=\S)", r"\1  ", text)
    return re.sub(r"(?<=\S) {2,}", "  ", joined)
