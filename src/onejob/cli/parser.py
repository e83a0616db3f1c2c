"""The words of the command: every argument, its help, an example for each command."""

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Protocol

from onejob.core.credentials import Role
from onejob.core.limits import LIMIT_MAX, CostAction, Period
from onejob.core.states import Delivery, JobState
from onejob.engine import PAGE_MAX
from onejob.ledger.opening import URL_DEFAULT

from . import demo, jobs, serve
from .exit_codes import EXIT_CODE_MEANINGS
from .values import parse_duration, parse_label, parse_time

# The words of `quota`, `usage` and `reservations`.


MakeCommand = Callable[[Any, str, str, str], ArgumentParser]


def add_quota_commands(commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]) -> None:
    _add_quota(commands, make_command, add_target)
    command = make_command(commands, "usage", "Show what a user holds, spends and may.", "onejob usage --user 42")
    command.add_argument("--user", metavar="NAME", help="whose; default: the own")
    add_target(command)
    _add_reservations(commands, make_command, add_target)


def _add_quota(commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]) -> None:
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
    one.add_argument("--default", dest="half", action="store_const", const="default", help="of users without their own")
    one.add_argument("--ceiling", dest="half", action="store_const", const="ceiling", help="above which nobody's reach")


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


def _add_reservations(commands: Any, make_command: MakeCommand, add_target: Callable[[ArgumentParser], None]) -> None:
    group = make_command(
        commands,
        "reservations",
        "List reservations, and release them.",
        "onejob reservations list --user 42",
    )
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    listing = make_command(acts, "list", "List reservations, oldest first.", "onejob reservations list --user 42")
    listing.add_argument("--user", metavar="NAME", help="whose; default: the own")
    add_target(listing)
    release = make_command(acts, "release", "Free a slot.", "onejob reservations release ID")
    release.add_argument("id", metavar="ID", help="as `onejob reservations list` shows it")
    add_target(release)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= LIMIT_MAX):
        raise ArgumentTypeError(f"{text!r} is no limit; write a whole number from 0 to {LIMIT_MAX}")
    return int(text)


PAGE_DEFAULT = 20
TARGET_GROUP = "where and how"
_ENGINE_HELP = f"work on this engine; default: ONEJOB_ENGINE, else {URL_DEFAULT}"
_TENANT_HELP = "on an engine: whose jobs and keys; default: default"
_JSON_HELP = "answer in JSON, for machines"

DESCRIPTION = "One logical submission makes one job, however often it is repeated."
EPILOG = """\
The commands work on an engine (--engine) or against a server (--url); all take --json.

exit codes:
""" + "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODE_MEANINGS.items())


class Subparsers(Protocol):
    """What takes subcommands."""

    def add_parser(self, name: str, **options: Any) -> ArgumentParser: ...


def build_parser() -> ArgumentParser:
    parser = _make_parser(ArgumentParser, prog="onejob", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"onejob {version('onejob')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    _add_serve(commands)
    _add_worker_and_demo(commands)
    _add_submit(commands)
    _add_job_commands(commands)
    jobs.add_outcome_commands(commands, _add_command, _add_target_arguments)
    _add_key_commands(commands)
    _add_client_commands(commands)
    add_quota_commands(commands, _add_command, _add_target_arguments)
    _add_api_key_commands(commands)
    _add_webhook_secret_commands(commands)
    _add_doctor(commands)
    _add_migrate(commands)
    return parser


def _add_serve(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "serve",
        "Serve the HTTP interface.",
        "onejob serve --port 8001 --engine sqlite:///onejob.db",
    )
    serve.add_serve_arguments(command)
    serve.add_embedded_worker_arguments(command)


def _add_worker_and_demo(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "worker",
        "Run jobs with the handlers of an app.",
        "onejob worker shop.jobs:app --concurrency 20",
    )
    serve.add_worker_arguments(command)
    command = _add_command(
        commands,
        "demo",
        "Submit through a bad network, and see one job and one result for each order.",
        "onejob demo --jobs 100",
    )
    demo.add_demo_arguments(command)


def _add_submit(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "submit",
        "Submit a job, or get the one that the key already made.",
        """onejob submit charge --key charge-ORD-123 --input '{"order": "ORD-123", "amount": 42}'""",
    )
    command.add_argument("type", metavar="TYPE", help="the type of the job")
    command.add_argument(
        "--input", default="null", metavar="JSON", help="the input: JSON, @file, or - for standard input"
    )
    command.add_argument("--key", help="one key per intended job, the same on every retry")
    command.add_argument("--scope", help="the namespace of the key; default: the job type")
    command.add_argument("--client", metavar="ID", help="whose sequence this is the next number of")
    command.add_argument("--sequence", type=int, metavar="N", help="the number; with --client, --scope and --key")
    command.add_argument("--ttl", type=parse_duration, metavar="LENGTH", help="the window of the key; default: 24h")
    command.add_argument("--priority", type=int, default=0, metavar="N", help="higher runs earlier; default: 0")
    command.add_argument("--run-at", type=parse_time, metavar="TIME", help="not before, as 2030-01-31T12:00:00Z")
    command.add_argument(
        "--label", type=parse_label, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    command.add_argument(
        "--delivery",
        choices=_choices(Delivery),
        default=Delivery.AT_LEAST_ONCE.value,
        metavar="WORD",
        help=f"{' or '.join(Delivery)}; default: %(default)s",
    )
    command.add_argument("--cost", metavar="AMOUNT", help="what it is estimated to cost, as 12.50")
    command.add_argument("--reservation", metavar="ID", help="a slot that was reserved for it")
    jobs.add_ci_arguments(command)
    _add_target_arguments(command)


def _add_job_commands(commands: Subparsers) -> None:
    example = "onejob {} 01a1e305-b1fa-7420-b68b-a05f87952eb0"
    for name, text in (("job", "Show a job."), ("cancel", "Cancel a job that has not ended.")):
        command = _add_command(commands, name, text, example.format(name))
        command.add_argument("id", metavar="ID", help="the id of the job")
        if name == "job":
            command.add_argument("--wait", action="store_true", help="until it has ended")
        _add_target_arguments(command)
    command = _add_command(commands, "jobs", "List jobs, newest first.", "onejob jobs --state failed --limit 50")
    command.add_argument("--state", choices=_choices(JobState), metavar="STATE", help=f"one of {', '.join(JobState)}")
    command.add_argument("--type", metavar="TYPE", help="only jobs of this type")
    command.add_argument("--user", metavar="NAME", help="only jobs of this user")
    _add_paging_arguments(command)
    _add_target_arguments(command)


def _add_key_commands(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "explain",
        "Tell the story of a key: who used it first, its job, its duplicates, its window.",
        "onejob explain charge-ORD-123 --scope charge",
    )
    command.add_argument("key", metavar="KEY", help="as it was submitted")
    command.add_argument("--scope", required=True, help="the job type, unless the submission named another scope")
    command.add_argument("--user", metavar="NAME", help="whose key, where each user has its own")
    _add_target_arguments(command)
    command = _add_command(commands, "keys", "List the keys that are remembered.", "onejob keys --scope charge")
    command.add_argument("--scope", help="only keys of this scope")
    command.add_argument("--user", metavar="NAME", help="only keys that this user was the first to use")
    _add_paging_arguments(command)
    _add_target_arguments(command)


def _add_client_commands(commands: Subparsers) -> None:
    example = "onejob client state host1:billing --scope acme"
    group = _add_command(commands, "client", "Look at a client that counts its submissions.", example)
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    state = _add_command(acts, "state", "Show how far a client's sequence is.", example)
    state.add_argument("client", metavar="ID", help="the id of the client")
    state.add_argument("--scope", required=True, help="in which it counts")
    _add_target_arguments(state)


def _add_api_key_commands(commands: Subparsers) -> None:
    group = _add_command(
        commands,
        "apikey",
        "Make, list, rotate and revoke the API keys of a tenant, on its engine.",
        "onejob apikey create ci --tenant acme --role submitter",
    )
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    create = _add_command(
        acts,
        "create",
        "Make an API key. Its secret is printed once.",
        "onejob apikey create ci --role submitter",
    )
    create.add_argument("name", metavar="NAME", help="who the key is: its actor is client:NAME")
    create.add_argument("--user", help="the user whose jobs and quotas are meant; default: the name")
    create.add_argument(
        "--role",
        action="append",
        choices=_choices(Role),
        metavar="ROLE",
        help=f"{', '.join(Role)}; may be repeated; default: {Role.SUBMITTER}",
    )
    _add_engine_arguments(create)
    listing = _add_command(acts, "list", "List the API keys of a tenant.", "onejob apikey list --tenant acme")
    _add_engine_arguments(listing)
    rotate = _add_command(
        acts, "rotate", "Give an API key a new secret.", "onejob apikey rotate 5f0c2a9d4b7e --overlap 1h"
    )
    rotate.add_argument(
        "--overlap",
        type=parse_duration,
        default=parse_duration("24h"),
        metavar="LENGTH",
        help="how long the old secret still opens; default: 24h",
    )
    revoke = _add_command(acts, "revoke", "Shut an API key for good.", "onejob apikey revoke 5f0c2a9d4b7e")
    for command in (rotate, revoke):
        command.add_argument("id", metavar="ID", help="as `onejob apikey list` shows it")
        _add_engine_arguments(command)


def _add_webhook_secret_commands(commands: Subparsers) -> None:
    example = "onejob webhook-secret create --tenant acme"
    group = _add_command(commands, "webhook-secret", "Make or change what a tenant's notices are signed with.", example)
    acts = group.add_subparsers(dest="act", required=True, metavar="ACT", title="acts")
    _add_engine_arguments(_add_command(acts, "create", "Make the secret. It is printed once.", example))
    text = "Make a new secret; the one before signs as well, until the next time."
    _add_engine_arguments(_add_command(acts, "rotate", text, "onejob webhook-secret rotate --tenant acme"))


def _add_doctor(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "doctor",
        "Examine a store or a server: is it whole, durable, private, on time; and what to do if not.",
        "onejob doctor --engine sqlite:///onejob.db",
    )
    _add_target_arguments(command)


def _add_migrate(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "migrate",
        "Bring the tables of a store forward to this program, or make them.",
        "onejob migrate --engine postgresql://owner@db.example/onejob",
    )
    where = command.add_argument_group(TARGET_GROUP)
    where.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    where.add_argument("--json", action="store_true", help=_JSON_HELP)


def _choices(kind: type[StrEnum]) -> list[str]:
    """As argparse should show them, should somebody choose another."""
    return [member.value for member in kind]


def _add_paging_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--limit",
        type=_parse_page_size,
        default=PAGE_DEFAULT,
        metavar="N",
        help=f"1 to {PAGE_MAX}; default: %(default)s",
    )
    command.add_argument("--cursor", metavar="TEXT", help="where the page before ended")


def _parse_page_size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= PAGE_MAX):
        raise ArgumentTypeError(f"{text!r} is no size of a page; write a number from 1 to {PAGE_MAX}")
    return int(text)


def _add_target_arguments(command: ArgumentParser) -> None:
    """Where the command works, and for whom."""
    where = command.add_argument_group(TARGET_GROUP)
    one = where.add_mutually_exclusive_group()
    one.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    one.add_argument("--url", metavar="URL", help="ask this server instead, as http://127.0.0.1:8001")
    where.add_argument(
        "--api-key", metavar="KEY", help="for the server; default: ONEJOB_API_KEY, which others cannot see"
    )
    where.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    where.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_engine_arguments(command: ArgumentParser) -> None:
    """A command that no server performs for others."""
    where = command.add_argument_group(TARGET_GROUP)
    where.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    where.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    where.add_argument("--json", action="store_true", help=_JSON_HELP)
    command.set_defaults(url=None, api_key=None)


def _add_command(commands: Subparsers, name: str, text: str, example: str) -> ArgumentParser:
    return _make_parser(commands.add_parser, name, help=text, description=text, epilog=f"example:\n  {example}")


def _make_parser(make: Any, *names: str, **options: Any) -> ArgumentParser:
    # An abbreviation that works today would be another option tomorrow.
    made: ArgumentParser = make(*names, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **options)
    return made
