"""`Context.once`: run a step of a handler, unless an earlier attempt has finished it.

    begin (a commit) ──▶ call the function ──▶ finish (a commit)

A store that is unavailable is asked again until the attempt is over. The caller gets what a later attempt would get: the
result as it comes back from JSON.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import json

from onejob.core.command import Command
from onejob.core.replies import AnyReply, Missing, Reason, Refused, StepBegun, StepFinished
from onejob.engines.gate import Gate
from onejob.errors import Invalid, Unavailable, Unknown
from onejob.ids import Ids
from onejob.ledger.present import to_exception
from onejob.ledger.steps import StepCall, build_step_call, encode_step_result
from onejob.ledger.work import Attempt, attempt_fence_fields

from .exceptions import AttemptCancelled, StepConflict, StepInterrupted

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
_KEY_PARAMETER = "idempotency_key"


class StepRunner:
    """Runs the steps of one attempt. Two calls with one name run one after the other."""

    def __init__(self, attempt: Attempt, gate: Gate, ids: Ids, *, is_cancelled: Callable[[], bool]) -> None:
        self._attempt = attempt
        self._gate = gate
        self._ids = ids
        self._is_cancelled = is_cancelled
        self._locks: dict[str, asyncio.Lock] = {}

    def key(self, name: str) -> str:
        return f"{self._attempt.job_id}:{name}"

    async def run(self, name: str, function: Callable[..., Any], arguments: Sequence[Any], delivery: Any) -> Any:
        """For a handler on the event loop: an async function runs there too, a plain one in a thread."""
        call = self._build_call(name, arguments, delivery)
        async with self._locks.setdefault(name, asyncio.Lock()):
            finished = await self._begin(call)
            if finished is None:
                finished = await self._finish(call, await _call_on_loop(self._bound(name, function, arguments)))
        return json.decode(finished)

    def run_in_thread(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        delivery: Any,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> Any:
        """For a handler in a thread: the function runs in the same one."""
        if inspect.iscoroutinefunction(function):
            raise Invalid("step", f"{name}: a plain handler runs plain functions; make the handler async, or this not")
        call = self._build_call(name, arguments, delivery)
        lock = self._locks.setdefault(name, asyncio.Lock())

        def wait_for(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        wait_for(lock.acquire())
        try:
            finished = wait_for(self._begin(call))
            if finished is None:
                finished = wait_for(self._finish(call, self._bound(name, function, arguments)()))
        finally:
            loop.call_soon_threadsafe(lock.release)
        return json.decode(finished)

    def _build_call(self, name: str, arguments: Sequence[Any], delivery: Any) -> StepCall:
        fence = attempt_fence_fields(self._attempt)
        return build_step_call(self._ids, fence, name, arguments, delivery=delivery)

    def _bound(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], Any]:
        """The call of the function; one that has a parameter `idempotency_key` gets the key of the step."""
        if _takes_key(function, len(arguments)):
            return partial(function, *arguments, **{_KEY_PARAMETER: self.key(name)})
        return partial(function, *arguments)

    async def _begin(self, call: StepCall) -> bytes | None:
        """The result of the step if it has finished; None if it is to be run now."""
        reply = await self._execute(call.begin_command())
        match reply:
            case StepFinished():
                return reply.memo.result
            case StepBegun():
                return None
        raise _to_step_exception(call, reply)

    async def _finish(self, call: StepCall, result: Any) -> bytes:
        data = encode_step_result(result)
        # The effect has happened: its memo is stored even if the handler is stopped meanwhile.
        reply = await asyncio.shield(asyncio.ensure_future(self._execute(call.finish_command(data))))
        if isinstance(reply, StepFinished):
            return data
        raise _to_step_exception(call, reply)

    async def _execute(self, command: Command[Any]) -> AnyReply | BaseException:
        """Execute a command, again while the store is unavailable and the attempt is not over."""
        pause = PAUSE_FIRST
        while True:
            reply = await self._gate.execute_one(command)
            if not isinstance(reply, (Unavailable, Unknown)) or self._is_cancelled():
                return reply
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)


async def _call_on_loop(call: Callable[[], Any]) -> Any:
    result = call() if inspect.iscoroutinefunction(call) else await asyncio.to_thread(call)
    return await result if isinstance(result, Awaitable) else result


def _takes_key(function: Callable[..., Any], positional: int) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C have none
        return False
    parameter = parameters.get(_KEY_PARAMETER)
    if parameter is None or parameter.kind is parameter.POSITIONAL_ONLY:
        return False
    return parameter.kind is parameter.KEYWORD_ONLY or list(parameters).index(_KEY_PARAMETER) >= positional


def _to_step_exception(call: StepCall, reply: AnyReply | BaseException) -> BaseException:
    match reply:
        case Refused(reason=Reason.STEP_CONFLICT):
            return StepConflict(f"step {call.name!r}: {reply.message}")
        case Refused(reason=Reason.STEP_INTERRUPTED):
            return StepInterrupted(f"step {call.name!r}: {reply.message}")
        case Refused(reason=Reason.NOT_ALLOWED):
            return Invalid("step", f"step {call.name!r}: {reply.message}")
        case Missing() | Refused():
            return AttemptCancelled("the attempt has ended or lost its lease; stop")
        case BaseException():
            return reply
    return to_exception(reply, "")
