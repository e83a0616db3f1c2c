"""Show a client that numbers its submissions."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_command, add_subcommands, add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, field_lines, sanitize
from onejob.core.key import SEQUENCE_MAX
from onejob.resources.submissions import ClientState

EXAMPLE = "onejob client state host1:billing --scope acme"


def add_arguments(command: ArgumentParser) -> None:
    state = add_command(add_subcommands(command), "state", "Show the last committed number of a client.", EXAMPLE)
    state.add_argument("client", metavar="ID", help="the id of the client")
    state.add_argument("--scope", required=True, help="the scope of the sequence")
    add_target_arguments(state)


def run(options: Namespace) -> CommandResult:
    return call_backend(options, lambda backend: backend.client_state(options.client, scope=options.scope), render)


def render(screen: Screen, response: ClientState) -> str:
    last = response.last_committed_sequence
    seen = "never" if response.last_seen is None else screen.time_ago(response.last_seen)
    rows = [
        ("scope", sanitize(response.scope)),
        ("last", str(last)),
        ("next", str(last + 1) if last < SEQUENCE_MAX else "none: choose another client id"),
        ("seen", seen),
    ]
    return "\n".join([f"client {screen.paint('bold', sanitize(response.client_id))}", *field_lines(screen, rows)])
