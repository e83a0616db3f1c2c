"""Steps of a job for workers over HTTP: begin one, store its result; and the list of them."""

from msgspec import Raw, UnsetType

from onejob.core.credentials import Permission
from onejob.core.identity import checked_name, parse_job_id
from onejob.core.memo import MEMO_RESULT_BYTES_MAX
from onejob.core.states import Delivery
from onejob.core.views import StepView
from onejob.http.request import BodyTooLarge, Request, check_strict_json
from onejob.http.responses import Response, json_response
from onejob.http.routing import Route
from onejob.http.schemas.steps import (
    BeginStepBody,
    BegunStepOut,
    FinishStepBody,
    SingleStepOut,
    StepsOut,
    step_out,
)
from onejob.http.schemas.types import to_integer
from onejob.ledger.steps import StepCall

from .work import build_fence, parse_holder


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
    return json_response(200, BegunStepOut(request.id, step_out(StepView(begun.memo)), result))


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
    return json_response(200, SingleStepOut(request.id, step_out(await request.ledger.store_step_result(call, result))))


async def list_steps(request: Request) -> Response:
    request.query()
    steps = await request.ledger.steps(request.path_params[0])
    return json_response(200, StepsOut(request.id, [step_out(step) for step in steps]))


ROUTES = (
    Route(
        "POST",
        "/api/jobs/{id}/steps/begin",
        begin_step,
        Permission.WORK,
        "Begin a step of a running job, or get its result if it has finished",
        BeginStepBody,
        BegunStepOut,
        errors=("NOT_FOUND", "STALE", "TIMED_OUT", "NOT_ALLOWED", "STEP_CONFLICT", "STEP_INTERRUPTED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/steps/finish",
        finish_step,
        Permission.WORK,
        "Store the result of a step, which later attempts get instead of running it",
        FinishStepBody,
        SingleStepOut,
        errors=("NOT_FOUND", "STALE"),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/steps",
        list_steps,
        Permission.READ,
        "The steps of a job that have begun or finished",
        None,
        StepsOut,
        errors=("NOT_FOUND",),
    ),
)
