"""Endpoints for operators: the overview, workers, job types (pause, resume), and one act on many jobs."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.identity import parse_job_id
from onejob.core.states import JobState
from onejob.http.request import Request
from onejob.http.responses import Response, resource_response
from onejob.http.routing import Route
from onejob.http.schemas.types import JOB_ID, LABEL, RequestBody, Timestamp
from onejob.ledger.operators import BulkAction, to_overview_view, to_types
from onejob.ledger.reads import JobFilter
from onejob.resources.operators import BulkResult, OverviewView, TypePaused, Types, Workers

from .jobs import parse_label


class JobFilterBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    state: JobState | UnsetType = UNSET
    type: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    label: Annotated[str, Meta(description="As `name=value`.", extra_json_schema=LABEL)] | UnsetType = UNSET
    created_after: Timestamp | UnsetType = UNSET
    created_before: Timestamp | UnsetType = UNSET


class BulkBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    action: BulkAction
    filter: Annotated[JobFilterBody, Meta(extra_json_schema={"minProperties": 1})]
    cursor: Annotated[str, Meta(extra_json_schema=JOB_ID)] | UnsetType = UNSET
    dry_run: bool = False


async def get_overview(request: Request) -> Response:
    request.query()
    ledger = request.ledger
    overview, paused, stats = (
        await ledger.admin.overview(),
        await ledger.admin.paused_types(),
        ledger.admin.runtime_stats(),
    )
    view = to_overview_view(
        overview, paused, engine=stats.engine, durability=ledger.durability, caveat=stats.durability_warning
    )
    return resource_response(200, view, request.id)


async def list_workers(request: Request) -> Response:
    request.query()
    return resource_response(200, Workers(await request.ledger.admin.workers()), request.id)


async def list_types(request: Request) -> Response:
    request.query()
    overview, paused = await request.ledger.admin.overview(), await request.ledger.admin.paused_types()
    return resource_response(200, to_types(overview, paused), request.id)


async def pause_type(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    return await _set_paused(request, paused=True)


async def resume_type(request: Request) -> Response:
    return await _set_paused(request, paused=False)


async def _set_paused(request: Request, *, paused: bool) -> Response:
    request.key()
    request.query()
    await request.require_no_body()
    (type,) = request.path_params
    await (request.ledger.admin.pause_type(type) if paused else request.ledger.admin.resume_type(type))
    return resource_response(200, TypePaused(type, paused), request.id)


async def act_on_jobs(request: Request) -> Response:
    """Act on the next jobs that match, or count them; the caller repeats with `next` until there is none."""
    key = request.key()
    request.query()
    body = await request.decode_body(BulkBody)
    wanted = _parse_filter(body.filter)
    before = None if body.cursor is UNSET else body.cursor
    if before is not None:
        parse_job_id(before)  # also where it is not needed
    if body.dry_run:
        matched, more = await request.ledger.admin.count_jobs(wanted)
        return resource_response(200, BulkResult(matched, 0, [], None, more), request.id)
    result = await request.ledger.admin.bulk_action(body.action, wanted, before=before, idempotency_key=key)
    return resource_response(200, result, request.id)


def _parse_filter(body: JobFilterBody) -> JobFilter:
    if body == JobFilterBody():
        raise Invalid("filter", "the filter is empty, so it would match every job; name a state or a type")
    given = {name: value for name, value in asdict(body).items() if value is not UNSET}
    if body.label is not UNSET:
        given["label"] = parse_label(body.label)
    return JobFilter(**given)


ROUTES = (
    Route(
        "GET",
        "/api/overview",
        get_overview,
        Permission.OVERSEE,
        "Counts of jobs by type and state (a snapshot), and submissions and ends over the last hour and day",
        None,
        OverviewView,
    ),
    Route(
        "GET",
        "/api/workers",
        list_workers,
        Permission.OVERSEE,
        "The workers that were heard of within the last minute",
        None,
        Workers,
    ),
    Route(
        "GET",
        "/api/types",
        list_types,
        Permission.OVERSEE,
        "The job types with their counts, and which of them are paused",
        None,
        Types,
    ),
    Route(
        "POST",
        "/api/types/{type}/pause",
        pause_type,
        Permission.RESOLVE,
        "Let nobody claim jobs of a type; submissions are accepted and wait",
        None,
        TypePaused,
        takes_key=True,
    ),
    Route(
        "POST",
        "/api/types/{type}/resume",
        resume_type,
        Permission.RESOLVE,
        "Let jobs of a type be claimed again",
        None,
        TypePaused,
        takes_key=True,
    ),
    Route(
        "POST",
        "/api/jobs/actions",
        act_on_jobs,
        Permission.RESOLVE,
        "Cancel, rerun or resolve the next jobs that match a filter, or with `dryRun` count them",
        BulkBody,
        BulkResult,
        takes_key=True,
    ),
)
