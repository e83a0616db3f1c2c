"""Quotas over HTTP: limits of users and of the tenant for admins, what is used of them for everybody."""

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
    """Idempotent by itself: a key in the header is accepted and changes nothing."""
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
    """The user that is asked about: whoever asks, or another for those who oversee."""
    own = request.credential.caller.user
    if user is None or user_name(user) == own:
        return own
    if not request.credential.may(Permission.OVERSEE):
        raise Forbidden("this is for yourself only; leave the user out, or ask an operator")
    return user


USER = Parameter("user", "whose; the own unless you oversee others", NAME)

ROUTES = (
    Route(
        "GET",
        "/api/quotas",
        get_tenant_quota,
        Permission.ADMINISTER,
        "Look at the tenant's default and ceiling",
        None,
        TenantQuotaOut,
    ),
    Route(
        "PUT",
        "/api/quotas",
        set_tenant_quota,
        Permission.ADMINISTER,
        "Set the limits of users without their own, and the ceiling over all",
        TenantLimitsBody,
        TenantQuotaOut,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/quotas/{user}",
        get_quota,
        Permission.ADMINISTER,
        "Look at the limits of a user",
        None,
        QuotaOut,
    ),
    Route(
        "PUT",
        "/api/quotas/{user}",
        set_quota,
        Permission.ADMINISTER,
        "Give a user limits of its own, instead of those before",
        LimitsBody,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "DELETE",
        "/api/quotas/{user}",
        clear_quota,
        Permission.ADMINISTER,
        "Let the tenant's default hold for a user again",
        None,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/usage",
        get_usage,
        Permission.READ,
        "See what you hold, spend and may",
        None,
        UsageOut,
        query=(USER,),
        errors=("FORBIDDEN",),
    ),
)


# Reservations over HTTP: take a slot before the work, then submit with it, consume, renew or release it.


async def reserve(request: Request) -> Response:
    """With a key the same slot is given again while it is held."""
    key = request.key()
    request.query()
    body = await request.decode_body(ReserveBody)
    user = resolve_user(request, body.user)
    most = to_optional_integer("maxConcurrent", body.max_concurrent)
    held = await request.ledger.reserve_job_slot_or_raise(user, most, body.ttl_seconds, idempotency_key=key)
    return json_response(201, reservation_held_out(held, user, request.id))


async def list_reservations(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    found = await request.ledger.reservations(user)
    return json_response(200, ReservationsOut(request.id, [reservation_out(slot) for slot in found]))


async def consume(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(ConsumeBody)
    await request.ledger.consume_reservation(id, body.job_id)
    return json_response(200, ReservationSettledOut(request.id, id, SlotState.CONSUMED))


async def release(request: Request) -> Response:
    id = _checked_reservation_id(request)
    await request.require_no_body()
    await request.ledger.release_reservation(id)
    return json_response(200, ReservationSettledOut(request.id, id, SlotState.RELEASED))


async def renew(request: Request) -> Response:
    id = _checked_reservation_id(request)
    body = await request.decode_body(RenewBody)
    return json_response(
        200,
        ReservationRenewedOut(request.id, id, await request.ledger.renew_reservation(id, body.ttl_seconds)),
    )


def _checked_reservation_id(request: Request) -> str:
    """The reservation that is named, if it is the caller's own or the caller oversees others."""
    request.key()  # each of these is idempotent by itself
    request.query()
    id, caller = request.path_params[0], request.credential.caller
    own = usage_id_of_reservation(caller.tenant, id) == usage_id(caller.tenant, caller.user)
    if not own and not request.credential.may(Permission.OVERSEE):
        raise Forbidden("this reservation is another user's; use your own, or ask an operator")
    return id


_SLOT_ERRORS = ("FORBIDDEN", "QUOTA_EXCEEDED")

RESERVATION_ROUTES = (
    Route(
        "POST",
        "/api/reservations",
        reserve,
        Permission.SUBMIT,
        "Take a slot for a while",
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
        "Turn a slot into that of a job; without one it ends, for the job is counted elsewhere",
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
        "Free a slot",
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
        "Hold a slot for longer",
        RenewBody,
        ReservationRenewedOut,
        takes_key=True,
        errors=_SLOT_ERRORS,
    ),
)
