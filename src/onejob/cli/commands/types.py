"""List job types with their jobs; pause or resume one."""

from argparse import ArgumentParser, Namespace
from datetime import timedelta
from typing import Final

from onejob.cli.arguments import add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, format_duration, sanitize, table_lines
from onejob.core.errors import Invalid
from onejob.core.states import JobState
from onejob.resources.operators import TypePaused, Types, TypeView

EXAMPLE = "onejob types pause mail"
_STATES_SHOWN: Final = (JobState.RUNNING, JobState.SCHEDULED, JobState.FAILED, JobState.LOST)


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("act", nargs="?", choices=["pause", "resume"], metavar="ACT", help="pause or resume")
    command.add_argument("type", nargs="?", metavar="TYPE", help="the type whose jobs nobody claims any more, or again")
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    if (options.act is None) != (options.type is None):
        raise Invalid("type", "name an act and a type, e.g. `onejob types pause mail`; or neither, to list all")
    if options.act is None:
        return call_backend(options, lambda backend: backend.types(), render_types)
    if options.act == "pause":
        return call_backend(options, lambda backend: backend.pause_type(options.type), render_pause)
    return call_backend(options, lambda backend: backend.resume_type(options.type), render_pause)


def render_pause(_: Screen, response: TypePaused) -> str:
    rest = "its jobs are accepted and wait" if response.paused else "its jobs are claimed again"
    return f"{sanitize(response.type)} {'is paused' if response.paused else 'runs'}: {rest}, within two seconds"


def render_types(screen: Screen, response: Types) -> str:
    lines = type_lines(screen, response.types) if response.types else ["no types"]
    if response.counted_at is not None:
        lines.append(screen.paint("dim", f"counted {screen.ago(response.counted_at)}"))
    return "\n".join(lines)


def type_lines(screen: Screen, types: list[TypeView]) -> list[str]:
    heads = ("READY", "OLDEST", *(state.upper() for state in _STATES_SHOWN), "DONE/DAY", "PAUSED", "TYPE")
    rows = [
        (
            str(row.ready),
            "" if row.oldest_ready_seconds is None else format_duration(timedelta(seconds=row.oldest_ready_seconds)),
            *(str(row.states.get(state, 0)) for state in _STATES_SHOWN),
            str(sum(row.ended_last_day.values())),
            "" if row.paused_since is None else f"{screen.ago(row.paused_since)} by {sanitize(row.paused_by or '')}",
            sanitize(row.type),
        )
        for row in types
    ]
    return table_lines(screen, heads, rows)
