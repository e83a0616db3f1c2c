"""Lists of the console: search, a job's details, callbacks, users with their usage, reservations, clients, schedules."""

from typing import Annotated, TypedDict

from msgspec import Meta, Raw
from msgspec.structs import replace

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.states import JobState
from onejob.http.request import Request
from onejob.http.responses import Response, encode_with_request_id, json_response, resource_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.types import CURSOR, JOB_ID, ResponseBody
from onejob.ledger.schedules import ScheduleView
from onejob.resources.listings import Callbacks, Clients, JobHistory, SearchResult, UserReservations
from onejob.resources.quotas import LimitsView
from onejob.runtime.quota_views import to_limits_view, to_usage_response

from .jobs import LIMIT, parse_limit


class UserOut(ResponseBody, frozen=True, rename="camel"):
    usage: Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/UsageOut"})]
    limits: LimitsView  # the user's own


class UsersOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    users: list[UserOut]
    next: str | None


class ScheduleListOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    schedules: list[ScheduleView]


class ScheduleOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    schedule: ScheduleView


class PageOptions(TypedDict):
    cursor: str | None
    limit: int


async def search(request: Request) -> Response:
    text = request.query("q").get("q", "")
    if not 1 <= len(text) <= KEY_CHARS_MAX:
        raise Invalid("q", f"q is the id of a job or a key of 1 to {KEY_CHARS_MAX} characters; send one")
    return resource_response(200, await request.ledger.admin.search(text), request.id)


async def get_job_details(request: Request) -> Response:
    request.query()
    details = await request.ledger.admin.job_details(request.path_params[0])
    if details.callback is not None and not _may_see_urls(request):
        details = replace(details, callback=replace(details.callback, url=None))
    return resource_response(200, details, request.id)


async def list_callbacks(request: Request) -> Response:
    query = request.query("state", "cursor", "limit")
    page = await request.ledger.admin.callbacks(
        state=query.get("state"), before=query.get("cursor"), limit=parse_limit(query.get("limit", "100"))
    )
    shown = page if _may_see_urls(request) else [replace(callback, url=None) for callback in page]
    return resource_response(200, Callbacks(shown, page.next), request.id)


async def list_users(request: Request) -> Response:
    page = await request.ledger.admin.users(**_parse_page(request))
    users = [
        UserOut(
            Raw(encode_with_request_id(to_usage_response(user.usage), request.id)),
            to_limits_view(user.limits),
        )
        for user in page
    ]
    return json_response(200, UsersOut(request.id, users, page.next))


async def list_user_reservations(request: Request) -> Response:
    page = await request.ledger.admin.all_reservations(**_parse_page(request))
    return resource_response(200, UserReservations(page, page.next), request.id)


async def list_clients(request: Request) -> Response:
    page = await request.ledger.admin.clients(**_parse_page(request))
    return resource_response(200, Clients(page, page.next), request.id)


async def list_schedules(request: Request) -> Response:
    request.query()
    return json_response(200, ScheduleListOut(request.id, [*await request.ledger.admin.schedules()]))


async def pause_schedule(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    name = await _schedule_name(request)
    return json_response(200, ScheduleOut(request.id, await request.ledger.admin.pause_schedule(name)))


async def resume_schedule(request: Request) -> Response:
    name = await _schedule_name(request)
    return json_response(200, ScheduleOut(request.id, await request.ledger.admin.resume_schedule(name)))


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
        SearchResult,
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
        JobHistory,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/callbacks",
        list_callbacks,
        Permission.READ,
        "List callbacks, newest first; a page may be short, continue while there is a `next`",
        None,
        Callbacks,
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
        UserReservations,
        query=_PAGE,
    ),
    Route(
        "GET",
        "/api/clients",
        list_clients,
        Permission.OVERSEE,
        "List the clients that number their submissions",
        None,
        Clients,
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
