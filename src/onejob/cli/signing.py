"""The command `webhook-secret`: what a tenant's notices are signed with, made where the engine is."""

from argparse import Namespace

from msgspec import Struct

from onejob.core.invalid import Invalid
from onejob.webhooks import WebhookSecret, load_secrets

from .direct import EngineBackend
from .screen import Screen


class WebhookSecretOut(Struct, frozen=True, rename="camel"):
    secret: str


def run_webhook_secret(backend: EngineBackend, options: Namespace) -> WebhookSecretOut:
    ledger = backend.ledger
    has_one = bool(backend.wait(load_secrets(ledger._gate, ledger._caller.tenant)))
    if has_one is (options.act == "create"):
        other = "there is one already; rotate it" if has_one else "there is none yet; create one"
        raise Invalid("webhook-secret", other)
    return WebhookSecretOut(backend.wait(WebhookSecret(ledger._runtime, ledger._caller).rotate()))


def render_webhook_secret(screen: Screen, answer: WebhookSecretOut) -> str:
    told = "Give it to whoever receives the notices; the one before signs as well."
    return f"{screen.paint('bold', answer.secret)}\n\n{told}"
