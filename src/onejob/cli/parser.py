"""The parser of `onejob`: it finds the commands, and imports only those that are used.

A command is a module or a folder in `commands/`. Its name is what is typed, with `_` for `-`, and with a `_` at the end where
Python has a keyword of that name. It has

- a docstring, whose first line is its text in the help; that is read without importing the command,
- EXAMPLE, a line that can be typed,
- add_arguments(command), and
- run(options), which returns the result to print, or an exit code if it has printed by itself.
"""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Container
from importlib import import_module
from importlib.metadata import version
from keyword import iskeyword
from pathlib import Path
from textwrap import fill
from typing import Final, Protocol, cast

from .arguments import CommandParser, add_command
from .command import CommandResult
from .exit_codes import EXIT_CODE_MEANINGS

FOLDER: Final = Path(__file__).with_name("commands")
# A command that is in no group is listed under the last title.
GROUPS: Final = {
    "everyday commands": ("submit", "job", "jobs", "result", "logs", "cancel", "explain", "serve", "worker"),
    "jobs and keys": ("resolve", "keys", "client", "types", "schedules"),
    "statistics": ("stats", "top", "workers"),
    "limits": ("quota", "usage", "reservations"),
    "credentials": ("apikey", "gatekey", "webhook-secret"),
    "gates, managers and outboxes": ("manager", "gate", "relay"),
    "stores": ("doctor", "settings", "migrate", "backup", "restore", "export", "import"),
    "other commands": ("run-once", "check", "prove", "completion"),
}
_OTHER: Final = "other commands"
_NAME_WIDTH: Final = 18

DESCRIPTION = "One logical submission creates one job, however often it is repeated."
_OPTIONS = """\
options:
  -h, --help        show this help message and exit
  --version         show program's version number and exit"""
EPILOG = """\
The commands work on an engine (--engine) or against a server (--url); most take --json.
run-once, check and prove have exit codes of their own: see their --help.

exit codes:
""" + "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODE_MEANINGS.items())


class CommandModule(Protocol):
    EXAMPLE: str

    def add_arguments(self, command: CommandParser, /) -> None: ...
    def run(self, options: Namespace, /) -> CommandResult | int: ...


class GroupedParser(CommandParser):
    """Its help lists the commands by group."""

    def format_help(self) -> str:
        texts = find_commands()
        others = texts.keys() - {name for names in GROUPS.values() for name in names}
        groups = GROUPS | {_OTHER: (*GROUPS[_OTHER], *sorted(others))}
        lines = [self.format_usage(), DESCRIPTION, "", _OPTIONS]
        for title, names in groups.items():
            lines += ["", f"{title}:", *(_listed(name, texts[name]) for name in names if name in texts)]
        return "\n".join([*lines, "", EPILOG, ""])


def build_parser(used: Container[str] | None = None) -> ArgumentParser:
    """The parser of all commands; or one in which only those that are used have their arguments."""
    parser = GroupedParser(prog="onejob")
    parser.add_argument("--version", action="version", version=f"onejob {version('onejob')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)
    for name, text in find_commands().items():
        if used is not None and name not in used:
            add_command(commands, name, text, "")
            continue
        module = load_command(name)
        command = add_command(commands, name, text, module.EXAMPLE)
        command.set_defaults(run=module.run)
        module.add_arguments(command)
        if used is not None:
            parser.usage_error = command.usage_error
    return parser


def find_commands() -> dict[str, str]:
    """The text of every command in the folder, group by group."""
    texts = {}
    for path in sorted(FOLDER.iterdir()):
        source = path if path.suffix == ".py" else path / "__init__.py"
        if not path.name.startswith("_") and source.is_file():
            text = source.read_text(encoding="utf-8").partition('"""')[2]
            texts[path.stem.rstrip("_").replace("_", "-")] = text.partition("\n")[0].removesuffix('"""')
    order = [name for names in GROUPS.values() for name in names]
    return {name: texts[name] for name in [*order, *texts] if name in texts}


def load_command(name: str) -> CommandModule:
    module = name.replace("-", "_") + ("_" if iskeyword(name) else "")
    return cast("CommandModule", import_module(f"{__package__}.commands.{module}"))


def _listed(name: str, text: str) -> str:
    width = max(shutil.get_terminal_size().columns - 2, 2 * _NAME_WIDTH)
    return fill(f"  {name:<{_NAME_WIDTH}}{text}", width, subsequent_indent=" " * (_NAME_WIDTH + 2))
