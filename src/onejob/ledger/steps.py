"""Steps of a handler: begin one under a name, store its result, list the steps of a job.

A worker of `onejob.App` calls `Context.once` instead, which does all of it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from onejob.core.command import Command
from onejob.core.facts import Kind, Memo
from onejob.core.fingerprint import encode_and_canonicalize, fingerprint
from onejob.core.identity import checked_name, memo_range, parse_job_id
from onejob.core.memo import MEMO_RESULT_BYTES_MAX, BeginStep, FinishStep
from onejob.core.replies import StepBegun, StepFinished
from onejob.core.states import Delivery
from onejob.core.typed_json import to_encodable
from onejob.engine import ListFacts, Page
from onejob.errors import Invalid
from onejob.ids import Ids
from onejob.resources.jobs import StepView
from onejob.runtime.present import to_step_view

from .base import load_visible_job
from .work import Attempt, Fence, WorkOperations, checked_holder, to_work_exception

_PAGE_MAX = 100


class StepCall(Struct, frozen=True, kw_only=True):
    """One call of a step, with what its commands have in common."""

    fence: dict[str, Any]  # tenant, job, token and holder of the attempt
    name: str
    fingerprint: bytes
    holder: bytes
    delivery: Delivery

    def begin_command(self) -> BeginStep:
        return BeginStep(
            **self.fence,
            name=self.name,
            fingerprint=self.fingerprint,
            step_holder=self.holder,
            delivery=self.delivery,
        )

    def finish_command(self, result: bytes) -> FinishStep:
        fence = self.fence
        return FinishStep(
            tenant=fence["tenant"],
            job_id=fence["job_id"],
            name=self.name,
            token=fence["token"],
            step_holder=self.holder,
            result=result,
        )


def build_step_call(
    ids: Ids,
    fence: dict[str, Any],
    name: str,
    arguments: Sequence[Any],
    *,
    delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
    holder: bytes | None = None,
) -> StepCall:
    """Check the arguments of a step. Without a holder one is drawn."""
    name = checked_name("step", name)
    return StepCall(
        fence=fence,
        name=name,
        fingerprint=_fingerprint_of(name, arguments),
        holder=ids.holder() if holder is None else checked_holder(holder),
        delivery=_parse_delivery(delivery),
    )


def encode_step_result(result: Any) -> bytes:
    try:
        data = json.encode(result, enc_hook=to_encodable)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            "result", f"the result of a step is JSON, and this is not ({type(error).__name__}); return plain values"
        ) from None
    if len(data) > MEMO_RESULT_BYTES_MAX:
        message = (
            f"the result of a step has at most {MEMO_RESULT_BYTES_MAX} bytes; store it elsewhere, return a reference"
        )
        raise Invalid("result", message)
    return data


class StepOperations(WorkOperations):
    async def begin_step(
        self,
        attempt: Attempt | Fence,
        name: str,
        arguments: Sequence[Any] = (),
        *,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        holder: bytes | None = None,
    ) -> "BegunStep":
        """Begin a step of a running attempt. If it has finished before, its result comes back: do not run it again.

        A retry with the same holder gets the same answer.
        """
        call = build_step_call(
            self._runtime.ids, self._fence_fields(attempt), name, arguments, delivery=delivery, holder=holder
        )
        return BegunStep(call, await self._execute_step(call.begin_command()))

    async def finish_step(self, begun: "BegunStep", result: Any = None) -> StepView:
        """Store the result of a step, which every later attempt gets instead of running it."""
        return to_step_view(await self._execute_step(begun.call.finish_command(encode_step_result(result))))

    async def steps(self, job_id: str) -> list[StepView]:
        """The steps of a job that have begun or finished, by the time of their latest beginning."""
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        memos: list[Memo] = []
        after = memo_range(job.tenant, job.id)
        while len(memos) < job.memos:
            query = ListFacts(tenant=job.tenant, kind=Kind.MEMO, after=after, limit=_PAGE_MAX)
            page: Page[Any] = await self._gate.scan(query)
            own = [memo for memo in page.items if memo.job_id == job.id]
            if not own:
                break  # the job was deleted meanwhile
            memos += own
            after = own[-1].id
        return sorted(map(to_step_view, memos), key=lambda step: (step.began_at, step.name))

    async def _execute_step(self, command: Command[Any]) -> Memo:
        reply = await self._execute(command)
        if isinstance(reply, (StepBegun, StepFinished)):
            return reply.memo
        raise to_work_exception(reply)


class BegunStep(Struct, frozen=True):
    """A step that is to be run and finished, or (`finished`) one that was before."""

    call: StepCall
    memo: Memo

    @property
    def finished(self) -> bool:
        return bool(self.memo.ended_at)

    @property
    def result(self) -> Any:
        """The stored result, decoded; None while there is none."""
        return json.decode(self.memo.result) if self.finished else None


def _fingerprint_of(name: str, arguments: Sequence[Any]) -> bytes:
    try:
        _, canonical = encode_and_canonicalize(list(arguments))
    except (Invalid, TypeError) as error:
        raise Invalid(
            "arguments",
            f"the arguments of a step are compared as JSON, and these are not ({error}); pass plain values, and bind "
            "other objects with functools.partial",
        ) from None
    return fingerprint(name, canonical)


def _parse_delivery(delivery: Delivery | str) -> Delivery:
    try:
        return Delivery(delivery)
    except ValueError:
        raise Invalid("delivery", f"choose one of {', '.join(Delivery)}") from None
