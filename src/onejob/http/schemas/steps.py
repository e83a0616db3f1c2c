"""Bodies for the steps of a job: begin, finish, list."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field

from onejob.core.memo import MEMO_RESULT_BYTES_MAX
from onejob.core.states import Delivery
from onejob.core.views import StepState, StepView

from .types import Name, RequestBody, ResponseBody, UtcTimestamp
from .work import Holder, Token

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


class StepOut(ResponseBody, frozen=True, rename="camel"):
    name: str
    state: StepState
    runs: int
    began_at: UtcTimestamp  # its latest run
    ended_at: UtcTimestamp | None
    token: int  # of the attempt that began it last


class SingleStepOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    step: StepOut


class BegunStepOut(SingleStepOut, frozen=True, rename="camel"):
    """If the step is `finished`, `result` is what it returned: do not run it again."""

    result: Raw | None = None


class StepsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    steps: list[StepOut]


def step_out(step: StepView) -> StepOut:
    return StepOut(step.name, step.state, step.runs, step.began_at, step.ended_at, step.token)
