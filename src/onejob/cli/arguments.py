"""Arguments that several commands take, and how their values are parsed."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NoReturn

from onejob.core import timestamps
from onejob.core.errors import Invalid
from onejob.core.identity import format_job_id, parse_job_id
from onejob.core.key import checked_key
from onejob.engine import PAGE_MAX
from onejob.ids import new_nonce
from onejob.ledger import URL_DEFAULT
from onejob.worker.worker import CONCURRENCY_DEFAULT

from .exit_codes import USAGE_ERROR

PAGE_DEFAULT = 20
LEASE_DEFAULT = "60s"
TARGET_GROUP = "target and output"
JOB_ID_EXAMPLE = "01a1e305-b1fa-7420-b68b-a05f87952eb0"
ENGINE_HELP = f"work on this engine; default: ONEJOB_ENGINE, else {URL_DEFAULT}"
JSON_HELP = "print JSON"
_TENANT_HELP = "the tenant, on an engine; default: default"


class CommandParser(ArgumentParser):
    usage_error: int = USAGE_ERROR  # the exit code

    def __init__(self, **options: Any) -> None:
        # Without abbreviations: one that works today could mean another option tomorrow.
        super().__init__(formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self.usage_error, f"{self.prog}: error: {message}\n")


def add_command(commands: "_SubParsersAction[CommandParser]", name: str, text: str, example: str) -> CommandParser:
    return commands.add_parser(name, help=text, description=text, epilog=f"example:\n  {example}")


def add_subcommands(command: ArgumentParser, *, required: bool = True) -> "_SubParsersAction[CommandParser]":
    return command.add_subparsers(
        dest="subcommand", required=required, metavar="SUBCOMMAND", title="subcommands", parser_class=CommandParser
    )


def add_target_arguments(command: ArgumentParser) -> None:
    """An engine or a server."""
    target = command.add_argument_group(TARGET_GROUP)
    either = target.add_mutually_exclusive_group()
    either.add_argument("--engine", metavar="URL", help=ENGINE_HELP)
    either.add_argument(
        "--url", metavar="URL", help="work against this server, e.g. http://127.0.0.1:8001; default: ONEJOB_URL"
    )
    target.add_argument(
        "--api-key", metavar="KEY", help="for the server; default: ONEJOB_API_KEY, which other users cannot see"
    )
    target.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    target.add_argument("--json", action="store_true", help=JSON_HELP)


def add_engine_arguments(command: ArgumentParser, *, tenant: bool = True, json: bool = True) -> None:
    """The target of a command that works on an engine only."""
    command.set_defaults(url=None, api_key=None, tenant=None)
    target = command.add_argument_group(TARGET_GROUP)
    target.add_argument("--engine", metavar="URL", help=ENGINE_HELP)
    if tenant:
        target.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    if json:
        target.add_argument("--json", action="store_true", help=JSON_HELP)


def add_listener_arguments(command: ArgumentParser) -> None:
    """Without defaults: an option that is not given may be set by a variable or the file."""
    command.add_argument("--host", help="default: 127.0.0.1; another one needs authentication")
    command.add_argument("--port", type=int, help="default: 8001; 0: any free port")
    command.add_argument(
        "--workers", metavar="N", type=_parse_workers, help="server processes; auto: one per core; default: 1"
    )
    add_tls_arguments(command)
    command.add_argument("--config", metavar="FILE", help="settings in TOML; ONEJOB_* variables override them")


def add_tls_arguments(command: ArgumentParser) -> None:
    command.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM, with its chain)")
    command.add_argument("--tls-key", metavar="FILE", help="the private key of the certificate (PEM)")


def add_log_argument(command: ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print the readiness line and the log in JSON")


def add_concurrency_argument(command: ArgumentParser) -> None:
    command.add_argument(
        "--concurrency",
        type=int,
        default=CONCURRENCY_DEFAULT,
        metavar="N",
        help="how many jobs run at once; default: %(default)s",
    )


def add_paging_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--limit",
        type=_parse_page_size,
        default=PAGE_DEFAULT,
        metavar="N",
        help=f"1 to {PAGE_MAX}; default: %(default)s",
    )
    command.add_argument("--cursor", metavar="TEXT", help="the cursor that the previous page ended with")


def add_job_argument(command: ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="the id of the job")


def job_id(options: Namespace) -> str:
    return format_job_id(parse_job_id(options.id))


def add_verb_key_argument(command: ArgumentParser) -> None:
    command.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="given again with the same job, it changes nothing and gives the same answer; default: a new one",
    )


def verb_key(options: Namespace) -> str:
    """The key of this invocation, so that all attempts to send it are one."""
    return f"cli-{new_nonce()}" if options.idempotency_key is None else checked_key(options.idempotency_key)


def choices(kind: type[StrEnum]) -> list[str]:
    """Plain strings, which argparse shows in its error message."""
    return [member.value for member in kind]


def parse_duration(text: str) -> timedelta:
    """Parse 90s, 30m, 24h or 7d."""
    try:
        return timestamps.parse_duration("duration", text)
    except Invalid as error:
        raise ArgumentTypeError(str(error)) from None


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time with its zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is not a time with a zone; use e.g. 2030-01-31T12:00:00Z")
    return moment


def parse_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is not a label; use NAME=VALUE")
    return name, value


def _parse_workers(text: str) -> int | str:
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a number of processes; use a number, or auto")
    return int(text)


def _parse_page_size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= PAGE_MAX):
        raise ArgumentTypeError(f"{text!r} is not a page size; use a number from 1 to {PAGE_MAX}")
    return int(text)
