"""The command `webhook-secret`: what a tenant's notices are signed with, made where the engine is."""

from argparse import Namespace

from msgspec import Struct

from onejob.core.invalid import Invalid
from onejob.webhooks import WebhookSecret, secrets_of

from .direct import EngineDoor
from .screen import Screen


class SecretOut(Struct, frozen=True, rename="camel"):
    secret: str


def perform(door: EngineDoor, options: Namespace) -> SecretOut:
    ledger = door.ledger
    has_one = bool(door.wait(secrets_of(ledger._gate, ledger._caller.tenant)))
    if has_one is (options.act == "create"):
        other = "there is one already; rotate it" if has_one else "there is none yet; create one"
        raise Invalid("webhook-secret", other)
    return SecretOut(door.wait(WebhookSecret(ledger._host, ledger._caller).rotate()))


def show(screen: Screen, answer: SecretOut) -> str:
    told = "Give it to whoever receives the notices; the one before signs as well."
    return f"{screen.paint('bold', answer.secret)}\n\n{told}"
