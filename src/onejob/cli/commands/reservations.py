"""List reservations, and release them."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_command, add_subcommands, add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize, table_lines
from onejob.resources.quotas import SlotReservations

EXAMPLE = "onejob reservations list --user 42"


def add_arguments(command: ArgumentParser) -> None:
    subcommands = add_subcommands(command)
    listing = add_command(subcommands, "list", "List reservations, oldest first.", EXAMPLE)
    listing.add_argument("--user", metavar="NAME", help="the user; default: yourself")
    release = add_command(subcommands, "release", "Release a slot.", "onejob reservations release ID")
    release.add_argument("id", metavar="ID", help="the id that `onejob reservations list` shows")
    for subcommand in (listing, release):
        add_target_arguments(subcommand)


def run(options: Namespace) -> CommandResult:
    if options.subcommand == "release":
        return call_backend(
            options, lambda backend: backend.release(options.id), lambda _, settled: f"{settled.state} {settled.id}"
        )
    return call_backend(options, lambda backend: backend.reservations(options.user), render)


def render(screen: Screen, response: SlotReservations) -> str:
    if not response.reservations:
        return "no reservations"
    rows = [
        (slot.id, slot.state, screen.time(slot.expires_at), slot.job_id or "", sanitize(slot.user))
        for slot in response.reservations
    ]
    return "\n".join(table_lines(screen, ("RESERVATION", "STATE", "UNTIL", "JOB", "USER"), rows))
