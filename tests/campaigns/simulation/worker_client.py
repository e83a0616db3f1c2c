"""Operations of a worker: claim, start, extend and finish a job; or exceed the lease, or abandon the job."""

import asyncio
from typing import TYPE_CHECKING, Any

from onejob.core.facts import Job
from onejob.core.maintenance import Maintain
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.replies import Claimed, Started, StepBegun
from onejob.core.reserve import Verdict
from onejob.core.states import Delivery
from onejob.core.work import Claim, Extend, Finish, FinishOutcome, Release, Start
from onejob.engine import ListReadyJobs
from onejob.engines.gate import Gate

from .plan import Op
from .process import CallResults

if TYPE_CHECKING:
    from .client_protocol import ClientProtocol
else:
    ClientProtocol = object

_RETRY_MS = 150


class WorkerClient(ClientProtocol):
    async def run_one_job(self, op: Op) -> None:
        """Run one ready job, if there is one."""
        found: list[Job] = []

        async def list_ready(gate: Gate) -> CallResults:
            found.extend((await gate.scan(ListReadyJobs(types=("walk",), tenant=self.tenant))).items)
            return []

        await self._send(list_ready)
        if not found:
            return
        job = found[op.key % len(found)]
        holder = self.simulation.ids.holder()
        claim = Claim(tenant=self.tenant, job_id=job.id, holder=holder, lease_ms=op.lease_ms, start=op.body % 2 == 1)
        reply = await self.ask_until_answered(claim)
        if isinstance(reply, Claimed) and op.verdict is not None:
            reply = await self._start(op, reply.job)
        if isinstance(reply, Started):
            await self._run_attempt(op, reply.job)

    async def _start(self, op: Op, job: Job) -> Any:
        """Start the job, perhaps twice, as a broker that delivers twice: one start succeeds."""
        if op.renewals == 1:
            await asyncio.sleep(op.think_ms / 1000)
        holders = [self.simulation.ids.holder() for _ in range(1 + op.is_repeated)]
        starts = [
            Start(tenant=self.tenant, job_id=job.id, token=job.token, holder=holder, lease_ms=op.lease_ms)
            for holder in holders
        ]
        replies = await asyncio.gather(*(self.ask_until_answered(start) for start in starts))
        started = [reply for reply in replies if isinstance(reply, Started)]
        if len(started) > 1:
            self.simulation.commit_checker.report_violation(
                "a token is started once", f"{job.id.hex()} token {job.token}"
            )
        return started[0] if started else None

    async def _run_attempt(self, op: Op, job: Job) -> None:
        fence: dict[str, Any] = {
            "tenant": self.tenant,
            "job_id": job.id,
            "token": job.token,
            "holder": job.holder,
        }
        await self._run_steps(op, fence)
        for n in range(op.renewals):
            await self._work(op, job)
            line = (f"{job.token} {n}",)
            await self.ask_until_answered(Extend(**fence, lease_ms=op.lease_ms, logs=line, offset=job.logs + n))
        await self._work(op, job)
        report = self._final_command(op, fence)
        if report is not None:
            await self.ask_until_answered(report)
            if op.is_repeated:
                await self.ask(report)

    async def _run_steps(self, op: Op, fence: dict[str, Any]) -> None:
        """Run two steps, of which the second is at most once, and leave some unfinished."""
        for n, delivery in enumerate(Delivery):
            begin = BeginStep(
                **fence,
                name=f"step {n}",
                fingerprint=b"%d" % (op.wait_ms % 3 // 2),  # now and then a conflict
                step_holder=self.simulation.ids.holder(),
                delivery=delivery,
            )
            reply = await self.ask_until_answered(begin)
            if isinstance(reply, StepBegun) and (op.think_ms + n) % 4 != 1:
                await asyncio.sleep(op.think_ms / 2000)
                finish = FinishStep(
                    tenant=self.tenant,
                    job_id=begin.job_id,
                    name=begin.name,
                    token=begin.token,
                    step_holder=begin.step_holder,
                    result=begin.step_holder,
                )
                await self.ask_until_answered(finish)

    async def _work(self, op: Op, job: Job) -> None:
        """Work for a while; a sweep may come between the end of the lease and the next report."""
        await asyncio.sleep(op.think_ms / 1000)
        if op.think_ms > op.lease_ms:
            retention_ms = self.simulation.plan.retention_ms
            await self.ask(Maintain(tenant=self.tenant, job_id=job.id, retention_ms=retention_ms))

    def _final_command(self, op: Op, fence: dict[str, Any]) -> Finish | Release | None:
        common: dict[str, Any] = {"actor": self.actor, "retention_ms": self.simulation.plan.retention_ms}
        match op.verdict:
            case Verdict.COMMIT:
                cost = 1 if op.is_repeated else None
                return Finish(**fence, **common, outcome=FinishOutcome.SUCCESS, result=fence["holder"], cost=cost)
            case Verdict.REJECT:
                return Finish(**fence, **common, outcome=FinishOutcome.FAILED, error="no", final=True)
            case Verdict.FAIL if op.is_repeated:
                return Release(**fence, delay_ms=_RETRY_MS if op.renewals else 0)
            case Verdict.FAIL:
                return Finish(**fence, **common, outcome=FinishOutcome.FAILED, error="later", retry_ms=_RETRY_MS)
        return None
