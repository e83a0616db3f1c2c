"""Create, list, rotate and revoke the credentials of gates, on the engine of their managers."""

from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from typing import Any

from onejob.cli.arguments import parse_duration
from onejob.cli.credentials import CredentialCommands
from onejob.cli.render import sanitize
from onejob.core.errors import Invalid
from onejob.ledger.base import runtime_of
from onejob.manager.gate_keys import GateKeys, GateKeyView, NewGateKey
from onejob.sync import SyncLedger

EXAMPLE = "onejob gatekey create dc1 --engine postgresql://db.example/onejob"


def _add_create_arguments(create: ArgumentParser) -> None:
    create.add_argument("name", metavar="NAME", help="the name of the gate or of its site")
    create.add_argument(
        "--for-tenant", action="append", default=[], metavar="TENANT", help="may be repeated; default: all tenants"
    )
    create.add_argument(
        "--site", action="store_true", help="for another data centre that delivers jobs here, and may do nothing else"
    )
    create.add_argument("--expires", type=parse_duration, metavar="DURATION", help="default: never")


def _open(ledger: SyncLedger) -> GateKeys:
    runtime = runtime_of(ledger.async_ledger)
    if runtime.engine_info.owner is not None:
        raise Invalid("engine", "gate keys are made on the engine of a manager, not through it; name that engine")
    return GateKeys(runtime.gate, runtime.ids, actor=ledger.async_ledger.caller.actor)


def _create(keys: GateKeys, options: Namespace) -> Coroutine[Any, Any, NewGateKey]:
    return keys.create(options.name, tenants=options.for_tenant, lifetime=options.expires, is_site=options.site)


def _fields(key: GateKeyView, _: str) -> list[tuple[str, str]]:
    tenants = ", ".join(map(sanitize, key.tenants)) or "all"
    return [("tenants", f"{tenants} (site)" if key.is_site else tenants)]


COMMANDS = CredentialCommands(
    command="gatekey",
    member="gateKey",
    noun="gate key",
    article="a",
    owner="ledger",
    list_example="onejob gatekey list",
    create_example="onejob gatekey create dc1 --expires 90d",
    add_create_arguments=_add_create_arguments,
    open=_open,
    create=_create,
    fields=_fields,
    advice="Give it to the gates as ONEJOB_GATE_KEY. Only its hash is kept, so it cannot be shown again.",
    is_of_tenant=False,
)
add_arguments, run = COMMANDS.add_arguments, COMMANDS.run
