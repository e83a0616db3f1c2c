"""Print a script that completes commands and options in a shell.

The scripts are static: pressing the tab key starts no Python. zsh runs that of bash through its own `bashcompinit`.
"""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Final

from onejob.cli.exit_codes import DONE
from onejob.cli.parser import build_parser
from onejob.cli.render import write

EXAMPLE = 'eval "$(onejob completion bash)"'
SHELLS: Final = ("bash", "zsh", "fish")

_BASH = """\
# Completion of onejob for bash: source this file, or put it into /etc/bash_completion.d
_onejob() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" path="" words="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${{COMP_WORDS[i]}}" in
            {paths}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$path $prev" in
{values}
    esac
    case "$path" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _onejob onejob
"""
_ZSH = "#compdef onejob\nautoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def run(options: Namespace) -> int:
    write(build_script(build_parser(), options.shell))
    return DONE


def build_script(parser: ArgumentParser, shell: str) -> str:
    if shell == "fish":
        return "\n".join(_fish_lines(parser))
    return (_ZSH if shell == "zsh" else "") + _bash_script(parser)


def _bash_script(parser: ArgumentParser) -> str:
    commands = list(_walk(parser, ()))
    paths = " | ".join(f'"{" ".join(path[:-1])} {path[-1]}"' for path, _ in commands if path)
    values, words, free = list[str](), list[str](), list[str]()
    for path, command in commands:
        name = " ".join(path)
        for action in _visible(command):
            patterns = [f'"{name} {option}"' for option in action.option_strings]
            if patterns and action.nargs != 0 and (choices := " ".join(_choices(action))):
                line = f'COMPREPLY=($(compgen -W "{choices}" -- "$cur")); return ;;'
                values.append(f"        {' | '.join(patterns)}) {line}")
            elif patterns and action.nargs != 0:
                free += patterns
        words.append(f'        "{name}") words="{" ".join(_words(command))}" ;;')
    # A value that only the user knows, or a file: `-o default` completes files where there is no reply.
    values.append(f"        {' | '.join(free)}) COMPREPLY=(); return ;;")
    return _BASH.format(paths=paths, values="\n".join(values), words="\n".join(words))


def _words(command: ArgumentParser) -> Iterator[str]:
    """What may come next: subcommands and choices, then options."""
    for action in _visible(command):
        if not action.option_strings:
            yield from _choices(action)
    for action in _visible(command):
        yield from action.option_strings[-1:]


def _fish_lines(parser: ArgumentParser) -> Iterator[str]:
    yield "# Completion of onejob for fish: put this file into ~/.config/fish/completions/onejob.fish"
    for path, command in _walk(parser, ()):
        below = " ".join(_subcommands(command))
        seen = [f"__fish_seen_subcommand_from {name}" for name in path]
        inside = "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {below}"] if below else [])])
        for action in _visible(command):
            help = _quoted((action.help or "") % vars(action) if not _is_subcommand(action) else "")
            if not action.option_strings:
                for choice in _choices(action):
                    text = _subcommands(command).get(choice, "")
                    yield f"complete -c onejob -f -n {_quoted(inside)} -a {choice} -d {_quoted(text)}"
                continue
            option = action.option_strings[-1].lstrip("-")
            flag = "-l" if action.option_strings[-1].startswith("--") else "-s"
            takes = f" -x -a {_quoted(' '.join(_choices(action)))}" if _choices(action) else " -r"
            value = "" if action.nargs == 0 else takes
            yield f"complete -c onejob -n {_quoted(inside)} {flag} {option}{value} -d {help}"
    yield ""


def _walk(parser: ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ArgumentParser]]:
    yield path, parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action.choices, dict):
            for name, command in action.choices.items():
                yield from _walk(command, (*path, name))


def _visible(parser: ArgumentParser) -> list[Action]:
    return [action for action in parser._actions if action.help is not SUPPRESS]  # noqa: SLF001 - as above


def _is_subcommand(action: Action) -> bool:
    return isinstance(action.choices, dict)


def _subcommands(parser: ArgumentParser) -> dict[str, str]:
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action.choices, dict):
            return {name: command.description or "" for name, command in action.choices.items()}
    return {}


def _choices(action: Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
