"""Results, logs and resolutions on the command line."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Raw, json

from onejob.clock import SystemClock
from onejob.core.finish import Resolution
from onejob.core.states import ENDED_STATES
from onejob.http.wire import SingleJobOut
from onejob.http.work_wire import LogsOut

from .screen import Screen, sanitize, to_json, write
from .waiting import wait_for_end
from .work_doors import WorkBackend

FOLLOW_SECONDS = 0.5
_EXAMPLE = "onejob {} 01a1e305-b1fa-7420-b68b-a05f87952eb0"


class CommandFactory(Protocol):
    def __call__(self, commands: Any, name: str, text: str, example: str) -> ArgumentParser: ...


def add_outcome_commands(
    commands: Any, make_command: CommandFactory, add_target: Callable[[ArgumentParser], None]
) -> None:
    result = make_command(
        commands, "result", "Print the result of a job, as JSON.", _EXAMPLE.format("result")
    )
    logs = make_command(
        commands, "logs", "Print the log lines of a job.", _EXAMPLE.format("logs") + " --follow"
    )
    logs.add_argument("--follow", action="store_true", help="go on until the job has ended")
    logs.add_argument(
        "--offset", type=int, default=0, metavar="N", help="leave out so many lines; default: 0"
    )
    resolve = make_command(
        commands,
        "resolve",
        "Decide about a lost job, or run a failed one again.",
        _EXAMPLE.format("resolve") + " rerun --note 'the bank never got it'",
    )
    for one in (result, logs, resolve):
        one.add_argument("id", metavar="ID", help="the id of the job")
    resolve.add_argument(
        "resolution",
        choices=[word.value for word in Resolution],
        metavar="WORD",
        help=f"{', '.join(Resolution)}",
    )
    resolve.add_argument("--note", default="", metavar="TEXT", help="why, for its history")
    for one in (result, logs, resolve):
        add_target(one)


def job(options: Namespace) -> Callable[[Any], SingleJobOut]:
    if not options.wait:
        return lambda door: door.job(options.id)
    return lambda door: wait_for_end(door, options.id, timeout=None)


def result(options: Namespace) -> Callable[[WorkBackend], Raw]:
    return lambda door: door.result(options.id)


def resolve(options: Namespace) -> Callable[[WorkBackend], SingleJobOut]:
    return lambda door: door.resolve(options.id, Resolution(options.resolution), options.note)


def logs(options: Namespace) -> Callable[[WorkBackend], LogsOut]:
    """What is there already is printed at once; the answer has the rest."""

    def follow(door: WorkBackend) -> LogsOut:
        page, sleep = door.logs(options.id, options.offset), SystemClock().sleep
        while page.next < page.total or (options.follow and page.state not in ENDED_STATES):
            if page.lines:
                write(to_json(page) if options.json else render_logs(Screen.from_stdout(color=False), page))
            else:
                sleep(FOLLOW_SECONDS)
            page = door.logs(options.id, page.next)
        return page

    return follow


def render_result(screen: Screen, answer: Raw) -> str:
    return "\n".join(map(sanitize, json.format(bytes(answer), indent=2).decode().split("\n")))


def render_logs(screen: Screen, answer: LogsOut) -> str:
    return "\n".join(map(sanitize, answer.lines))
