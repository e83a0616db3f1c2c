"""The command `apikey`: credentials are made where the engine is; a secret is shown once and stored hashed."""

from argparse import Namespace

from msgspec import Struct

from onejob.core.roles import Role
from onejob.credentials import ApiKeys, ApiKeyView, NewKey

from .direct import EngineDoor
from .screen import Screen, clean
from .show import pairs, table


class NewKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView
    secret: str


class OneKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView


class ApiKeysOut(Struct, frozen=True, rename="camel"):
    api_keys: list[ApiKeyView]


AnyOut = NewKeyOut | OneKeyOut | ApiKeysOut


def perform(door: EngineDoor, options: Namespace) -> AnyOut:
    keys = ApiKeys(door.ledger)
    match options.act:
        case "create":
            roles = options.role or [Role.SUBMITTER]
            return _new(door.wait(keys.create(options.name, roles=roles, user=options.user or "")))
        case "rotate":
            return _new(door.wait(keys.rotate(options.id, overlap=options.overlap)))
        case "revoke":
            return OneKeyOut(door.wait(keys.revoke(options.id)))
    return ApiKeysOut(list(door.wait(keys.list())))


def show(screen: Screen, answer: AnyOut) -> str:
    match answer:
        case NewKeyOut():
            return "\n".join(
                [
                    *_shown(screen, answer.api_key),
                    "",
                    f"  {screen.paint('bold', answer.secret)}",
                    "",
                    "Keep it now: it is stored hashed and cannot be shown again.",
                ]
            )
        case OneKeyOut():
            return "\n".join(_shown(screen, answer.api_key))
    if not answer.api_keys:
        return "no API keys"
    rows = [
        (one.id, clean(one.name), clean(one.user or ""), ",".join(one.roles), _status(screen, one))
        for one in answer.api_keys
    ]
    return "\n".join(table(screen, ("ID", "NAME", "USER", "ROLES", "STATUS"), rows))


def _shown(screen: Screen, key: ApiKeyView) -> list[str]:
    rows = [
        ("name", clean(key.name)),
        ("user", clean(key.user or "")),
        ("roles", ", ".join(key.roles)),
        ("status", _status(screen, key)),
    ]
    return [f"API key {screen.paint('bold', key.id)}", *pairs(screen, rows)]


def _status(screen: Screen, key: ApiKeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {screen.time(key.revoked_at)}"
    if key.old_secret_until is not None and key.old_secret_until > screen.now:
        return f"valid, the old secret until {screen.time(key.old_secret_until)}"
    return f"valid since {screen.time(key.rotated_at or key.created_at)}"


def _new(made: NewKey) -> NewKeyOut:
    return NewKeyOut(made.key, made.text)
