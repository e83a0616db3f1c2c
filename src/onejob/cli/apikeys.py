"""The command `apikey`: credentials are made where the engine is; a secret is shown once and stored hashed."""

from argparse import Namespace

from msgspec import Struct

from onejob.core.roles import Role
from onejob.credentials import ApiKeys, ApiKeyView, NewKey

from .direct import EngineBackend
from .screen import Screen, sanitize
from .show import field_lines, table_lines


class NewKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView
    secret: str


class OneKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView


class ApiKeysOut(Struct, frozen=True, rename="camel"):
    api_keys: list[ApiKeyView]


ApiKeyCommandOut = NewKeyOut | OneKeyOut | ApiKeysOut


def run_apikey(backend: EngineBackend, options: Namespace) -> ApiKeyCommandOut:
    keys = ApiKeys(backend.ledger)
    match options.act:
        case "create":
            roles = options.role or [Role.SUBMITTER]
            return _new_key_out(backend.wait(keys.create(options.name, roles=roles, user=options.user or "")))
        case "rotate":
            return _new_key_out(backend.wait(keys.rotate(options.id, overlap=options.overlap)))
        case "revoke":
            return OneKeyOut(backend.wait(keys.revoke(options.id)))
    return ApiKeysOut(list(backend.wait(keys.list())))


def render_api_keys(screen: Screen, answer: ApiKeyCommandOut) -> str:
    match answer:
        case NewKeyOut():
            return "\n".join(
                [
                    *_api_key_lines(screen, answer.api_key),
                    "",
                    f"  {screen.paint('bold', answer.secret)}",
                    "",
                    "Keep it now: it is stored hashed and cannot be shown again.",
                ]
            )
        case OneKeyOut():
            return "\n".join(_api_key_lines(screen, answer.api_key))
    if not answer.api_keys:
        return "no API keys"
    rows = [
        (
            one.id,
            sanitize(one.name),
            sanitize(one.user or ""),
            ",".join(one.roles),
            _api_key_status(screen, one),
        )
        for one in answer.api_keys
    ]
    return "\n".join(table_lines(screen, ("ID", "NAME", "USER", "ROLES", "STATUS"), rows))


def _api_key_lines(screen: Screen, key: ApiKeyView) -> list[str]:
    rows = [
        ("name", sanitize(key.name)),
        ("user", sanitize(key.user or "")),
        ("roles", ", ".join(key.roles)),
        ("status", _api_key_status(screen, key)),
    ]
    return [f"API key {screen.paint('bold', key.id)}", *field_lines(screen, rows)]


def _api_key_status(screen: Screen, key: ApiKeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {screen.time(key.revoked_at)}"
    if key.old_secret_until is not None and key.old_secret_until > screen.now:
        return f"valid, the old secret until {screen.time(key.old_secret_until)}"
    return f"valid since {screen.time(key.rotated_at or key.created_at)}"


def _new_key_out(made: NewKey) -> NewKeyOut:
    return NewKeyOut(made.key, made.text)
