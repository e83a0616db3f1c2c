"""A client runs the operations of its plan, retries calls without a reply, and reports replies to the checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onejob.core import identity
from onejob.core.command import Command
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import Forget
from onejob.core.replies import AnyReply, Created, InProgress, KeyHeld, Replayed
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver
from onejob.core.states import Delivery
from onejob.core.submit import SubmissionCommand, Submit
from onejob.core.work import Cancel, verb_key_digest
from onejob.engines.gate import Gate
from onejob.errors import Unavailable, Unknown
from onejob.runtime.maintenance import PurgeProgress, Sweeper, purge_tenant

from .plan import Op, Verb
from .process import CallResults, PendingReply, Process, drop_reply
from .quota_client import QuotaClient
from .reply_checks import Call
from .sequence_client import SequenceClient
from .worker_client import WorkerClient

if TYPE_CHECKING:
    from .simulator import Simulation

TRIES_MAX = 6
_BACKOFF = 0.1


JOB_TIMEOUT_MS = 700  # longer than a lease, and shorter than some work


class Client(QuotaClient, SequenceClient, WorkerClient):
    def __init__(self, simulation: "Simulation", number: int) -> None:
        self.simulation = simulation
        self.number = number
        self.tenant = f"tenant{number % simulation.plan.tenants}"
        self.user = f"user{number % simulation.plan.users}"
        self.actor = f"client:{number}"
        self.usage_id = identity.usage_id(self.tenant, self.user) if simulation.plan.quota is not None else b""
        self.policy_id = identity.policy_id(self.tenant, QUOTA_POLICY_NAME) if self.usage_id else b""
        self.last_sequences = {}

    async def run(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            await asyncio.sleep(op.wait_ms / 1000)
            self.simulation.counts[f"op {op.verb}"] += 1
            await _OPERATIONS[op.verb](self, op)

    async def ask(
        self, *commands: Command[Any], process: Process | None = None, all_or_nothing: bool = False
    ) -> CallResults | None:
        """Send one call and return its results, or None without a reply; `all_or_nothing`: one failure fails all."""

        async def work(gate: Gate) -> CallResults:
            if not all_or_nothing:
                return await gate.execute_each(commands)
            try:
                return list(await gate.execute(commands))
            except (Unavailable, Unknown) as error:
                return [error for _ in commands]

        simulation = self.simulation
        call = Call(self.number, simulation.loop.time(), simulation.store.clock(), commands)
        for command in commands:
            simulation.reply_checker.on_call(command)
        results = await self._send(work, process)
        for command, result in zip(commands, results or (), strict=False):
            simulation.record_event(f"client {self.number} {type(command).__name__} {type(result).__name__}")
            simulation.reply_checker.on_reply(call, command, result)
        if results is None:
            simulation.counts["no answer"] += 1
        return results

    async def ask_until_answered(self, command: Command[Any]) -> AnyReply | None:
        """Repeat the same command until it is answered; a repeated command gets the same reply."""
        for attempt in range(TRIES_MAX):
            results = await self.ask(command)
            if results and not isinstance(results[0], BaseException):
                return results[0]
            await asyncio.sleep(_BACKOFF * attempt)
        return None

    async def _send(
        self, work: Callable[[Gate], Awaitable[CallResults]], process: Process | None = None
    ) -> CallResults | None:
        simulation = self.simulation
        reply: PendingReply = simulation.loop.create_future()
        process = process or simulation.any_process()
        if process is None:
            simulation.loop.call_later(_BACKOFF, drop_reply, reply)
        else:
            process.receive(work, reply)
            simulation.loop.call_later(simulation.client_timeout_seconds, drop_reply, reply)
        results = await reply
        for result in results or ():
            if isinstance(result, BaseException) and not isinstance(result, (Unavailable, Unknown)):
                simulation.commit_checker.report_violation("only Unavailable and Unknown are raised", repr(result))
        return results

    async def submit(self, op: Op, *, process: Process | None = None) -> AnyReply | None:
        """Submit with retries; a retry is a new command with a new candidate job id, the same key and the same body."""
        for attempt in range(TRIES_MAX):
            command = self._build_submit(op)
            if op.is_repeated and not op.think_ms:  # a hedged request, or a duplicated delivery
                results, _ = await asyncio.gather(self.ask(command, process=process), self.ask(command))
            else:
                results = await self.ask(command, process=process)
            if results and not isinstance(results[0], BaseException):
                self._remember_job(command, results[0])
                if op.is_repeated:
                    await asyncio.sleep(op.think_ms / 1000)
                    await self.ask(command)
                return results[0]
            await asyncio.sleep(_BACKOFF * attempt)
        return None

    async def submit_many(self, op: Op) -> None:
        keys = range(self.simulation.plan.keys)
        commands = [self._build_submit(op, key=key, body=op.body if key == op.key else 0) for key in keys]
        commands.append(self._build_submit(op))
        for _ in range(TRIES_MAX):
            results = await self.ask(*commands, all_or_nothing=op.is_repeated)
            if results is None:
                commands = [self._build_submit(op, key=key) for key in keys]
                continue
            failed = [c for c, r in zip(commands, results, strict=True) if isinstance(r, BaseException)]
            if not failed:
                return
            commands = failed

    async def submit_without_key(self, op: Op) -> None:
        await self.ask_until_answered(self._build_submit(op, keyless=True))

    async def reserve(self, op: Op) -> None:
        fields = self._submission_fields(op)
        if self.simulation.is_key_without_job(op.key):
            fields["job_id"] = b""
        command = Reserve(**fields, holder=self.simulation.ids.holder(), lease_ms=op.lease_ms)
        reply = await self.ask_until_answered(command)
        self._remember_job(command, reply)
        if isinstance(reply, KeyHeld):
            await self._work_under_lease(op, reply)

    async def take_over(self, op: Op) -> None:
        holder = self.simulation.ids.holder()
        reply = await self.ask_until_answered(
            TakeOver(
                tenant=self.tenant,
                record_id=self._record_id(op),
                holder=holder,
                lease_ms=op.lease_ms,
                policy_id=self.policy_id,
            )
        )
        if isinstance(reply, KeyHeld):
            await self._work_under_lease(op, reply)

    async def _work_under_lease(self, op: Op, held: KeyHeld) -> None:
        """Renew and settle a held key, perhaps after its lease has ended."""
        fence: dict[str, Any] = {
            "tenant": self.tenant,
            "policy_id": self.policy_id,
            "record_id": held.record_id,
            "job_id": held.job_id,
            "token": held.token,
            "holder": held.holder,
        }
        for _ in range(op.renewals):
            await asyncio.sleep(op.think_ms / 1000)
            await self.ask_until_answered(Renew(**fence, lease_ms=op.lease_ms))
        await asyncio.sleep(op.think_ms / 1000)
        if op.verdict is None:
            return
        settle = Settle(
            **fence,
            verdict=op.verdict,
            receipt=held.holder + bytes([held.token % 256]),
            ttl_ms=round(self.simulation.plan.rejected_ttl * 1000) if op.verdict == "reject" else 0,
            actor=self.actor,
            retention_ms=self.simulation.plan.retention_ms,
        )
        await self.ask_until_answered(settle)
        if op.is_repeated:
            await self.ask(settle)

    async def cancel(self, op: Op) -> None:
        job_id = self.simulation.job_ids_by_key.get(self._record_id(op))
        if job_id is not None:
            await self.ask_until_answered(
                Cancel(
                    tenant=self.tenant,
                    job_id=job_id,
                    actor=self.actor,
                    retention_ms=self.simulation.plan.retention_ms,
                    verb_key=verb_key_digest(f"cancel-{op.think_ms % 12}") if op.body else b"",
                )
            )

    async def forget(self, op: Op) -> None:
        grace_ms = round(max(self.simulation.plan.committed_ttl, self.simulation.plan.rejected_ttl) * 1000)
        await self.ask_until_answered(
            Forget(tenant=self.tenant, record_id=self._record_id(op), actor=self.actor, grace_ms=grace_ms)
        )

    async def dry_run(self, op: Op) -> None:
        await self.ask(DryRun(tenant=self.tenant, command=self._build_submit(op)))

    async def look_up(self, op: Op) -> None:
        await self.ask(LookUpKey(tenant=self.tenant, record_id=self._record_id(op)))
        job_id = self.simulation.job_ids_by_key.get(self._record_id(op))
        if job_id is not None:
            await self.ask(LookUpJob(tenant=self.tenant, job_id=job_id))

    async def sweep(self, op: Op) -> None:
        retention_ms = self.simulation.plan.retention_ms

        async def work(gate: Gate) -> CallResults:
            gate.cache.evict_expired()
            await Sweeper(gate, retention_ms=retention_ms).sweep()
            return []

        await self._send(work)

    async def flush_hits(self, op: Op) -> None:
        async def work(gate: Gate) -> CallResults:
            return list(await gate.execute(gate.hits.take()))

        await self._send(work)

    async def purge(self, op: Op) -> None:
        """Purge the tenant while others submit: what they submit meanwhile may stay."""

        async def work(gate: Gate) -> CallResults:
            await purge_tenant(gate, self.tenant, PurgeProgress())
            return []

        for attempt in range(TRIES_MAX):
            results = await self._send(work)
            if results is not None and not results:
                return
            await asyncio.sleep(_BACKOFF * attempt)

    def _build_submit(
        self, op: Op, *, key: int | None = None, body: int | None = None, keyless: bool = False
    ) -> Submit:
        fields = self._submission_fields(op, key=key, body=body)
        if keyless:
            fields |= {"key": "", "record_id": b""}
        return Submit(**fields)

    def _submission_fields(self, op: Op, *, key: int | None = None, body: int | None = None) -> dict[str, Any]:
        body = op.body if body is None else body
        return {
            "tenant": self.tenant,
            "user": self.user,
            "actor": self.actor,
            "type": "walk",
            "scope": "walk",
            "key": f"key{op.key if key is None else key}",
            "record_id": self._record_id(op, key),
            "fingerprint": b"\x01" + bytes([body]) * 32,
            "input": b'{"body":%d}' % body,
            "job_id": self.simulation.new_candidate(),
            "ttl_ms": op.ttl_ms,
            "usage_id": self.usage_id,
            "policy_id": self.policy_id,
            "cost": self.number % 3,
            **self._delivery_fields(),
        }

    def _delivery_fields(self) -> dict[str, Any]:
        if not self.simulation.plan.has_workers:
            return {}
        once = self.number % 2 == 1
        return {
            "delivery": Delivery.AT_MOST_ONCE if once else Delivery.AT_LEAST_ONCE,
            "attempts_max": 1 + self.number % 3,
            "timeout_ms": JOB_TIMEOUT_MS if self.number % 4 >= 2 else 0,
        }

    def _record_id(self, op: Op, key: int | None = None) -> bytes:
        return self.simulation.record_id(self.tenant, op.key if key is None else key)

    def _remember_job(self, command: SubmissionCommand, reply: AnyReply | None) -> None:
        """Remember the job of a key, so that an operation can cancel it."""
        if isinstance(reply, (Created, Replayed)) and reply.job is not None:
            self.simulation.job_ids_by_key[command.record_id] = reply.job.id
        elif isinstance(reply, (KeyHeld, InProgress)) and reply.job_id:
            self.simulation.job_ids_by_key[command.record_id] = reply.job_id


_OPERATIONS: dict[Verb, Callable[[Client, Op], Awaitable[object]]] = {
    Verb.SUBMIT: Client.submit,
    Verb.SUBMIT_MANY: Client.submit_many,
    Verb.SUBMIT_WITHOUT_KEY: Client.submit_without_key,
    Verb.RESERVE: Client.reserve,
    Verb.TAKE_OVER: Client.take_over,
    Verb.CANCEL: Client.cancel,
    Verb.FORGET: Client.forget,
    Verb.DRY_RUN: Client.dry_run,
    Verb.LOOK_UP: Client.look_up,
    Verb.SWEEP: Client.sweep,
    Verb.FLUSH_HITS: Client.flush_hits,
    Verb.PURGE: Client.purge,
    Verb.RESERVE_SLOT: Client.reserve_slot,
    Verb.SET_LIMITS: Client.set_limits,
    Verb.RECONCILE: Client.reconcile,
    Verb.SUBMIT_SEQUENCE: Client.submit_sequence,
    Verb.WORK: Client.run_one_job,
}
