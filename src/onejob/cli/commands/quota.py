"""The commands of administrators: quota, usage, reservations, apikey, webhook-secret and migrate."""

import asyncio
from argparse import Namespace
from collections.abc import Callable

from msgspec import Struct

from onejob.cli.backend import Backend
from onejob.cli.render import Screen, field_lines, sanitize, table_lines
from onejob.core.credentials import Role
from onejob.core.errors import Invalid
from onejob.core.identity import checked_name
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
from onejob.ledger.schedules import ScheduleView
from onejob.sync import SyncApiKeys, SyncLedger
from onejob.webhooks import WebhookSecret, load_secrets


def quota(options: Namespace) -> Callable[[Backend], QuotaOut | TenantQuotaOut]:
    user, half, subcommand = options.user, options.half, options.subcommand
    if (user is None) == (half is None):
        raise Invalid("user", "name a user, or --default or --ceiling; one of them")
    limits = _parse_limits(options) if subcommand == "set" else Limits()
    if subcommand == "set" and limits == Limits():
        raise Invalid("limits", "name a limit to set, or remove all with `onejob quota clear`")
    if user is not None:
        return lambda backend: backend.quota(user) if subcommand == "show" else backend.set_quota(user, limits)
    if subcommand == "show":
        return lambda backend: backend.tenant_quota()
    return lambda backend: backend.set_tenant_quota(half, limits)


def reservations(options: Namespace) -> Callable[[Backend], ReservationsOut | ReservationSettledOut]:
    if options.subcommand == "release":
        return lambda backend: backend.release(options.id)
    return lambda backend: backend.reservations(options.user)


def render_quota(screen: Screen, response: QuotaOut | TenantQuotaOut) -> str:
    if isinstance(response, TenantQuotaOut):
        return "\n".join(
            [
                "default of users without limits of their own",
                *field_lines(screen, _limit_rows(response.default)),
                "ceiling over all users",
                *field_lines(screen, _limit_rows(response.ceiling)),
            ]
        )
    return "\n".join(
        [
            f"limits of {screen.paint('bold', sanitize(response.user))}",
            *field_lines(screen, _limit_rows(response.limits)),
            "in effect, with those of the tenant",
            *field_lines(screen, _limit_rows(response.effective)),
        ]
    )


def render_usage(screen: Screen, response: UsageOut) -> str:
    limits, money = response.limits, response.money
    spent = f"{money.spent.day} this day, {money.spent.week} this week, {money.spent.month} this month"
    rows = [
        (
            "slots",
            f"{_format_used(response.used, limits.max_concurrent)}: {response.live} live, {response.reserved} reserved",
        ),
        ("last hour", _format_used(response.last_hour, limits.jobs_per_hour)),
        ("last day", _format_used(response.last_day, limits.jobs_per_day)),
        ("money", f"{money.held} held, spent {spent}"),
        *(("limit", _format_cost_limit(cost)) for cost in limits.cost_limits),
    ]
    return "\n".join([f"usage of {screen.paint('bold', sanitize(response.user))}", *field_lines(screen, rows)])


def render_reservations(screen: Screen, response: ReservationsOut | ReservationSettledOut) -> str:
    if isinstance(response, ReservationSettledOut):
        return f"{response.state} {response.id}"
    if not response.reservations:
        return "no reservations"
    rows = [
        (one.id, one.state, screen.time(one.expires_at), one.job_id or "", sanitize(one.user))
        for one in response.reservations
    ]
    return "\n".join(table_lines(screen, ("RESERVATION", "STATE", "UNTIL", "JOB", "USER"), rows))


def _parse_limits(options: Namespace) -> Limits:
    cost = None
    if options.cost is not None:
        cost = CostLimit.of(options.cost, options.period, options.action)
    return Limits(options.max_concurrent, options.per_hour, options.per_day, cost)


def _limit_rows(limits: LimitsOut | EffectiveLimitsOut) -> list[tuple[str, str]]:
    counts = {"at a time": limits.max_concurrent, "per hour": limits.jobs_per_hour, "per day": limits.jobs_per_day}
    rows = [(name, str(count)) for name, count in counts.items() if count is not None]
    rows += [("cost", _format_cost_limit(cost)) for cost in _cost_limits(limits)]
    return rows or [("limits", "none")]


def _cost_limits(limits: LimitsOut | EffectiveLimitsOut) -> list[CostLimitOut]:
    if isinstance(limits, EffectiveLimitsOut):
        return limits.cost_limits
    return [] if limits.cost_limit is None else [limits.cost_limit]


def _format_cost_limit(cost: CostLimitOut) -> str:
    return f"{cost.amount} a {cost.period}, then {cost.action}"


def _format_used(used: int, limit: int | None) -> str:
    return f"{used} of {'any number' if limit is None else limit}"


class NewKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView
    secret: str
    store: str


class OneKeyOut(Struct, frozen=True, rename="camel"):
    api_key: ApiKeyView


class ApiKeysOut(Struct, frozen=True, rename="camel"):
    api_keys: list[ApiKeyView]


ApiKeyCommandOut = NewKeyOut | OneKeyOut | ApiKeysOut


def run_apikey(ledger: SyncLedger, options: Namespace, url: str) -> ApiKeyCommandOut:
    keys = SyncApiKeys(ledger)
    match options.subcommand:
        case "create":
            roles = options.role or [Role.SUBMITTER]
            user = "" if options.user is None else checked_name("user", options.user)
            return _new_key_out(keys.create(options.name, roles=roles, user=user), url)
        case "rotate":
            return _new_key_out(keys.rotate(options.id, overlap=options.overlap), url)
        case "revoke":
            return OneKeyOut(keys.revoke(options.id))
    return ApiKeysOut(list(keys.list()))


def render_api_keys(screen: Screen, response: ApiKeyCommandOut) -> str:
    match response:
        case NewKeyOut():
            return "\n".join(
                [
                    *_api_key_lines(screen, response.api_key),
                    *field_lines(screen, [("store", sanitize(response.store))]),
                    "",
                    f"  {screen.paint('bold', response.secret)}",
                    "",
                    "Store it now: only its hash is kept, so it cannot be shown again.",
                ]
            )
        case OneKeyOut():
            return "\n".join(_api_key_lines(screen, response.api_key))
    if not response.api_keys:
        return "no API keys"
    rows = [
        (one.id, sanitize(one.name), sanitize(one.user or ""), ",".join(one.roles), _api_key_status(screen, one))
        for one in response.api_keys
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


def _new_key_out(made: NewKey, url: str) -> NewKeyOut:
    return NewKeyOut(made.key, made.text, redact_password(url))


class WebhookSecretOut(Struct, frozen=True, rename="camel"):
    secret: str


def run_webhook_secret(ledger: SyncLedger, options: Namespace) -> WebhookSecretOut:
    runtime, caller = ledger.async_ledger.runtime, ledger.async_ledger.caller
    has_one = bool(ledger.run(load_secrets(runtime.gate, caller.tenant)))
    if has_one is (options.subcommand == "create"):
        made = "there is one already (the first callback makes one); rotate it"
        other = made if has_one else "there is none yet; create one"
        raise Invalid("webhook-secret", other)
    return WebhookSecretOut(ledger.run(WebhookSecret(runtime, caller).rotate()))


def render_webhook_secret(screen: Screen, response: WebhookSecretOut) -> str:
    advice = "Give it to the receiver of the callbacks; they are also signed with the previous secret."
    return f"{screen.paint('bold', response.secret)}\n\n{advice}"


class SchedulesOut(Struct, frozen=True):
    schedules: list[ScheduleView]


def run_schedules(ledger: SyncLedger, options: Namespace) -> SchedulesOut:
    """Do what is asked, and return all schedules as they are then."""
    match options.subcommand:
        case "pause":
            ledger.pause_schedule(options.name)
        case "resume":
            ledger.resume_schedule(options.name)
        case "delete":
            ledger.delete_schedule(options.name)
    return SchedulesOut(list(ledger.schedules()))


def render_schedules(screen: Screen, response: SchedulesOut) -> str:
    if not response.schedules:
        return "no schedules: a worker registers those of its app when it starts"
    rows = [
        (
            sanitize(one.name),
            sanitize(one.timetable),
            sanitize(one.type),
            str(one.catch_up),
            _schedule_status(screen, one),
        )
        for one in response.schedules
    ]
    return "\n".join(table_lines(screen, ("SCHEDULE", "TICKS", "TYPE", "CATCH UP", "STATUS"), rows))


def _schedule_status(screen: Screen, schedule: ScheduleView) -> str:
    if schedule.paused_at is None:
        return f"active since {screen.time(schedule.since)}"
    return f"paused {screen.time(schedule.paused_at)} by {sanitize(schedule.paused_by or 'somebody')}"


class MigrationOut(Struct, frozen=True, rename="camel"):
    engine: str
    before: int
    schema: int


def run_migrate(url: str) -> MigrationOut:
    before, after = asyncio.run(migrate(url))
    return MigrationOut(redact_password(url), before, after)


def render_migration(_: Screen, response: MigrationOut) -> str:
    if response.before == response.schema:
        return f"{sanitize(response.engine)} has schema {response.schema}, which is the newest"
    return f"{sanitize(response.engine)} was upgraded from schema {response.before} to {response.schema}"
