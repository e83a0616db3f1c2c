"""Reservations over HTTP: take a slot before the work, then submit with it, consume, renew or release it."""

from typing import TypeVar

from onejob.core.identity import slot_tally, tally_id
from onejob.core.roles import Act
from onejob.core.states import SlotState

from .answers import Answer, answer
from .problems import Forbidden
from .quota_wire import (
    ConsumeBody,
    HeldOut,
    MaybeAsked,
    RenewBody,
    RenewedOut,
    ReservationsOut,
    ReserveBody,
    SettledOut,
    held_out,
    reservation_out,
    whole,
)
from .quotas import USER, meant
from .request import Request
from .routes import Route

B = TypeVar("B", bound=MaybeAsked)


async def reserve(request: Request) -> Answer:
    """With a key the same slot is given again while it is held."""
    key = request.key()
    request.query()
    body = await said(request, ReserveBody)
    user = meant(request, body.user)
    most = whole("maxConcurrent", body.max_concurrent)
    held = await request.ledger.hold(user, most, body.ttl_seconds, idempotency_key=key)
    return answer(201, held_out(held, user, request.id))


async def reservations(request: Request) -> Answer:
    user = meant(request, request.query("user").get("user"))
    found = await request.ledger.reservations(user)
    return answer(200, ReservationsOut(request.id, [reservation_out(slot) for slot in found]))


async def consume(request: Request) -> Answer:
    id = _own(request)
    body = await said(request, ConsumeBody)
    await request.ledger.consume_reservation(id, body.job_id)
    return answer(200, SettledOut(request.id, id, SlotState.CONSUMED))


async def release(request: Request) -> Answer:
    id = _own(request)
    await request.no_body()
    await request.ledger.release_reservation(id)
    return answer(200, SettledOut(request.id, id, SlotState.RELEASED))


async def renew(request: Request) -> Answer:
    id = _own(request)
    body = await said(request, RenewBody)
    return answer(
        200, RenewedOut(request.id, id, await request.ledger.renew_reservation(id, body.ttl_seconds))
    )


def _own(request: Request) -> str:
    """The reservation that is named, if it is the caller's own or the caller oversees others."""
    request.key()  # each of these is idempotent by itself
    request.query()
    id, caller = request.path[0], request.credential.caller
    own = slot_tally(caller.tenant, id) == tally_id(caller.tenant, caller.user)
    if not own and not request.credential.may(Act.OVERSEE):
        raise Forbidden("this reservation is another user's; use your own, or ask an operator")
    return id


async def said(request: Request, kind: type[B]) -> B:
    """The body, which may be left out."""
    absent = request.header(b"content-length") in (None, "0")
    if absent and request.header(b"transfer-encoding") is None:
        return kind()
    return await request.decoded(kind)


_LOST = ("FORBIDDEN", "QUOTA_EXCEEDED")

ROUTES = (
    Route(
        "POST",
        "/api/reservations",
        reserve,
        Act.SUBMIT,
        "Take a slot for a while",
        ReserveBody,
        HeldOut,
        201,
        takes_key=True,
        errors=_LOST,
    ),
    Route(
        "GET",
        "/api/reservations",
        reservations,
        Act.READ,
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
        Act.SUBMIT,
        "Turn a slot into that of a job; without one it ends, for the job is counted elsewhere",
        ConsumeBody,
        SettledOut,
        takes_key=True,
        errors=(*_LOST, "NOT_FOUND"),
    ),
    Route(
        "POST",
        "/api/reservations/{reservation}/release",
        release,
        Act.SUBMIT,
        "Free a slot",
        None,
        SettledOut,
        takes_key=True,
        errors=("FORBIDDEN", "ALREADY_SETTLED"),
    ),
    Route(
        "POST",
        "/api/reservations/{reservation}/renew",
        renew,
        Act.SUBMIT,
        "Hold a slot for longer",
        RenewBody,
        RenewedOut,
        takes_key=True,
        errors=_LOST,
    ),
)
