"""The front door in Python: a submission is said once, and what is not an answer is raised."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self

from onejob.core.command import Precondition
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.identity import Actor, checked_name
from onejob.core.limits import Amount
from onejob.core.lookup import DryRun
from onejob.core.maintenance import Forget
from onejob.core.replies import Cancelled, KeyHeld, KeySettled
from onejob.core.reserve import Renew, Settle, Verdict
from onejob.core.states import Delivery
from onejob.core.submit import Submit
from onejob.core.views import HeldKey, JobView, Receipt
from onejob.core.work import Cancel, to_storable_text
from onejob.engine import Durability
from onejob.engines.receipts import CacheStats
from onejob.errors import Invalid, OnejobError

from .parse import (
    ATTEMPTS_DEFAULT,
    Caller,
    Submission,
    build_submit,
    caller_for_user,
    checked_submission,
    fence_fields,
    lookup_record_id,
)
from .present import (
    build_dry_run_receipt,
    build_held_key,
    build_receipt,
    build_settled_receipt,
    collect_receipts,
    record_forgotten,
    require_receipt,
    to_exception,
)
from .quotas import QuotaOperations
from .reads import ReadOperations
from .reservations import HeldKeyOperations
from .runtime import Stats
from .sequences import SequenceOperations
from .wakeups import Waiters
from .watch import JobWatcher
from .work import WorkOperations

SUBMIT_CHUNK_SIZE = 1000
ERROR_BYTES_MAX = 1000


class Ledger(ReadOperations, QuotaOperations, HeldKeyOperations, SequenceOperations, WorkOperations):
    """A caller in front of an engine. Get one with `onejob.open`."""

    async def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: timedelta | None = None,
        idempotency_ttl_days: float | None = None,
        scope: str | None = None,
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
        priority: int = 0,
        run_at: datetime | None = None,
        max_attempts: int = ATTEMPTS_DEFAULT,
        timeout: timedelta | None = None,
        labels: Mapping[str, str] | None = None,
        estimated_cost: Amount | None = None,
        reservation: str | None = None,
        callback: str | None = None,
    ) -> Receipt:
        """Make one job, or get the one that this key already made."""
        submission = Submission(
            type=type,
            input=input,
            idempotency_key=idempotency_key,
            idempotency_ttl=idempotency_ttl,
            idempotency_ttl_days=idempotency_ttl_days,
            scope=scope,
            delivery=delivery,
            priority=priority,
            run_at=run_at,
            max_attempts=max_attempts,
            timeout=timeout,
            labels=labels,
            estimated_cost=estimated_cost,
            reservation=reservation,
            callback=callback,
        )
        return await self.submit_prepared(submission)

    async def submit_prepared(self, submission: Submission, precondition: Precondition | None = None) -> Receipt:
        """`submit` for a submission that was said before, as edges do; refused where a warrant does not stand."""
        command = build_submit(submission, self._caller, self._runtime.ids.job_id(), precondition)
        result = await self._gate.execute_one(command)
        return build_receipt(command, result) or await require_receipt(self._gate, command, result)

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        """Independent submissions, each with a verdict of its own: a receipt, or the error it met."""
        verdicts: list[Receipt | OnejobError] = []
        waiting = iter(submissions)
        while chunk := list(islice(waiting, SUBMIT_CHUNK_SIZE)):
            commands = [self._try_build_submit(submission) for submission in chunk]
            results = await self._gate.execute_each([command for command in commands if isinstance(command, Submit)])
            verdicts += await collect_receipts(self._gate, commands, results)
        return verdicts

    async def dry_run(self, /, type: str, input: Any = None, **options: Any) -> Receipt:
        """What `submit` with these arguments would be answered with. Changes nothing, raises no refusal."""
        return await self.dry_run_prepared(Submission(type=type, input=input, **options))

    async def dry_run_prepared(self, submission: Submission) -> Receipt:
        """`probe` for a submission that was said before."""
        command = self._build_submit(submission)
        reply = await self._execute(DryRun(tenant=command.tenant, command=command))
        return await build_dry_run_receipt(self._gate, command, reply)

    async def check_or_reserve(
        self,
        /,
        type: str,
        input: Any = None,
        *,
        idempotency_key: str,
        lease: timedelta | None = None,
        job: bool = True,
        **options: Any,
    ) -> HeldKey | Receipt:
        """Take a key for the time of some work, or get its settled answer. Without `job` only a record is made."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.reserve(submission, lease=lease, job=job)

    async def renew(self, held_key: HeldKey) -> HeldKey:
        """Prolong the lease by its own length; LeaseLost when the key is no longer yours."""
        held = held_key
        reply = await self._execute(Renew(**fence_fields(held, self._caller), lease_ms=held.lease_ms))
        if isinstance(reply, KeyHeld):
            return build_held_key(reply, key=held.key, scope=held.scope, lease_ms=held.lease_ms)
        raise to_exception(reply, held.key)

    async def commit(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key: its job may run, and duplicates are answered with it and with these bytes."""
        return await self._settle(held_key, Verdict.COMMIT, receipt)

    async def reject(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key with a final refusal, remembered for `rejected_ttl_seconds`."""
        return await self._settle(held_key, Verdict.REJECT, receipt, ttl_ms=self._runtime.rejected_ttl_ms)

    async def fail(self, held_key: HeldKey, error: str = "") -> Receipt:
        """Give the key up for now: the same submission may be tried again, with the same job id."""
        return await self._settle(held_key, Verdict.FAIL, to_storable_text(error).encode()[:ERROR_BYTES_MAX])

    async def cancel(self, job_id: str) -> JobView:
        """End a job that has not ended; one that has is returned as it is."""
        caller = self._caller
        reply = await self._execute(
            Cancel(
                tenant=caller.tenant,
                job_id=await self._visible_job_id(job_id),
                actor=caller.actor,
                retention_ms=self._runtime.retention_ms,
            )
        )
        if isinstance(reply, Cancelled):
            return JobView(reply.job)
        raise to_exception(reply, "")

    async def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        """Let a key expire early; returns the moment after which it may be used anew. Its job stays."""
        reply = await self._execute(
            Forget(
                tenant=self._caller.tenant,
                record_id=lookup_record_id(caller_for_user(self._caller, user), key, scope),
                actor=self._caller.actor,
                grace_ms=self._runtime.cache_ttl_ms_max,
            )
        )
        return record_forgotten(reply, self._caller, key=key, scope=scope)

    async def purge(self) -> int:
        """Erase everything this tenant has; returns how many facts went. Revoke its credentials first."""
        return await self._runtime.purge(self._caller)

    def acting_as(self, *, tenant: str, user: str, actor: Actor, owns_keys: bool = False) -> "Ledger":
        """The same ledger for another caller; it is closed by whoever opened it."""
        names = checked_name("tenant", tenant), checked_name("user", user)
        return self.for_caller(Caller(*names, str(actor), owns_keys))

    def for_caller(self, caller: Caller) -> "Ledger":
        return self if caller == self._caller else Ledger(self._runtime, caller)

    @property
    def durability(self) -> Durability:
        return self._gate.info.durability

    @property
    def job_watcher(self) -> JobWatcher:
        """What keeps watched jobs up to date, one for the whole process."""
        return self._runtime.job_watcher

    @property
    def waiters(self) -> Waiters:
        """Where those wait who wait at an edge, one for the whole process."""
        return self._runtime.waiters

    def cache_stats(self) -> CacheStats:
        """What the gate holds right now."""
        return self._gate.stats()

    def runtime_stats(self) -> Stats:
        """What was counted since this ledger was opened, for whoever watches over it."""
        return self._runtime.stats()

    async def sweep(self) -> None:
        """Do now what happens by itself every `cleanup_interval_seconds`."""
        await self._runtime.sweep()

    async def aclose(self) -> None:
        await self._runtime.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _build_submit(self, submission: Submission) -> Submit:
        return build_submit(submission, self._caller, self._runtime.ids.job_id())

    def _try_build_submit(self, submission: Submission) -> Submit | Invalid:
        try:
            return self._build_submit(checked_submission(submission))
        except Invalid as error:
            return error

    async def _settle(self, held_key: HeldKey, verdict: Verdict, receipt: bytes, *, ttl_ms: int = 0) -> Receipt:
        if len(receipt) > INPUT_BYTES_MAX:
            raise Invalid("receipt", f"a receipt has at most {INPUT_BYTES_MAX} bytes; keep it elsewhere")
        reply = await self._execute(
            Settle(
                **fence_fields(held_key, self._caller),
                verdict=verdict,
                receipt=receipt,
                ttl_ms=ttl_ms,
                actor=self._caller.actor,
                retention_ms=self._runtime.retention_ms,
            )
        )
        if isinstance(reply, KeySettled):
            return build_settled_receipt(reply)
        raise to_exception(reply, held_key.key)
