"""Create, list, rotate and revoke the API keys of a tenant, on its engine."""

from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from typing import Any

from onejob.cli.arguments import choices
from onejob.cli.credentials import CredentialCommands
from onejob.cli.render import sanitize
from onejob.core.credentials import Role
from onejob.core.identity import checked_name
from onejob.ledger.api_keys import ApiKeys, ApiKeyView, NewKey
from onejob.sync import SyncLedger

EXAMPLE = "onejob apikey create ci --tenant acme --role submitter"


def _add_create_arguments(create: ArgumentParser) -> None:
    create.add_argument("name", metavar="NAME", help="the name of the key: its actor is client:NAME")
    create.add_argument("--user", help="the user whose jobs and quotas it counts for; default: api_key:NAME")
    create.add_argument(
        "--role",
        action="append",
        choices=choices(Role),
        metavar="ROLE",
        help=f"{', '.join(Role)}; may be repeated; default: {Role.SUBMITTER}",
    )


def _open(ledger: SyncLedger) -> ApiKeys:
    return ApiKeys(ledger.async_ledger)


def _create(keys: ApiKeys, options: Namespace) -> Coroutine[Any, Any, NewKey]:
    user = "" if options.user is None else checked_name("user", options.user)
    return keys.create(options.name, roles=options.role or [Role.SUBMITTER], user=user)


def _fields(key: ApiKeyView, comma: str) -> list[tuple[str, str]]:
    return [("user", sanitize(key.user or "")), ("roles", comma.join(key.roles))]


COMMANDS = CredentialCommands(
    command="apikey",
    member="apiKey",
    noun="API key",
    article="an",
    owner="tenant",
    list_example="onejob apikey list --tenant acme",
    create_example="onejob apikey create ci --role submitter",
    add_create_arguments=_add_create_arguments,
    open=_open,
    create=_create,
    fields=_fields,
    advice="Store it now: only its hash is kept, so it cannot be shown again.",
    shows_store=True,
)
add_arguments, run = COMMANDS.add_arguments, COMMANDS.run
