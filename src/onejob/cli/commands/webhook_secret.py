"""Create or rotate the secret that signs a tenant's webhook callbacks."""

from argparse import ArgumentParser, Namespace

from msgspec import Struct

from onejob.cli.arguments import add_command, add_engine_arguments, add_subcommands
from onejob.cli.backend import EngineBackend
from onejob.cli.command import CommandResult, call_engine
from onejob.cli.render import Screen
from onejob.core.errors import Invalid
from onejob.ledger.base import runtime_of
from onejob.webhooks import WebhookSecret, load_secrets

EXAMPLE = "onejob webhook-secret create --tenant acme"
_EXISTS = "there is one already (the first callback makes one); rotate it"


class WebhookSecretOut(Struct, frozen=True, rename="camel"):
    secret: str


def add_arguments(command: ArgumentParser) -> None:
    subcommands = add_subcommands(command)
    add_engine_arguments(add_command(subcommands, "create", "Create the secret. It is printed once.", EXAMPLE))
    text = "Create a new secret; callbacks are also signed with the two before it."
    add_engine_arguments(add_command(subcommands, "rotate", text, "onejob webhook-secret rotate --tenant acme"))


def run(options: Namespace) -> CommandResult:
    creates = options.subcommand == "create"

    def call(engine: EngineBackend) -> WebhookSecretOut:
        ledger = engine.ledger
        runtime, caller = runtime_of(ledger.async_ledger), ledger.async_ledger.caller
        exists = bool(ledger.run(load_secrets(runtime.gate, caller.tenant)))
        if exists is creates:
            raise Invalid("webhook-secret", _EXISTS if exists else "there is none yet; create one")
        return WebhookSecretOut(ledger.run(WebhookSecret(runtime, caller).rotate()))

    return call_engine(options, call, render, creates_store=creates)


def render(screen: Screen, response: WebhookSecretOut) -> str:
    advice = "Give it to the receiver of the callbacks; they are also signed with the previous secret."
    return f"{screen.paint('bold', response.secret)}\n\n{advice}"
