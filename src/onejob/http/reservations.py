"""Reservations over HTTP: take a slot before the work, then submit with it, consume, renew or release it."""

from onejob.core.identity import usage_id, usage_id_of_reservation
from onejob.core.roles import Permission
from onejob.core.states import SlotState

from .answers import Response, json_response
from .problems import Forbidden
from .quota_wire import (
    ConsumeBody,
    RenewBody,
    ReservationHeldOut,
    ReservationRenewedOut,
    ReservationSettledOut,
    ReservationsOut,
    ReserveBody,
    reservation_held_out,
    reservation_out,
    to_optional_integer,
)
from .quotas import USER, resolve_user
from .request import Request
from .routes import Route


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
