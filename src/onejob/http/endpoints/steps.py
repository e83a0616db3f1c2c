"""Steps of a job for workers over HTTP: begin one, store its result; and the list of them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field

from onejob.core.credentials import Permission
from onejob.core.identity import checked_name, parse_job_id
from onejob.core.memo import MEMO_RESULT_BYTES_MAX
from onejob.core.states import Delivery
from onejob.http.request import BodyTooLarge, Request, check_strict_json
from onejob.http.responses import Response, resource_response
from onejob.http.routing import Route
from onejob.http.schemas.types import Name, RequestBody, to_integer
from onejob.http.schemas.work import Holder, Token
from onejob.ledger.steps import StepCall
from onejob.resources.jobs import BegunStepResult, SingleStep, StepsOfJob
from onejob.runtime.present import to_step_view

from .work import build_fence, parse_holder

StepHolder = Annotated[
    str,
    Meta(
        description="Your name for this call of the step: the same on every retry of the request, new for another call.",
        extra_json_schema={"minLength": 1, "maxLength": 64, "pattern": "^[ -~]+$"},
    ),
]


class BeginStepBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: Token
    holder: Holder
    name: Name
    step_holder: StepHolder
    arguments: list[Any] = field(default_factory=list)
    delivery: Delivery = Delivery.AT_LEAST_ONCE


class FinishStepBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: Token
    name: Name
    step_holder: StepHolder
    result: (
        Annotated[Raw, Meta(description=f"JSON of at most {MEMO_RESULT_BYTES_MAX} bytes; without it, null.")]
        | UnsetType
    ) = UNSET


async def begin_step(request: Request) -> Response:
    request.query()
    body = await request.decode_body(BeginStepBody)
    begun = await request.ledger.begin_step(
        build_fence(request, body.token, parse_holder(body.holder)),
        body.name,
        body.arguments,
        delivery=body.delivery,
        holder=parse_holder(body.step_holder),
    )
    result = Raw(begun.memo.result) if begun.finished else None
    return resource_response(200, BegunStepResult(to_step_view(begun.memo), result), request.id)


async def finish_step(request: Request) -> Response:
    request.query()
    body = await request.decode_body(FinishStepBody)
    result = b"null" if isinstance(body.result, UnsetType) else bytes(body.result)
    if len(result) > MEMO_RESULT_BYTES_MAX:
        raise BodyTooLarge(
            f"the result of a step has at most {MEMO_RESULT_BYTES_MAX} bytes; store it elsewhere, send a reference"
        )
    check_strict_json("result", result)
    call = StepCall(
        fence={
            "tenant": request.ledger.caller.tenant,
            "job_id": parse_job_id(request.path_params[0]),
            "token": to_integer("token", body.token),
        },
        name=checked_name("step", body.name),
        fingerprint=b"",
        holder=parse_holder(body.step_holder),
        delivery=Delivery.AT_LEAST_ONCE,
    )
    return resource_response(200, SingleStep(await request.ledger.store_step_result(call, result)), request.id)


async def list_steps(request: Request) -> Response:
    request.query()
    return resource_response(200, StepsOfJob(await request.ledger.steps(request.path_params[0])), request.id)


ROUTES = (
    Route(
        "POST",
        "/api/jobs/{id}/steps/begin",
        begin_step,
        Permission.WORK,
        "Begin a step of a running job, or get its result if it has finished",
        BeginStepBody,
        BegunStepResult,
        errors=("NOT_FOUND", "STALE", "TIMED_OUT", "NOT_ALLOWED", "STEP_CONFLICT", "STEP_INTERRUPTED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/steps/finish",
        finish_step,
        Permission.WORK,
        "Store the result of a step, which later attempts get instead of running it",
        FinishStepBody,
        SingleStep,
        errors=("NOT_FOUND", "STALE"),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/steps",
        list_steps,
        Permission.READ,
        "The steps of a job that have begun or finished",
        None,
        StepsOfJob,
        errors=("NOT_FOUND",),
    ),
)
