"""Commands in your own PostgreSQL transaction: your rows and the job commit together or not at all.

    in_transaction = InTransaction(tenant="shop", user="web")

    async with connection.transaction():                      # asyncpg
        await connection.execute("INSERT INTO orders …")
        receipt = await in_transaction.asyncpg(connection).submit("charge", {"order": 7}, idempotency_key="order-7")

The receipt becomes true with your commit: do not show it to anybody before. A conflict or a refusal is raised and leaves
the transaction usable; a serialization failure, a deadlock or a lock timeout is raised as your driver raises it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, Unpack

from msgspec.structs import replace

from onejob.clock import SystemClock
from onejob.core.command import Command
from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.identity import Actor, checked_name, parse_job_id
from onejob.core.key import KeyLike
from onejob.core.lookup import LookUpKey
from onejob.core.replies import AnyReply, Cancelled, Conflict, Finished, KeyHeld, KeySettled
from onejob.core.reserve import Settle, Verdict
from onejob.core.submit import TTL_MS_DEFAULT, Submit
from onejob.core.timestamps import to_duration_ms
from onejob.core.work import RETENTION_MS, Cancel, Extend, Finish, FinishOutcome
from onejob.engines.postgres.callers_transaction import CallersTransaction
from onejob.engines.postgres.transaction import Rows, Statement, Steps
from onejob.engines.postgres.url import SCHEMA_DEFAULT, checked_schema
from onejob.errors import OnejobError, SubmissionError
from onejob.ids import SystemIds
from onejob.ledger.parse import (
    Submission,
    SubmissionOptions,
    build_submit,
    build_verb_key,
    checked_submission,
    fence_fields,
    list_options,
)
from onejob.ledger.submissions import build_receipt, compare_submissions
from onejob.ledger.work import Attempt, Fence, encode_result, to_work_exception, work_fence_fields
from onejob.resources.jobs import JobView, to_job_view
from onejob.runtime.callers import Caller, DefaultWindows
from onejob.runtime.present import to_exception
from onejob.runtime.receipts import HeldKey, Receipt, build_settled_receipt

from . import drivers

# A window counts from the statement and not from the commit: a shorter one could end before the transaction does.
WINDOW_MS_MIN = 60_000
SUBMISSIONS_MAX = 1000

T = TypeVar("T")


class InTransaction:
    """Whose commands they are, and where their tables are. It has no connection, thread or event loop of its own."""

    def __init__(
        self,
        *,
        schema: str = SCHEMA_DEFAULT,
        tenant: str = "default",
        user: str = "local",
        actor: Actor | None = None,
        retention: timedelta = timedelta(milliseconds=RETENTION_MS),
    ) -> None:
        names = checked_name("tenant", tenant), checked_name("user", user)
        self._caller = Caller(*names, str(actor or Actor.client("local")))
        self._retention_ms = to_duration_ms("retention", retention)
        self._ids = SystemIds()
        self._transaction = CallersTransaction(checked_schema(schema), SystemClock().monotonic)

    def acting_as(self, *, tenant: str, user: str, actor: Actor) -> "InTransaction":
        """The same for another caller."""
        names = checked_name("tenant", tenant), checked_name("user", user)
        other = object.__new__(InTransaction)
        other.__dict__.update(self.__dict__, _caller=Caller(*names, str(actor)))
        return other

    def asyncpg(self, connection: Any) -> "AsyncCommands":
        """In the transaction of an asyncpg connection."""
        return AsyncCommands(self, drivers.asyncpg_fetch(connection))

    def psycopg(self, connection: Any) -> "SyncCommands":
        """In the transaction of a psycopg connection."""
        return SyncCommands(self, drivers.psycopg_fetch(connection))

    def apsycopg(self, connection: Any) -> "AsyncCommands":
        """In the transaction of an asynchronous psycopg connection."""
        return AsyncCommands(self, drivers.async_psycopg_fetch(connection))

    def session(self, session: Any) -> "SyncCommands":
        """In the transaction of a SQLAlchemy session, which is flushed first."""
        return SyncCommands(self, drivers.sqlalchemy_fetch(session))

    def asession(self, session: Any) -> "AsyncCommands":
        """In the transaction of an asynchronous SQLAlchemy session, which is flushed first."""
        return AsyncCommands(self, drivers.async_sqlalchemy_fetch(session))

    def on(self, connection: Any) -> "SyncCommands | AsyncCommands":
        """In the transaction of any of these: the driver is recognised by the type of the connection."""
        kind = drivers.recognize_driver(connection)
        commands: SyncCommands | AsyncCommands = getattr(self, kind)(
            connection.alias if kind == "django" else connection
        )
        return commands

    def django(self, using: str = "default") -> "SyncCommands":
        """In the transaction of a Django database connection: inside `transaction.atomic`."""
        return SyncCommands(self, drivers.django_fetch(using))

    # The verbs, as generators that `SyncCommands` and `AsyncCommands` drive.

    def submit_steps(self, submission: Submission) -> Steps[Receipt]:
        command = self._build_submit(submission, (yield from self._load_context()))
        return (yield from self._submit(command))

    def submit_many_steps(self, submissions: Iterable[Submission]) -> Steps[list[Receipt | OnejobError]]:
        """In the order of the keys' identities, so that two calls never wait for each other in a circle."""
        context = yield from self._load_context()
        built = [self._try_build_submit(submission, context) for submission in submissions]
        if len(built) > SUBMISSIONS_MAX:
            raise Invalid("jobs", f"one transaction takes at most {SUBMISSIONS_MAX} submissions; split them")
        verdicts: dict[int, Receipt | OnejobError] = {
            number: command for number, command in enumerate(built) if isinstance(command, OnejobError)
        }
        commands = [(command, number) for number, command in enumerate(built) if isinstance(command, Submit)]
        for command, number in sorted(commands, key=lambda pair: (pair[0].record_id, pair[1])):
            try:
                verdicts[number] = yield from self._submit(command)
            except SubmissionError as error:
                verdicts[number] = error
        return [verdicts[number] for number in range(len(built))]

    def settle_steps(self, held: HeldKey | KeyHeld, receipt: bytes, verdict: Verdict) -> Steps[Receipt]:
        if len(receipt) > INPUT_BYTES_MAX:
            raise Invalid("receipt", f"a receipt has at most {INPUT_BYTES_MAX} bytes; keep it elsewhere")
        command = Settle(
            **self._held_key_fields(held),
            verdict=Verdict(verdict),
            receipt=receipt,
            actor=self._caller.actor,
            retention_ms=self._retention_ms,
        )
        reply: AnyReply = yield from self._transaction.execute(command)
        if isinstance(reply, KeySettled):
            return build_settled_receipt(reply)
        raise to_exception(reply, held.key if isinstance(held, HeldKey) else "")

    def finish_steps(self, attempt: Attempt | Fence, result: Any, error: str | None, *, final: bool) -> Steps[JobView]:
        command = Finish(
            **work_fence_fields(attempt, self._caller.tenant),
            outcome=FinishOutcome.SUCCESS if error is None else FinishOutcome.FAILED,
            result=encode_result(result),
            error=error or "",
            final=final,
            actor=self._caller.actor,
            retention_ms=self._retention_ms,
        )
        return (yield from self.finish_prepared_steps((), command))

    def finish_prepared_steps(self, updates: Sequence[Extend], command: Finish) -> Steps[JobView]:
        """Store what a handler has logged, then end its job."""
        for update in updates:
            yield from self._transaction.execute(update)
        reply: AnyReply = yield from self._transaction.execute(command)
        if isinstance(reply, Finished):
            return to_job_view(reply.job)
        raise to_work_exception(reply)

    def execute_steps(self, command: Command[Any]) -> Steps[AnyReply]:
        return self._transaction.execute(command)

    def cancel_steps(self, job_id: str, idempotency_key: str | None) -> Steps[JobView]:
        command = Cancel(
            tenant=self._caller.tenant,
            job_id=parse_job_id(job_id),
            actor=self._caller.actor,
            retention_ms=self._retention_ms,
            verb_key=build_verb_key(idempotency_key),
        )
        reply: AnyReply = yield from self._transaction.execute(command)
        if isinstance(reply, Cancelled):
            return to_job_view(reply.job)
        raise to_exception(reply, idempotency_key or "")

    def _submit(self, command: Submit) -> Steps[Receipt]:
        reply: AnyReply = yield from self._transaction.execute(command)
        receipt = build_receipt(command, reply)
        if receipt is not None:
            return receipt
        paths: tuple[str, ...] = ()
        if isinstance(reply, Conflict) and reply.job_id:
            first = yield from self._transaction.load_input(command.tenant, reply.job_id)
            look_up = LookUpKey(tenant=command.tenant, record_id=command.record_id)
            by_key: AnyReply = yield from self._transaction.execute(look_up)
            paths = () if first is None else compare_submissions(command, *first, by_key)
        raise to_exception(reply, command.key, paths)

    def _load_context(self) -> "Steps[_Context]":
        """The caller and the window of keys, under the settings that the ledger has now."""
        settings, body = yield from self._transaction.load_settings()
        caller = replace(self._caller, owns_keys=settings.owns_keys, settings=body)
        return _Context(caller, DefaultWindows(settings.window_ms or TTL_MS_DEFAULT))

    def _build_submit(self, submission: Submission, context: "_Context") -> Submit:
        command = build_submit(
            checked_submission(submission), context.caller, self._ids.job_id(), windows=context.windows
        )
        if command.record_id and command.ttl_ms < WINDOW_MS_MIN:
            raise Invalid(
                "ttl", "in a transaction of your own a key's window is at least 60 s, and longer than the transaction"
            )
        return command

    def _try_build_submit(self, submission: Submission, context: "_Context") -> Submit | Invalid:
        try:
            return self._build_submit(submission, context)
        except Invalid as error:
            return error

    def _held_key_fields(self, held: HeldKey | KeyHeld) -> dict[str, Any]:
        if isinstance(held, HeldKey):
            return fence_fields(held, self._caller)
        names = ("record_id", "job_id", "token", "holder")
        return {"tenant": self._caller.tenant, **{name: getattr(held, name) for name in names}}


class _Context(NamedTuple):
    caller: Caller
    windows: DefaultWindows


class SyncCommands:
    """The verbs in one transaction of a blocking driver."""

    def __init__(self, in_transaction: InTransaction, fetch: Callable[[Statement], Rows]) -> None:
        self._inside = in_transaction
        self._fetch = fetch

    @list_options
    def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """Create a job with your commit, or return the one that this key already created."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return self._drive(self._inside.submit_steps(submission))

    def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        """Submit several at once; each gets its receipt, or its error, and all receipts become true together."""
        return self._drive(self._inside.submit_many_steps(submissions))

    def settle(self, held: HeldKey | KeyHeld, receipt: bytes = b"", *, verdict: Verdict = Verdict.COMMIT) -> Receipt:
        """Settle a held key with your commit. Raises LeaseLost if another holder has it: then roll back."""
        return self._drive(self._inside.settle_steps(held, receipt, verdict))

    def finish(
        self, attempt: Attempt | Fence, result: Any = None, *, error: str | None = None, final: bool = False
    ) -> JobView:
        """End a job with your commit. Raises LeaseLost if another worker has it: then roll back."""
        return self._drive(self._inside.finish_steps(attempt, result, error, final=final))

    def finish_prepared(self, updates: Sequence[Extend], command: Finish) -> JobView:
        """`finish` for commands that a worker has built."""
        return self._drive(self._inside.finish_prepared_steps(updates, command))

    def cancel(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """End a job that has not ended with your commit; one that has is returned as it is."""
        return self._drive(self._inside.cancel_steps(job_id, idempotency_key))

    def execute(self, command: Command[Any]) -> AnyReply:
        """Execute a command that a worker has built."""
        return self._drive(self._inside.execute_steps(command))

    def _drive(self, steps: Steps[T]) -> T:
        try:
            statement = next(steps)
            while True:
                statement = steps.send(self._fetch(statement))
        except StopIteration as done:
            result: T = done.value
            return result


class AsyncCommands:
    """The verbs in one transaction of an asynchronous driver."""

    def __init__(self, in_transaction: InTransaction, fetch: Callable[[Statement], Awaitable[Rows]]) -> None:
        self._inside = in_transaction
        self._fetch = fetch

    @list_options
    async def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """Create a job with your commit, or return the one that this key already created."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self._drive(self._inside.submit_steps(submission))

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        """Submit several at once; each gets its receipt, or its error, and all receipts become true together."""
        return await self._drive(self._inside.submit_many_steps(submissions))

    async def settle(
        self, held: HeldKey | KeyHeld, receipt: bytes = b"", *, verdict: Verdict = Verdict.COMMIT
    ) -> Receipt:
        """Settle a held key with your commit. Raises LeaseLost if another holder has it: then roll back."""
        return await self._drive(self._inside.settle_steps(held, receipt, verdict))

    async def finish(
        self, attempt: Attempt | Fence, result: Any = None, *, error: str | None = None, final: bool = False
    ) -> JobView:
        """End a job with your commit. Raises LeaseLost if another worker has it: then roll back."""
        return await self._drive(self._inside.finish_steps(attempt, result, error, final=final))

    async def finish_prepared(self, updates: Sequence[Extend], command: Finish) -> JobView:
        """`finish` for commands that a worker has built."""
        return await self._drive(self._inside.finish_prepared_steps(updates, command))

    async def cancel(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """End a job that has not ended with your commit; one that has is returned as it is."""
        return await self._drive(self._inside.cancel_steps(job_id, idempotency_key))

    async def execute(self, command: Command[Any]) -> AnyReply:
        """Execute a command that a worker has built."""
        return await self._drive(self._inside.execute_steps(command))

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            statement = next(steps)
            while True:
                statement = steps.send(await self._fetch(statement))
        except StopIteration as done:
            result: T = done.value
            return result
