"""List the keys that are remembered."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_paging_arguments, add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize, table_lines
from onejob.resources.keys import Keys

EXAMPLE = "onejob keys --scope charge"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--scope", help="only keys of this scope")
    command.add_argument("--user", metavar="NAME", help="only keys that this user was the first to use")
    add_paging_arguments(command)
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    return call_backend(
        options,
        lambda backend: backend.keys(
            scope=options.scope, user=options.user, cursor=options.cursor, limit=options.limit
        ),
        render,
    )


def render(screen: Screen, response: Keys) -> str:
    rows = [
        (
            key.status,
            screen.time(key.expires_at),
            str(key.hits),
            str(key.conflicts),
            key.job.id if key.job else "",
            sanitize(key.scope),
            sanitize(key.key),
        )
        for key in response.keys
    ]
    heads = ("STATUS", "UNTIL", "HITS", "CONFLICTS", "JOB", "SCOPE", "KEY")
    lines = table_lines(screen, heads, rows) if rows else ["no keys"]
    if response.next is not None:
        lines.append(screen.paint("dim", f"more: --cursor {sanitize(response.next)}"))
    return "\n".join(lines)
