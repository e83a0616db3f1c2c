"""Writes the pages that follow from the code: `make docs`. A test fails when one is out of date."""

import ast
from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from onejob import settings as environment
from onejob.cli import parser as command_line
from onejob.cli.exit_codes import EXIT_CODE_MEANINGS as EXIT_CODES
from onejob.codes import CODES, ErrorCode
from onejob.core.states import (
    ENDED_STATES,
    IMMUTABLE_STATES,
    JOB_MOVES,
    RECORD_MOVES,
    IdempotencyStatus,
    JobState,
    SlotState,
)
from onejob.http import config as service

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "onejob"
ARCHITECTURE = HERE.parent / "ARCHITECTURE.md"
MAP_BEGIN, MAP_END = "<!-- map -->", "<!-- /map -->"


def states() -> str:
    """Every state and every legal move, as the tables in core/states.py have them."""
    lines = [
        "# States and moves",
        "",
        "Made from `src/onejob/core/states.py` by `make docs`. A move that is not here is refused.",
        "",
        "## Records",
        "",
        "| status | " + " | ".join(IdempotencyStatus) + " |",
        "|---" * (len(IdempotencyStatus) + 1) + "|",
    ]
    for status, record_moves in RECORD_MOVES.items():
        cells = [", ".join(m for m, to in record_moves.items() if to is other) for other in IdempotencyStatus]
        lines.append(f"| **{status}** | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Jobs",
        "",
        "| from | move | to |",
        "|---|---|---|",
    ]
    for state, moves in JOB_MOVES.items():
        lines += [f"| {state} | {move} | {to} |" for move, to in moves.items()]
    lines += [
        "",
        f"Ended (no slot, no worker): {_list(ENDED_STATES)}. Of these, {_list(IMMUTABLE_STATES)} never change again;",
        "a failed or lost job can be run again by an operator.",
        "",
        "## Reservations",
        "",
        f"Active, then {' or '.join(s for s in SlotState if s is not SlotState.ACTIVE)} for good. One that is past",
        "its deadline has expired, whatever it was, and counts nowhere.",
        "",
    ]
    return "\n".join(lines)


def _list(states: frozenset[JobState]) -> str:
    return ", ".join(state for state in JobState if state in states)


def settings() -> str:
    """Every setting, its variable, its default and its meaning."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/onejob/settings.py` and `src/onejob/http/config.py` by `make docs`. An invalid value stops",
        "the program at its start, and the message names it.",
        "",
        "## Keys",
        "",
        "How long the gate waits and remembers: `IdempotencyConfig`, for the library and the service.",
        "",
        *_settings(environment.IdempotencyConfig, environment.MEANINGS, environment.IDEMPOTENCY_PREFIX),
        "",
        "## The service",
        "",
        "`ServiceConfig`, for `onejob serve`: the command line overrides variables, variables override the file that",
        "`--config` names, and the file overrides the defaults. The file is TOML and uses the names below. In a variable,",
        "several values are separated by commas.",
        "",
        *_settings(service.ServiceConfig, service.MEANINGS, environment.SERVICE_PREFIX),
        "",
        "### Bearer tokens",
        "",
        "`JwtConfig`: only in the file, under `[jwt]`.",
        "",
        *_settings(service.JwtConfig, service.JWT_MEANINGS, None),
        "",
        "### Providers",
        "",
        "`ProviderConfig`: only in the file, under `[providers.NAME]` for each. See [cloud.md](cloud.md).",
        "",
        *_settings(service.ProviderConfig, service.PROVIDER_MEANINGS, None),
        "",
        "### Sites",
        "",
        "`SitesConfig` and `SiteConfig`: only in the file, under `[sites]`, and `[sites.ledgers.NAME]` for each of the other",
        "data centres. See [sites.md](sites.md).",
        "",
        *_settings(service.SitesConfig, service.SITES_MEANINGS, None),
        "",
        *_settings(service.SiteConfig, service.SITE_MEANINGS, None),
        "",
        "## The command line",
        "",
        "| variable | meaning |",
        "|---|---|",
    ]
    variables = {
        "engine": "ONEJOB_ENGINE",
        "url": "ONEJOB_URL",
        "api_key": "ONEJOB_API_KEY",
        "window": "ONEJOB_WINDOW",
        "job_retention": "ONEJOB_JOB_RETENTION",
        "gate_key": "ONEJOB_GATE_KEY",
        "tracing": "ONEJOB_TRACING",
        "color": "NO_COLOR",
    }
    lines += [f"| `{variable}` | {environment.MEANINGS[field]} |" for field, variable in variables.items()]
    return "\n".join([*lines, ""])


def _settings(kind: type[msgspec.Struct], meanings: Mapping[str, str], prefix: str | None) -> Iterator[str]:
    """A table of fields; without a prefix there are no variables."""
    heads = ["name", *(["variable"] if prefix else []), "default", "meaning"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for field in msgspec.structs.fields(kind):
        structured = field.name in environment.FILE_ONLY_FIELDS
        variable = "only in the file" if structured else f"`{prefix}{field.name.upper()}`"
        cells = [
            f"`{field.name}`",
            *([variable] if prefix else []),
            _value(field.default),
            meanings[field.name],
        ]
        yield f"| {' | '.join(cells)} |"


def _value(value: Any) -> str:
    match value:
        case None | () | "" | msgspec.NODEFAULT:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return ", ".join(f"`{one}`" for one in value)
        case float() if value.is_integer():
            return f"`{int(value)}`"
    return f"`{value}`"


def command() -> str:
    """Every command with its arguments, as the parser has them."""
    parser = command_line.build_parser()
    lines = [
        "# The command line",
        "",
        "Generated from `src/onejob/cli/parser.py` by `make docs`; `onejob COMMAND --help` prints the same.",
        "",
        "The commands work directly on an engine, or against a server. They print text for people, with colours only on",
        "a terminal. With `--json` they print the response bodies of the HTTP API without the id of the request (`submit`",
        'adds `jobId`), and a failure prints `{"error": {"code", "message", "retryable", "details"}}` in addition to its',
        "line on standard error.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
    ]
    for made in _commands(parser):
        lines += _section(made)
    lines += [
        "",
        "## Target and output",
        "",
        "All commands but `serve`, `worker`, `demo` and `completion` take these; `apikey`, `webhook-secret` and `migrate` work",
        "on an engine only.",
        "",
    ]
    lines += _arguments(_group(dict(_by_name(parser))["onejob submit"], command_line.TARGET_GROUP))
    return "\n".join([*lines, ""])


def errors() -> str:
    """Every error code, as the table in codes.py has it."""
    lines = [
        "# Error codes",
        "",
        "Made from `src/onejob/codes.py` by `make docs`. The `code` of a problem is the contract; titles and",
        "messages are for people.",
        "",
        "- **Client**: what `onejob.Client` does next. `fix`: the same bytes never succeed. `wait`: for `Retry-After`.",
        "- **Settles**: definite even after a lost response: no earlier attempt with this key has created a job.",
        "- **Retry-After**: expected with this code. `retryable` in the body is true exactly when the header is there.",
        "- **Exit code**: of the [command line](cli.md).",
        "",
        "The status of `CONFLICT` is the setting `mismatch_status`. The service does not send the last three:",
        "`KEY_MISSING` and `RESPONSE_NOT_RETAINED` come from the [middleware](middleware.md), and a lost slot is a",
        "`QUOTA_EXCEEDED` with `slotLost` among its details.",
        "",
        "| code | status | title | client | settles | Retry-After | exit code |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_error_row, CODES.values()), ""])


def _error_row(row: ErrorCode) -> str:
    marks = ["yes" if mark else "" for mark in (row.settles, row.retryable)]
    return f"| `{row.code}` | {row.status} | {row.title} | {row.next_action} | {' | '.join(marks)} | {row.exit_code} |"


def _section(made: ArgumentParser) -> Iterator[str]:
    example = (made.epilog or "").removeprefix("example:\n").strip()
    yield from ("", f"## {made.prog}", "", made.description or "", "", "```", example, "```")
    own = [
        action
        for group in made._action_groups
        if group.title != command_line.TARGET_GROUP
        for action in group._group_actions
    ]
    arguments = list(_arguments(own))
    if len(arguments) > 2:
        yield from ("", *arguments)


def _commands(parser: ArgumentParser) -> list[ArgumentParser]:
    """The commands in their order; of one that has acts, these."""
    return [made for _, made in _by_name(parser) if not any(_acts(made))]


def _by_name(parser: ArgumentParser) -> Iterator[tuple[str, ArgumentParser]]:
    for made in _acts(parser):
        yield made.prog, made
        yield from _by_name(made)


def _acts(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    for action in parser._actions:
        if isinstance(action.choices, dict):
            yield from action.choices.values()


def _group(parser: ArgumentParser, title: str) -> list[Action]:
    return [action for group in parser._action_groups if group.title == title for action in group._group_actions]


def _arguments(actions: list[Action]) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in actions:
        if action.dest == "help":
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        word = " ".join(filter(None, [*action.option_strings[:1], value]))
        required = "; required" if action.required and action.option_strings else ""
        yield f"| `{word}` | {(action.help or '') % vars(action)}{required} |"


def architecture() -> str:
    """ARCHITECTURE.md, with the map renewed."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    before, rest = text.split(MAP_BEGIN)
    _, after = rest.split(MAP_END)
    return f"{before}{MAP_BEGIN}\n{module_map()}{MAP_END}{after}"


def module_map() -> str:
    """Every module of the package with the first line of its docstring, by folder."""
    packages: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring, f"{path} has no docstring"
        name = path.relative_to(SOURCE).as_posix()
        first_line = docstring.splitlines()[0].replace("|", "\\|")
        packages.setdefault(Path(name).parent.as_posix(), []).append(f"| `{name}` | {first_line} |")
    parts = [
        f"### {'onejob/' if package == '.' else f'onejob/{package}/'}\n\n| module | |\n|---|---|\n"
        + "\n".join(rows)
        + "\n\n"
        for package, rows in packages.items()
    ]
    return "\n" + "".join(parts)


PAGES = {
    "states.md": states,
    "settings.md": settings,
    "cli.md": command,
    "errors.md": errors,
    "../ARCHITECTURE.md": architecture,
}

if __name__ == "__main__":
    for name, render in PAGES.items():
        (HERE / name).write_text(render(), encoding="utf-8")
