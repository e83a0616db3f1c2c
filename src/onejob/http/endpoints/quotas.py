"""Quotas over HTTP: limits of users and tenants for admins, usage and slot reservations for every user."""

from typing import Annotated

from msgspec import Meta

from onejob.core.credentials import Permission
from onejob.core.identity import usage_id, usage_id_of_reservation
from onejob.core.limits import CostAction, CostLimit, Limits, Period, TenantLimits
from onejob.core.states import SlotState
from onejob.core.timestamps import to_utc
from onejob.http.problems import Forbidden
from onejob.http.request import Request
from onejob.http.responses import Response, resource_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.types import (
    JOB_ID,
    NAME,
    LimitCount,
    Money,
    Name,
    OptionalRequestBody,
    RequestBody,
    SlotTtlSeconds,
    round_to_micro,
    to_optional_integer,
)
from onejob.ledger.quotas import user_name
from onejob.resources.quotas import (
    QuotaResponse,
    ReservationHeld,
    ReservationRenewed,
    ReservationSettled,
    SlotReservations,
    TenantQuotaResponse,
    UsageResponse,
)
from onejob.runtime.quota_views import to_quota_response, to_tenant_quota_response, to_usage_response

_SLOT_TTL_SECONDS_DEFAULT = 300


class CostLimitBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    amount: Money
    period: Period
    action: CostAction = CostAction.BLOCK


class LimitsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A member that is left out sets no limit."""

    max_concurrent: LimitCount | None = None
    jobs_per_hour: LimitCount | None = None
    jobs_per_day: LimitCount | None = None
    cost_limit: CostLimitBody | None = None


class TenantLimitsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`default` holds for users without limits of their own; `ceiling` bounds the limits of every user."""

    default: LimitsBody = LimitsBody()
    ceiling: LimitsBody = LimitsBody()


class ReserveBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    user: Name | None = None  # default: the caller; another user needs the permission to oversee
    max_concurrent: LimitCount | None = None
    ttl_seconds: SlotTtlSeconds = _SLOT_TTL_SECONDS_DEFAULT


class ConsumeBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    job_id: Annotated[str, Meta(extra_json_schema=JOB_ID)] | None = None


class RenewBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    ttl_seconds: SlotTtlSeconds = _SLOT_TTL_SECONDS_DEFAULT


def limits_from(body: LimitsBody) -> Limits:
    cost = body.cost_limit
    return Limits(
        to_optional_integer("maxConcurrent", body.max_concurrent),
        to_optional_integer("jobsPerHour", body.jobs_per_hour),
        to_optional_integer("jobsPerDay", body.jobs_per_day),
        None if cost is None else CostLimit.of(round_to_micro(cost.amount), cost.period, cost.action),
    )


async def get_quota(request: Request) -> Response:
    request.query()
    return resource_response(200, to_quota_response(await request.ledger.quota(request.path_params[0])), request.id)


async def set_quota(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    request.key()
    request.query()
    limits = limits_from(await request.decode_body(LimitsBody))
    return resource_response(
        200, to_quota_response(await request.ledger.set_quota(request.path_params[0], limits)), request.id
    )


async def clear_quota(request: Request) -> Response:
    request.key()
    request.query()
    await request.require_no_body()
    return resource_response(
        200, to_quota_response(await request.ledger.set_quota(request.path_params[0], Limits())), request.id
    )


async def get_tenant_quota(request: Request) -> Response:
    request.query()
    return resource_response(200, to_tenant_quota_response(await request.ledger.admin.tenant_quota()), request.id)


async def set_tenant_quota(request: Request) -> Response:
    request.key()
    request.query()
    body = await request.decode_body(TenantLimitsBody)
    limits = TenantLimits(limits_from(body.default), limits_from(body.ceiling))
    return resource_response(
        200, to_tenant_quota_response(await request.ledger.admin.set_tenant_quota(limits)), request.id
    )


async def get_usage(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    return resource_response(200, to_usage_response(await request.ledger.usage(user)), request.id)


def resolve_user(request: Request, user: str | None) -> str:
    """The user of a request: the caller, or another one if the caller may oversee."""
    caller = request.credential.caller.user
    if user is None or user_name(user) == caller:
        return caller
    if not request.credential.may(Permission.OVERSEE):
        raise Forbidden("you may ask about yourself only; leave the user out, or ask an operator")
    return user


async def reserve(request: Request) -> Response:
    """A repeated request with the same key gets the same slot while it is held."""
    key = request.key()
    request.query()
    body = await request.decode_body(ReserveBody)
    user = resolve_user(request, body.user)
    max_concurrent = to_optional_integer("maxConcurrent", body.max_concurrent)
    slot = await request.ledger.reserve_job_slot_or_raise(user, max_concurrent, body.ttl_seconds, idempotency_key=key)
    held = ReservationHeld(slot.reservation, user, to_utc(slot.expires_at), slot.warnings)
    return resource_response(201, held, request.id)


async def list_reservations(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    return resource_response(200, SlotReservations(await request.ledger.reservations(user)), request.id)


async def consume(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(ConsumeBody)
    await request.ledger.consume_reservation_or_raise(id, body.job_id)
    return resource_response(200, ReservationSettled(id, SlotState.CONSUMED), request.id)


async def release(request: Request) -> Response:
    id = _checked_reservation_id(request)
    await request.require_no_body()
    was_known = await request.ledger.release_reservation_or_raise(id)
    return resource_response(200, ReservationSettled(id, SlotState.RELEASED, was_known), request.id)


async def renew(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(RenewBody)
    return resource_response(
        200, ReservationRenewed(id, await request.ledger.renew_reservation(id, body.ttl_seconds)), request.id
    )


def _checked_reservation_id(request: Request) -> str:
    """The id of a reservation that belongs to the caller, or to any user if the caller may oversee."""
    request.key()  # consume, release and renew are idempotent by nature
    request.query()
    id, caller = request.path_params[0], request.credential.caller
    is_own = usage_id_of_reservation(caller.tenant, id) == usage_id(caller.tenant, caller.user)
    if not is_own and not request.credential.may(Permission.OVERSEE):
        raise Forbidden("this reservation belongs to another user; use your own, or ask an operator")
    return id


USER = Parameter("user", "default: yourself; others need the permission to oversee", NAME)

ROUTES = (
    Route(
        "GET",
        "/api/quotas",
        get_tenant_quota,
        Permission.ADMINISTER,
        "Get the tenant's default limits and its ceiling",
        None,
        TenantQuotaResponse,
    ),
    Route(
        "PUT",
        "/api/quotas",
        set_tenant_quota,
        Permission.ADMINISTER,
        "Set the default limits of users without their own, and the ceiling for all users",
        TenantLimitsBody,
        TenantQuotaResponse,
        takes_key=True,
    ),
    Route(
        "GET", "/api/quotas/{user}", get_quota, Permission.ADMINISTER, "Get the limits of a user", None, QuotaResponse
    ),
    Route(
        "PUT",
        "/api/quotas/{user}",
        set_quota,
        Permission.ADMINISTER,
        "Set the limits of a user; they replace earlier ones",
        LimitsBody,
        QuotaResponse,
        takes_key=True,
    ),
    Route(
        "DELETE",
        "/api/quotas/{user}",
        clear_quota,
        Permission.ADMINISTER,
        "Remove the limits of a user, so that the tenant's defaults hold again",
        None,
        QuotaResponse,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/usage",
        get_usage,
        Permission.READ,
        "Get the usage, the spending and the limits of a user",
        None,
        UsageResponse,
        query=(USER,),
        errors=("FORBIDDEN",),
    ),
)

_SLOT_ERRORS = ("FORBIDDEN", "QUOTA_EXCEEDED", "ALREADY_SETTLED")

RESERVATION_ROUTES = (
    Route(
        "POST",
        "/api/reservations",
        reserve,
        Permission.SUBMIT,
        "Reserve a slot until a deadline",
        ReserveBody,
        ReservationHeld,
        201,
        takes_key=True,
        errors=_SLOT_ERRORS,
    ),
    Route(
        "GET",
        "/api/reservations",
        list_reservations,
        Permission.READ,
        "List reservations, oldest first",
        None,
        SlotReservations,
        query=(USER,),
        errors=("FORBIDDEN",),
    ),
    Route(
        "POST",
        "/api/reservations/{reservation}/consume",
        consume,
        Permission.SUBMIT,
        "Turn a reserved slot into the slot of a job; without `jobId` the reservation ends",
        ConsumeBody,
        ReservationSettled,
        takes_key=True,
        errors=(*_SLOT_ERRORS, "NOT_FOUND"),
    ),
    Route(
        "POST",
        "/api/reservations/{reservation}/release",
        release,
        Permission.SUBMIT,
        "Release a reserved slot",
        None,
        ReservationSettled,
        takes_key=True,
        errors=("FORBIDDEN", "ALREADY_SETTLED"),
    ),
    Route(
        "POST",
        "/api/reservations/{reservation}/renew",
        renew,
        Permission.SUBMIT,
        "Extend the deadline of a reserved slot",
        RenewBody,
        ReservationRenewed,
        takes_key=True,
        errors=_SLOT_ERRORS,
    ),
)
