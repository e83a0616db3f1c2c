"""Quotas over HTTP: limits of users and tenants for admins, usage and slot reservations for every user."""

from onejob.core.credentials import Permission
from onejob.core.identity import usage_id, usage_id_of_reservation
from onejob.core.limits import Limits, TenantLimits
from onejob.core.states import SlotState
from onejob.http.problems import Forbidden
from onejob.http.request import Request
from onejob.http.responses import Response, json_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.quotas import (
    ConsumeBody,
    LimitsBody,
    QuotaOut,
    RenewBody,
    ReservationHeldOut,
    ReservationRenewedOut,
    ReservationSettledOut,
    ReservationsOut,
    ReserveBody,
    TenantLimitsBody,
    TenantQuotaOut,
    UsageOut,
    limits_from,
    quota_out,
    reservation_held_out,
    reservation_out,
    tenant_quota_out,
    usage_out,
)
from onejob.http.schemas.types import NAME, to_optional_integer
from onejob.ledger.quotas import user_name


async def get_quota(request: Request) -> Response:
    request.query()
    return json_response(200, quota_out(await request.ledger.quota(request.path_params[0]), request.id))


async def set_quota(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    request.key()
    request.query()
    limits = limits_from(await request.decode_body(LimitsBody))
    return json_response(200, quota_out(await request.ledger.set_quota(request.path_params[0], limits), request.id))


async def clear_quota(request: Request) -> Response:
    request.key()
    request.query()
    await request.require_no_body()
    return json_response(200, quota_out(await request.ledger.set_quota(request.path_params[0], Limits()), request.id))


async def get_tenant_quota(request: Request) -> Response:
    request.query()
    return json_response(200, tenant_quota_out(await request.ledger.tenant_quota(), request.id))


async def set_tenant_quota(request: Request) -> Response:
    request.key()
    request.query()
    body = await request.decode_body(TenantLimitsBody)
    limits = TenantLimits(limits_from(body.default), limits_from(body.ceiling))
    return json_response(200, tenant_quota_out(await request.ledger.set_tenant_quota(limits), request.id))


async def get_usage(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    return json_response(200, usage_out(await request.ledger.usage(user), request.id))


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
    return json_response(201, reservation_held_out(slot, user, request.id))


async def list_reservations(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    slots = await request.ledger.reservations(user)
    return json_response(200, ReservationsOut(request.id, [reservation_out(slot) for slot in slots]))


async def consume(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(ConsumeBody)
    await request.ledger.consume_reservation_or_raise(id, body.job_id)
    return json_response(200, ReservationSettledOut(request.id, id, SlotState.CONSUMED))


async def release(request: Request) -> Response:
    id = _checked_reservation_id(request)
    await request.require_no_body()
    was_known = await request.ledger.release_reservation_or_raise(id)
    return json_response(200, ReservationSettledOut(request.id, id, SlotState.RELEASED, was_known))


async def renew(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(RenewBody)
    return json_response(
        200, ReservationRenewedOut(request.id, id, await request.ledger.renew_reservation(id, body.ttl_seconds))
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
        TenantQuotaOut,
    ),
    Route(
        "PUT",
        "/api/quotas",
        set_tenant_quota,
        Permission.ADMINISTER,
        "Set the default limits of users without their own, and the ceiling for all users",
        TenantLimitsBody,
        TenantQuotaOut,
        takes_key=True,
    ),
    Route("GET", "/api/quotas/{user}", get_quota, Permission.ADMINISTER, "Get the limits of a user", None, QuotaOut),
    Route(
        "PUT",
        "/api/quotas/{user}",
        set_quota,
        Permission.ADMINISTER,
        "Set the limits of a user; they replace earlier ones",
        LimitsBody,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "DELETE",
        "/api/quotas/{user}",
        clear_quota,
        Permission.ADMINISTER,
        "Remove the limits of a user, so that the tenant's defaults hold again",
        None,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/usage",
        get_usage,
        Permission.READ,
        "Get the usage, the spending and the limits of a user",
        None,
        UsageOut,
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
        ReservationHeldOut,
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
        ReservationsOut,
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
        ReservationSettledOut,
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
        ReservationSettledOut,
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
        ReservationRenewedOut,
        takes_key=True,
        errors=_SLOT_ERRORS,
    ),
)
