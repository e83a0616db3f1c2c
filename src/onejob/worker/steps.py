"""`Context.once`: run a step of a handler, unless an earlier attempt has finished it.

    begin (a commit) ──▶ call the function ──▶ finish (a commit, or part of the caller's own)

A store that is unavailable is asked again until the attempt is over. The caller gets what a later attempt would get: the
result as it comes back from JSON.

A step within a transaction of the handler is begun outside of it, so that a stale attempt begins none, and finished inside.
If the transaction is rolled back, the step has not happened and is run again. If another attempt began the step meanwhile, its
finish is refused, and the transaction must be rolled back: so it commits once.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, json

from onejob.backoff import Backoff
from onejob.core.command import Command
from onejob.core.memo import LookUpMemo
from onejob.core.replies import AnyReply, Missing, Reason, Refused, StepBegun, StepFinished
from onejob.core.states import Delivery
from onejob.engines.gate import Gate
from onejob.errors import Invalid, Unavailable, Unknown
from onejob.ids import Ids
from onejob.ledger.steps import StepCall, build_step_call, encode_step_result
from onejob.ledger.work import Attempt, attempt_fence_fields
from onejob.runtime.present import to_exception

from .exceptions import AttemptCancelled, StepConflict, StepInterrupted

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
_KEY_PARAMETER = "idempotency_key"


class FunctionCall(Struct, frozen=True):
    """A step with its function."""

    step: StepCall
    function: Callable[[], Any]
    transaction: Any = None  # the commands of `onejob.transaction` on the caller's connection; None: no transaction


class StepRunner:
    """Runs the steps of one attempt. Two calls with one name run one after the other."""

    def __init__(self, attempt: Attempt, gate: Gate, ids: Ids, *, is_cancelled: Callable[[], bool]) -> None:
        self._attempt = attempt
        self._gate = gate
        self._ids = ids
        self._is_cancelled = is_cancelled
        self._locks: dict[str, asyncio.Lock] = {}
        self._finished_inside: set[str] = set()  # steps whose memo may be locked by an open transaction

    def key(self, name: str) -> str:
        return f"{self._attempt.job_id}:{name}"

    def build_call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        delivery: Delivery | str,
        within: Any,
    ) -> FunctionCall:
        # What is not committed has not happened, so that a step within a transaction can always be run again.
        delivery = delivery if within is None else Delivery.AT_LEAST_ONCE
        fence = attempt_fence_fields(self._attempt)
        step = build_step_call(self._ids, fence, name, arguments, delivery=delivery)
        options = {_KEY_PARAMETER: self.key(name)} if _takes_key(function, len(arguments)) else {}
        transaction = None if within is None else _open_transaction(within)
        return FunctionCall(step, partial(function, *arguments, **options), transaction)

    async def run(self, call: FunctionCall) -> Any:
        """For a handler on the event loop: an async function runs there too, a plain one in a thread."""
        async with self._lock(call):
            finished = await self._find_uncommitted(call)
            if finished is None:
                finished = await self._begin(call.step)
            if finished is None:
                finished = encode_step_result(await _call_on_loop(call.function))
                await self._finish(call, finished)
        return json.decode(finished)

    def run_in_thread(self, call: FunctionCall, loop: asyncio.AbstractEventLoop) -> Any:
        """For a handler in a thread: the function, and what is done in its transaction, run in the same one."""
        name = call.step.name
        if inspect.iscoroutinefunction(call.function):
            raise Invalid("step", f"{name}: a plain handler runs plain functions; make the handler async, or this not")
        if call.transaction is not None and inspect.iscoroutinefunction(call.transaction.execute):
            raise Invalid("within", f"{name}: a plain handler needs a connection of a blocking driver; pass one")

        def wait_for(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        lock = self._lock(call)
        wait_for(lock.acquire())
        try:
            finished = None
            if name in self._finished_inside and call.transaction is not None:
                finished = _uncommitted_result(call, call.transaction.execute(_look_up(call)))
            if finished is None:
                finished = wait_for(self._begin(call.step))
            if finished is None:
                finished = encode_step_result(call.function())
                if call.transaction is None:
                    wait_for(self._finish(call, finished))
                else:
                    self._check_inside(call, call.transaction.execute(call.step.finish_command(finished)))
        finally:
            loop.call_soon_threadsafe(lock.release)
        return json.decode(finished)

    def _lock(self, call: FunctionCall) -> asyncio.Lock:
        return self._locks.setdefault(call.step.name, asyncio.Lock())

    async def _find_uncommitted(self, call: FunctionCall) -> bytes | None:
        """The result of a step that this very transaction has finished: outside, its memo would be waited for."""
        if call.transaction is None or call.step.name not in self._finished_inside:
            return None
        return _uncommitted_result(call, await _execute_inside(call, _look_up(call)))

    async def _begin(self, step: StepCall) -> bytes | None:
        """The result of the step if it has finished; None if it is to be run now."""
        reply = await self._execute(step.begin_command())
        match reply:
            case StepFinished():
                return reply.memo.result
            case StepBegun():
                return None
        raise _to_step_exception(step, reply)

    async def _finish(self, call: FunctionCall, result: bytes) -> None:
        command = call.step.finish_command(result)
        if call.transaction is not None:
            self._check_inside(call, await _execute_inside(call, command))
            return
        # The effect has happened: its memo is stored even if the handler is stopped meanwhile.
        reply = await asyncio.shield(asyncio.ensure_future(self._execute(command)))
        if not isinstance(reply, StepFinished):
            raise _to_step_exception(call.step, reply)

    def _check_inside(self, call: FunctionCall, reply: AnyReply) -> None:
        if isinstance(reply, Missing):
            raise Invalid(
                "within",
                f"step {call.step.name!r}: the transaction does not see that the step was begun; use the ledger's database, "
                "and under REPEATABLE READ begin the transaction right before the step",
            )
        if not isinstance(reply, StepFinished):
            raise _to_step_exception(call.step, reply)
        self._finished_inside.add(call.step.name)

    async def _execute(self, command: Command[Any]) -> AnyReply | BaseException:
        """Execute a command, again while the store is unavailable and the attempt is not over."""
        backoff = Backoff(PAUSE_FIRST, PAUSE_MAX)
        while True:
            reply = await self._gate.execute_one(command)
            if not isinstance(reply, (Unavailable, Unknown)) or self._is_cancelled():
                return reply
            await asyncio.sleep(next(backoff))


def _open_transaction(within: Any) -> Any:
    from onejob.transaction import (  # needs PostgreSQL, which other steps do not
        AsyncCommands,
        InTransaction,
        SyncCommands,
    )

    return within if isinstance(within, SyncCommands | AsyncCommands) else InTransaction().on(within)


async def _execute_inside(call: FunctionCall, command: Command[Any]) -> AnyReply:
    execute = call.transaction.execute
    reply: AnyReply = await (
        execute(command) if inspect.iscoroutinefunction(execute) else asyncio.to_thread(execute, command)
    )
    return reply


def _look_up(call: FunctionCall) -> LookUpMemo:
    fence = call.step.fence
    return LookUpMemo(tenant=fence["tenant"], job_id=fence["job_id"], name=call.step.name)


def _uncommitted_result(call: FunctionCall, reply: AnyReply) -> bytes | None:
    if not isinstance(reply, StepFinished):
        return None  # the transaction that finished it was rolled back
    if reply.memo.fingerprint != call.step.fingerprint:
        raise StepConflict(f"step {call.step.name!r}: it was finished with other arguments; give it another name")
    return reply.memo.result


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


def _to_step_exception(step: StepCall, reply: AnyReply | BaseException) -> BaseException:
    match reply:
        case Refused(reason=Reason.STEP_CONFLICT):
            return StepConflict(f"step {step.name!r}: {reply.message}")
        case Refused(reason=Reason.STEP_INTERRUPTED):
            return StepInterrupted(f"step {step.name!r}: {reply.message}")
        case Refused(reason=Reason.NOT_ALLOWED):
            return Invalid("step", f"step {step.name!r}: {reply.message}")
        case Missing() | Refused():
            return AttemptCancelled("the attempt has ended or lost its lease; stop")
        case BaseException():
            return reply
    return to_exception(reply, "")
