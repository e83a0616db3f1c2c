"""List, pause and resume the schedules of workers."""

from argparse import ArgumentParser, Namespace

from msgspec import Struct

from onejob.cli.arguments import add_command, add_engine_arguments, add_subcommands
from onejob.cli.backend import EngineBackend
from onejob.cli.command import CommandResult, call_engine
from onejob.cli.render import Screen, sanitize, table_lines
from onejob.ledger.schedules import ScheduleView

EXAMPLE = "onejob schedules list"


class SchedulesOut(Struct, frozen=True):
    schedules: list[ScheduleView]


def add_arguments(command: ArgumentParser) -> None:
    subcommands = add_subcommands(command)
    add_engine_arguments(add_command(subcommands, "list", "List the schedules that workers have registered.", EXAMPLE))
    texts = {
        "pause": "Submit no job of a schedule until it is resumed.",
        "resume": "Submit jobs of a schedule again, and as many missed ones as it catches up.",
        "delete": "Forget a schedule that no worker has any more.",
    }
    for name, text in texts.items():
        subcommand = add_command(subcommands, name, text, f"onejob schedules {name} nightly-report")
        subcommand.add_argument("name", metavar="NAME", help="the name that `onejob schedules list` shows")
        add_engine_arguments(subcommand)


def run(options: Namespace) -> CommandResult:
    """Do what is asked, and show all schedules as they are then."""

    def call(engine: EngineBackend) -> SchedulesOut:
        ledger = engine.ledger
        match options.subcommand:
            case "pause":
                ledger.admin.pause_schedule(options.name)
            case "resume":
                ledger.admin.resume_schedule(options.name)
            case "delete":
                ledger.admin.delete_schedule(options.name)
        return SchedulesOut(list(ledger.admin.schedules()))

    return call_engine(options, call, render)


def render(screen: Screen, response: SchedulesOut) -> str:
    if not response.schedules:
        return "no schedules: a worker registers those of its app when it starts"
    rows = [
        (
            sanitize(schedule.name),
            sanitize(schedule.timetable),
            sanitize(schedule.type),
            str(schedule.catch_up),
            _schedule_status(screen, schedule),
        )
        for schedule in response.schedules
    ]
    return "\n".join(table_lines(screen, ("SCHEDULE", "TICKS", "TYPE", "CATCH UP", "STATUS"), rows))


def _schedule_status(screen: Screen, schedule: ScheduleView) -> str:
    if schedule.paused_at is None:
        return f"active since {screen.time(schedule.since)}"
    return f"paused {screen.time(schedule.paused_at)} by {sanitize(schedule.paused_by or 'unknown')}"
