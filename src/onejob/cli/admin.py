"""The command `apikey`: credentials are made where the engine is; a secret is shown once and stored hashed."""

import asyncio
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from onejob.core.credentials import Role
from onejob.core.errors import Invalid
from onejob.core.limits import CostLimit, Limits
from onejob.engines import migrate, redact_password
from onejob.http.schemas.quotas import (
    CostLimitOut,
    EffectiveLimitsOut,
    LimitsOut,
    QuotaOut,
    ReservationSettledOut,
    ReservationsOut,
    TenantQuotaOut,
    UsageOut,
)
from onejob.ledger.api_keys import ApiKeyView, NewKey
from onejob.sync import SyncApiKeys
from onejob.webhooks import WebhookSecret, load_secrets

from .backend import Backend, EngineBackend
from .render import Screen, field_lines, sanitize, table_lines

# The command `webhook-secret`: what a tenant's notices are signed with, made where the engine is.


class WebhookSecretOut(Struct, frozen=True, rename="camel"):
    secret: str


def run_webhook_secret(backend: EngineBackend, options: Namespace) -> WebhookSecretOut:
    ledger = backend.ledger.async_ledger
    has_one = bool(backend.ledger.run(load_secrets(ledger.runtime.gate, ledger.caller.tenant)))
    if has_one is (options.act == "create"):
        other = "there is one already; rotate it" if has_one else "there is none yet; create one"
        raise Invalid("webhook-secret", other)
    return WebhookSecretOut(backend.ledger.run(WebhookSecret(ledger.runtime, ledger.caller).rotate()))


def render_webhook_secret(screen: Screen, answer: WebhookSecretOut) -> str:
    told = "Give it to whoever receives the notices; the one before signs as well."
    return f"{screen.paint('bold', answer.secret)}\n\n{told}"


# The command `migrate`: bring the tables of a store forward.


class MigrationOut(Struct, frozen=True, rename="camel"):
    engine: str
    before: int
    schema: int


def run_migrate(url: str) -> MigrationOut:
    before, after = asyncio.run(migrate(url))
    return MigrationOut(redact_password(url), before, after)


def render_migration(_: Screen, answer: MigrationOut) -> str:
    if answer.before == answer.schema:
        return f"{sanitize(answer.engine)} has schema {answer.schema}, which is the newest"
    return f"{sanitize(answer.engine)} was brought from schema {answer.before} to {answer.schema}"


# The commands `quota`, `usage` and `reservations`: what they ask for, and their answers as text for people.


def quota(options: Namespace) -> Callable[[Backend], QuotaOut | TenantQuotaOut]:
    user, half, act = options.user, options.half, options.act
    if (user is None) == (half is None):
        raise Invalid("user", "name a user, or --default or --ceiling; one of them")
    limits = _parse_limits(options) if act == "set" else Limits()
    if act == "set" and limits == Limits():
        raise Invalid("limits", "name a limit to set, or take all away with `onejob quota clear`")
    if user is not None:
        return lambda door: door.quota(user) if act == "show" else door.set_quota(user, limits)
    return lambda door: door.tenant_quota() if act == "show" else door.set_tenant_quota(half, limits)


def usage(options: Namespace) -> Callable[[Backend], UsageOut]:
    return lambda door: door.usage(options.user)


def reservations(options: Namespace) -> Callable[[Backend], ReservationsOut | ReservationSettledOut]:
    if options.act == "release":
        return lambda door: door.release(options.id)
    return lambda door: door.reservations(options.user)


def render_quota(screen: Screen, answer: QuotaOut | TenantQuotaOut) -> str:
    if isinstance(answer, TenantQuotaOut):
        return "\n".join(
            [
                "default of users without their own",
                *field_lines(screen, _limit_rows(answer.default)),
                "ceiling over all users",
                *field_lines(screen, _limit_rows(answer.ceiling)),
            ]
        )
    head = f"limits of {screen.paint('bold', sanitize(answer.user))}"
    lines = [head, *field_lines(screen, _limit_rows(answer.limits))]
    return "\n".join([*lines, "what holds, with the tenant's", *field_lines(screen, _limit_rows(answer.effective))])


def render_usage(screen: Screen, answer: UsageOut) -> str:
    limits, money = answer.limits, answer.money
    spent = ", ".join(f"{amount} this {word}" for word, amount in _spent_by_period(answer))
    rows = [
        (
            "slots",
            f"{_format_used(answer.used, limits.max_concurrent)}: {answer.live} live, {answer.reserved} reserved",
        ),
        ("last hour", _format_used(answer.last_hour, limits.jobs_per_hour)),
        ("last day", _format_used(answer.last_day, limits.jobs_per_day)),
        ("money", f"{money.held} held, spent {spent}"),
        *(("limit", _format_cost_limit(cost)) for cost in limits.cost_limits),
    ]
    return "\n".join([f"usage of {screen.paint('bold', sanitize(answer.user))}", *field_lines(screen, rows)])


def render_reservations(screen: Screen, answer: ReservationsOut | ReservationSettledOut) -> str:
    if isinstance(answer, ReservationSettledOut):
        return f"{answer.state} {answer.id}"
    if not answer.reservations:
        return "no reservations"
    rows = [
        (one.id, one.state, screen.time(one.expires_at), one.job_id or "", sanitize(one.user))
        for one in answer.reservations
    ]
    return "\n".join(table_lines(screen, ("RESERVATION", "STATE", "UNTIL", "JOB", "USER"), rows))


def _parse_limits(options: Namespace) -> Limits:
    cost = None
    if options.cost is not None:
        cost = CostLimit.of(options.cost, options.period, options.action)
    return Limits(options.max_concurrent, options.per_hour, options.per_day, cost)


def _limit_rows(limits: LimitsOut | EffectiveLimitsOut) -> list[tuple[str, str]]:
    counts = {
        "at a time": limits.max_concurrent,
        "per hour": limits.jobs_per_hour,
        "per day": limits.jobs_per_day,
    }
    rows = [(name, str(count)) for name, count in counts.items() if count is not None]
    rows += [("cost", _format_cost_limit(cost)) for cost in _cost_limits(limits)]
    return rows or [("limits", "none")]


def _cost_limits(limits: LimitsOut | EffectiveLimitsOut) -> list[CostLimitOut]:
    if isinstance(limits, EffectiveLimitsOut):
        return limits.cost_limits
    return [] if limits.cost_limit is None else [limits.cost_limit]


def _format_cost_limit(cost: CostLimitOut) -> str:
    return f"{cost.amount} a {cost.period}, then {cost.action}"


def _spent_by_period(answer: UsageOut) -> Iterator[tuple[str, Any]]:
    for word in ("day", "week", "month"):
        yield word, getattr(answer.money.spent, word)


def _format_used(used: int, limit: int | None) -> str:
    return f"{used} of {'any number' if limit is None else limit}"


class NewKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView
    secret: str


class OneKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView


class ApiKeysOut(Struct, frozen=True, rename="camel"):
    api_keys: list[ApiKeyView]


ApiKeyCommandOut = NewKeyOut | OneKeyOut | ApiKeysOut


def run_apikey(backend: EngineBackend, options: Namespace) -> ApiKeyCommandOut:
    keys = SyncApiKeys(backend.ledger)
    match options.act:
        case "create":
            roles = options.role or [Role.SUBMITTER]
            return _new_key_out(keys.create(options.name, roles=roles, user=options.user or ""))
        case "rotate":
            return _new_key_out(keys.rotate(options.id, overlap=options.overlap))
        case "revoke":
            return OneKeyOut(keys.revoke(options.id))
    return ApiKeysOut(list(keys.list()))


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
