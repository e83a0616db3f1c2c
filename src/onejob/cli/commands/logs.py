"""Print the log lines of a job."""

from argparse import ArgumentParser, Namespace
from typing import Final

from onejob.cli.arguments import JOB_ID_EXAMPLE, add_job_argument, add_target_arguments, job_id
from onejob.cli.backend import Backend
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize, to_json, write
from onejob.clock import SystemClock
from onejob.core.states import ENDED_STATES
from onejob.resources.jobs import LogPage

EXAMPLE = f"onejob logs {JOB_ID_EXAMPLE} --follow"
FOLLOW_SECONDS: Final = 0.5
LOG_PAGE_MAX: Final = 1000


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--follow", action="store_true", help="continue until the job has ended")
    command.add_argument("--offset", type=int, default=0, metavar="N", help="skip this many lines; default: 0")
    add_job_argument(command)
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    """Every page but the last is printed here, as soon as it is received."""
    wanted = job_id(options)

    def follow(backend: Backend) -> LogPage:
        page = backend.logs(wanted, offset=options.offset, limit=LOG_PAGE_MAX)
        while page.next < page.total or (options.follow and page.state not in ENDED_STATES):
            if page.lines:
                write(to_json(page) if options.json else render(Screen.from_stdout(color=False), page))
            else:
                SystemClock().sleep(FOLLOW_SECONDS)
            page = backend.logs(wanted, offset=page.next, limit=LOG_PAGE_MAX)
        return page

    return call_backend(options, follow, render)


def render(_: Screen, response: LogPage) -> str:
    return "\n".join(map(sanitize, response.lines))
