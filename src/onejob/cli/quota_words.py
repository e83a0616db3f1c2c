"""The words of `quota`, `usage` and `reservations`."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from onejob.core.limits import LIMIT_MAX, CostAction, Period

MakeCommand = Callable[[Any, str, str, str], ArgumentParser]


def add_quota_commands(
    commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]
) -> None:
    _add_quota(commands, make_command, add_target)
    command = make_command(
        commands, "usage", "Show what a user holds, spends and may.", "onejob usage --user 42"
    )
    command.add_argument("--user", metavar="NAME", help="whose; default: the own")
    add_target(command)
    _add_reservations(commands, make_command, add_target)


def _add_quota(
    commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]
) -> None:
    group = make_command(
        commands,
        "quota",
        "Set, show and clear the limits of a user, or of a tenant's users.",
        "onejob quota set 42 --max-concurrent 5",
    )
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    texts = {
        "set": (
            "Set limits, instead of those before: what is not named is not limited.",
            "--max-concurrent 5",
        ),
        "show": ("Show limits, and what follows from them.", ""),
        "clear": ("Take limits away.", ""),
    }
    for act, (text, words) in texts.items():
        command = make_command(acts, act, text, f"onejob quota {act} 42 {words}".rstrip())
        _add_quota_owner(command)
        if act == "set":
            _add_limit_arguments(command)
        add_target(command)


def _add_quota_owner(command: ArgumentParser) -> None:
    command.add_argument("user", nargs="?", metavar="USER", help="the user; or one of the next two")
    one = command.add_mutually_exclusive_group()
    one.add_argument(
        "--default", dest="half", action="store_const", const="default", help="of users without their own"
    )
    one.add_argument(
        "--ceiling", dest="half", action="store_const", const="ceiling", help="above which nobody's reach"
    )


def _add_limit_arguments(command: ArgumentParser) -> None:
    counts = {
        "--max-concurrent": "live jobs and reservations at a time; 0: none",
        "--per-hour": "new jobs in any hour",
        "--per-day": "new jobs in any day",
    }
    for name, text in counts.items():
        command.add_argument(name, type=_parse_count, metavar="N", help=text)
    command.add_argument("--cost", metavar="AMOUNT", help="money in a period, as 100 or 12.50")
    command.add_argument(
        "--period",
        choices=list(Period),
        default=Period.MONTH.value,
        metavar="WORD",
        help=f"of --cost: {', '.join(Period)}; default: %(default)s",
    )
    command.add_argument(
        "--action",
        choices=list(CostAction),
        default=CostAction.BLOCK.value,
        metavar="WORD",
        help=f"beyond --cost: {' or '.join(CostAction)}; default: %(default)s",
    )


def _add_reservations(
    commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]
) -> None:
    group = make_command(
        commands,
        "reservations",
        "List reservations, and release them.",
        "onejob reservations list --user 42",
    )
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    listing = make_command(
        acts, "list", "List reservations, oldest first.", "onejob reservations list --user 42"
    )
    listing.add_argument("--user", metavar="NAME", help="whose; default: the own")
    add_target(listing)
    release = make_command(acts, "release", "Free a slot.", "onejob reservations release ID")
    release.add_argument("id", metavar="ID", help="as `onejob reservations list` shows it")
    add_target(release)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= LIMIT_MAX):
        raise ArgumentTypeError(f"{text!r} is no limit; write a whole number from 0 to {LIMIT_MAX}")
    return int(text)
