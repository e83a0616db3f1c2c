"""Lists of the console: search, a job's details, callbacks, users with their usage, reservations, clients, schedules."""

from typing import TypedDict

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.states import JobState
from onejob.http.request import Request
from onejob.http.responses import Response, json_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.jobs import job_out, key_summary_out
from onejob.http.schemas.listings import (
    CallbacksOut,
    ClientsOut,
    JobDetailsOut,
    ScheduleListOut,
    ScheduleOut,
    SearchOut,
    UserReservationsOut,
    UsersOut,
    callback_job_out,
    client_out,
    job_details_out,
    user_out,
)
from onejob.http.schemas.quotas import reservation_out
from onejob.http.schemas.types import CURSOR, JOB_ID

from .jobs import LIMIT, parse_limit


class PageOptions(TypedDict):
    cursor: str | None
    limit: int


async def search(request: Request) -> Response:
    text = request.query("q").get("q", "")
    if not 1 <= len(text) <= KEY_CHARS_MAX:
        raise Invalid("q", f"q is the id of a job or a key of 1 to {KEY_CHARS_MAX} characters; send one")
    found = await request.ledger.search(text)
    job = None if found.job is None else job_out(found.job)
    return json_response(200, SearchOut(request.id, job, [key_summary_out(one) for one in found.keys]))


async def get_job_details(request: Request) -> Response:
    request.query()
    details = await request.ledger.job_details(request.path_params[0])
    return json_response(200, job_details_out(details, request.id, show_url=_may_see_urls(request)))


async def list_callbacks(request: Request) -> Response:
    query = request.query("state", "cursor", "limit")
    page = await request.ledger.callbacks(
        state=query.get("state"), before=query.get("cursor"), limit=parse_limit(query.get("limit", "100"))
    )
    show_url = _may_see_urls(request)
    return json_response(
        200, CallbacksOut(request.id, [callback_job_out(one, show_url=show_url) for one in page], page.next)
    )


async def list_users(request: Request) -> Response:
    page = await request.ledger.users(**_parse_page(request))
    return json_response(200, UsersOut(request.id, [user_out(one, request.id) for one in page], page.next))


async def list_user_reservations(request: Request) -> Response:
    page = await request.ledger.all_reservations(**_parse_page(request))
    return json_response(200, UserReservationsOut(request.id, [reservation_out(one) for one in page], page.next))


async def list_clients(request: Request) -> Response:
    page = await request.ledger.clients(**_parse_page(request))
    return json_response(200, ClientsOut(request.id, [client_out(one) for one in page], page.next))


async def list_schedules(request: Request) -> Response:
    request.query()
    return json_response(200, ScheduleListOut(request.id, [*await request.ledger.schedules()]))


async def pause_schedule(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    name = await _schedule_name(request)
    return json_response(200, ScheduleOut(request.id, await request.ledger.pause_schedule(name)))


async def resume_schedule(request: Request) -> Response:
    name = await _schedule_name(request)
    return json_response(200, ScheduleOut(request.id, await request.ledger.resume_schedule(name)))


async def _schedule_name(request: Request) -> str:
    request.key()
    request.query()
    await request.require_no_body()
    return request.path_params[0]


def _may_see_urls(request: Request) -> bool:
    return request.credential.may(Permission.INSPECT) and not request.limits.hide_payloads


def _parse_page(request: Request) -> PageOptions:
    query = request.query("cursor", "limit")
    return PageOptions(cursor=query.get("cursor"), limit=parse_limit(query.get("limit", "100")))


_PAGE = (Parameter("cursor", "`next` of the previous page", CURSOR), LIMIT)

ROUTES = (
    Route(
        "GET",
        "/api/search",
        search,
        Permission.READ,
        "Find a job by its id, or a key in all scopes that are known",
        None,
        SearchOut,
        query=(
            Parameter(
                "q",
                "the id of a job, or a key",
                {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
                required=True,
            ),
        ),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/details",
        get_job_details,
        Permission.READ,
        "Get a job with its events, its lease and its callback",
        None,
        JobDetailsOut,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/callbacks",
        list_callbacks,
        Permission.READ,
        "List callbacks, newest first; a page may be short, continue while there is a `next`",
        None,
        CallbacksOut,
        query=(
            Parameter("state", "only callbacks in this state", {"type": "string", "enum": list(JobState)}),
            Parameter("cursor", "`next` of the previous page", JOB_ID),
            LIMIT,
        ),
    ),
    Route(
        "GET",
        "/api/users",
        list_users,
        Permission.OVERSEE,
        "List users with their usage and limits, once limits are set",
        None,
        UsersOut,
        query=_PAGE,
    ),
    Route(
        "GET",
        "/api/users/reservations",
        list_user_reservations,
        Permission.OVERSEE,
        "List the reservations of all users; a page may be short, continue while there is a `next`",
        None,
        UserReservationsOut,
        query=_PAGE,
    ),
    Route(
        "GET",
        "/api/clients",
        list_clients,
        Permission.OVERSEE,
        "List the clients that number their submissions",
        None,
        ClientsOut,
        query=_PAGE,
    ),
    Route(
        "GET",
        "/api/schedules",
        list_schedules,
        Permission.OVERSEE,
        "List the schedules that workers have registered",
        None,
        ScheduleListOut,
    ),
    Route(
        "POST",
        "/api/schedules/{schedule}/pause",
        pause_schedule,
        Permission.RESOLVE,
        "Submit no job of a schedule until it is resumed",
        None,
        ScheduleOut,
        takes_key=True,
        errors=("NOT_FOUND",),
    ),
    Route(
        "POST",
        "/api/schedules/{schedule}/resume",
        resume_schedule,
        Permission.RESOLVE,
        "Submit the jobs of a schedule again; of those that were missed, as many as it catches up",
        None,
        ScheduleOut,
        takes_key=True,
        errors=("NOT_FOUND",),
    ),
)
