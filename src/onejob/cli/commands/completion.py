"""Print a script that completes commands and options in a shell."""

from argparse import ArgumentParser, Namespace
from typing import Final

from onejob.cli.exit_codes import DONE
from onejob.cli.parser import build_parser
from onejob.cli.render import write

EXAMPLE = 'eval "$(onejob completion bash)"'
SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def run(options: Namespace) -> int:
    import shtab  # imported here, because it is optional

    # It is static: pressing the tab key starts no Python.
    write(shtab.complete(build_parser(), options.shell).rstrip("\n"))
    return DONE
