"""Show the usage and limits of a user."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, field_lines, sanitize
from onejob.resources.quotas import UsageResponse

from .quota import format_cost_limit

EXAMPLE = "onejob usage --user 42"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--user", metavar="NAME", help="the user; default: yourself")
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    return call_backend(options, lambda backend: backend.usage(options.user), render)


def render(screen: Screen, response: UsageResponse) -> str:
    limits, money = response.limits, response.money
    spent = f"{money.spent.day} this day, {money.spent.week} this week, {money.spent.month} this month"
    rows = [
        (
            "slots",
            f"{_format_used(response.used, limits.max_concurrent)}: {response.live} live, {response.reserved} reserved",
        ),
        ("last hour", _format_used(response.last_hour, limits.jobs_per_hour)),
        ("last day", _format_used(response.last_day, limits.jobs_per_day)),
        ("money", f"{money.held} held, spent {spent}"),
        *(("limit", format_cost_limit(cost)) for cost in limits.cost_limits),
    ]
    return "\n".join([f"usage of {screen.paint('bold', sanitize(response.user))}", *field_lines(screen, rows)])


def _format_used(used: int, limit: int | None) -> str:
    return f"{used} of {'any number' if limit is None else limit}"
