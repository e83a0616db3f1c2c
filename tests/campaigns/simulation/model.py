"""A second, plain implementation of the rules, written from the design and not from the core.

The model gets each command in the order of the commits, with the store's time. It returns the expected reply and keeps the
expected state of keys and jobs in dicts.
"""

from collections.abc import Callable
from typing import Any

from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import AnyReply, Maintained
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver, Verdict
from onejob.core.submit import Submit
from onejob.core.work import Cancel

from .model_state import ModelJob, ModelKey
from .quota_model import QUOTA_RULES
from .step_model import STEP_RULES, StepModel
from .usage_model import QuotaRequest, job_id_text
from .work_model import WORK_RULES

ModelReply = tuple[Any, ...]


class Model(StepModel):
    def expect(self, command: Any, now: int, reply: AnyReply) -> ModelReply:
        """The expected reply. Where the design leaves a choice, `reply` shows which one was made."""
        return _ALL_RULES[type(command)](self, command, now, reply)

    def _existing_key_reply(self, c: Any, key: ModelKey, now: int) -> ModelReply | None:
        """The reply of a live key; None if it is pending and its lease has ended."""
        if key.external_id:
            return ("conflict", key.job) if key.fingerprint not in (b"", c.fingerprint) else self._replay(key)
        if key.client_id:
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        if key.fingerprint != c.fingerprint or bool(key.job) != bool(c.job_id):
            return ("conflict", key.job)
        if key.status == "committed":
            return self._replay(key)
        if key.status == "rejected":
            return ("rejected", key.job, key.receipt, key.expires_at)
        if now <= key.lease_until:
            return ("in_progress", key.job, key.lease_until - now + 1)
        return None

    def _replay(self, key: ModelKey) -> ModelReply:
        state = self.jobs[key.job].state if key.job else ""
        return ("replayed", key.job, state, key.expires_at, key.receipt)

    def _submission_key_and_time(self, c: Any, now: int) -> tuple[ModelKey | None, int]:
        """The key of a submission, and its decision time from all facts it reads: without a job only the key."""
        if not c.job_id and c.external_job is None:
            return self.key_and_time_without_job(now, c.record_id)
        key, now = self.key_and_time(now, c.record_id, c.job_id)
        return key, self.decision_time(now, usage=c.usage_id, policy=c.policy_id)

    def _submit(self, c: Submit, now: int, reply: Any, *, dry: bool = False) -> ModelReply:
        key, now = self._submission_key_and_time(c, now)
        if c.external_job is not None and (key is None or not key.is_known(now)):
            return self._replay(self.store_external_job(c.record_id, c.external_job, now, dry=dry))
        if key is None or not key.is_live(now):
            if c.job_id in self.jobs:  # the same command again, after its window: the reply must not extend it
                expired_at = min(getattr(reply, "expires_at", 0), now - 1)
                return ("created", c.job_id, self.jobs[c.job_id].state, expired_at)
            request = QuotaRequest(1, c.cost, c.reservation, job=job_id_text(c.job_id), had_slot=bool(c.reservation))
            charged = self.charge(c.usage_id, c.policy_id, request, now, dry_run=dry)
            if isinstance(charged, tuple):
                return charged
            expires = now + c.ttl_ms if c.record_id else 0
            if not dry:
                self._create_job(c, "pending", expires, now, charged=charged)
                if c.record_id:
                    self.make_key(c, "committed", c.job_id, 0, expires, now)
            return ("created", c.job_id, "pending", expires)
        stored_reply = self._existing_key_reply(c, key, now)
        if stored_reply is None:
            return self._finish_abandoned_key(c, key, now, dry=dry)
        if stored_reply[0] == "replayed" and key.holder == c.job_id:
            return ("created", *stored_reply[1:4])
        return stored_reply

    def _create_job(self, c: Any, state: str, until: int, now: int, *, charged: bool) -> None:
        slot = c.usage_id if charged else b""
        self.make_job(c.job_id, state, until, now, user=c.user, slot=slot, cost=c.cost)
        job = self.jobs[c.job_id]
        job.at_most_once, job.attempts_max = c.delivery == "at_most_once", c.attempts_max
        job.timeout_ms = c.timeout_ms

    def _finish_abandoned_key(self, c: Submit, key: ModelKey, now: int, *, dry: bool) -> ModelReply:
        job = self.jobs[key.job]
        if job.ended_at:
            return self._commit_ended_job(key, job, now, dry=dry)
        request = QuotaRequest(
            1, job.cost, c.reservation, job=job_id_text(key.job), counts_rate=False, had_slot=bool(c.reservation)
        )
        charged = self.charge(c.usage_id, c.policy_id, request, now, dry_run=dry)
        if isinstance(charged, tuple):
            return charged
        if not dry:
            self.counts["take-overs"] += 1
            job.slot, job.user = c.usage_id if charged else b"", c.user
            key.holder, key.token = c.job_id, key.token + 1
            self.settle_key(key, "committed", now + c.ttl_ms, b"", now)
            job.state = "pending"
            self.keep_job_with_key(job, key, now)
        return ("created", key.job, "pending", now + c.ttl_ms)

    def _commit_ended_job(self, key: ModelKey, job: ModelJob, now: int, *, dry: bool = False) -> ModelReply:
        """The job was cancelled while it was prepared: the key now returns the cancelled job."""
        if not dry:
            self.settle_key(key, "committed", now + key.ttl, b"", now)
            self.keep_job_with_key(job, key, now)
        return ("replayed", key.job, job.state, now + key.ttl, b"")

    def _reserve(self, c: Reserve, now: int, reply: Any, *, dry: bool = False) -> ModelReply:
        key, now = self._submission_key_and_time(c, now)
        if c.external_job is not None and (key is None or not key.is_known(now)):
            return self._replay(self.store_external_job(c.record_id, c.external_job, now, dry=dry))
        if key is None or not key.is_live(now):
            if c.job_id and c.job_id in self.jobs:
                return ("refused", "STALE")
            lease = now + c.lease_ms
            charged: Any = False
            if c.job_id:
                request = self._preparation_request(c.job_id, c.cost, lease, using=c.reservation)
                charged = self.charge(c.usage_id, c.policy_id, request, now, dry_run=dry)
                if isinstance(charged, tuple):
                    return charged
            if not dry:
                self.make_key(c, "pending", c.holder, lease, lease + c.ttl_ms, now)
                if c.job_id:
                    self._create_job(c, "preparing", lease + c.ttl_ms, now, charged=charged)
            return ("held", c.job_id, 1, c.holder, lease, False)
        stored_reply = self._existing_key_reply(c, key, now)
        if stored_reply is None:
            job = self.jobs[key.job] if key.job else None
            if job is None or job.ended_at:
                return self._grant_lease(key, c, now, dry=dry)
            request = self._preparation_request(job.id, job.cost, now + c.lease_ms, using=c.reservation)
            request.counts_rate = False
            charged = self.charge(c.usage_id, c.policy_id, request, now, dry_run=dry)
            if isinstance(charged, tuple):
                return charged
            if not dry:
                job.slot, job.user = c.usage_id if charged else b"", c.user
            return self._grant_lease(key, c, now, dry=dry)
        if stored_reply[0] == "in_progress" and key.holder == c.holder:
            return self._held_reply(key)
        return stored_reply

    def _preparation_request(self, job_id: bytes, cost: int, until: int, *, using: str) -> QuotaRequest:
        """A job that is being prepared holds a slot under its own id, until the lease ends."""
        return QuotaRequest(1, cost, using, until, job_id.hex(), job_id_text(job_id), had_slot=bool(using))

    def _held_reply(self, key: ModelKey) -> ModelReply:
        return ("held", key.job, key.token, key.holder, key.lease_until, key.token > 1)

    def _grant_lease(self, key: ModelKey, c: Any, now: int, *, dry: bool = False) -> ModelReply:
        job = self.jobs[key.job] if key.job else None
        if job is not None and job.ended_at:
            return self._commit_ended_job(key, job, now, dry=dry)
        lease = now + c.lease_ms
        if not dry:
            self.counts["take-overs"] += 1
            key.holder, key.token, key.lease_until = c.holder, key.token + 1, lease
            key.expires_at, key.changed_at = lease + key.ttl, now
            self.keep_job_with_key(job, key, now)
        return ("held", key.job, key.token + dry, c.holder, lease, True)

    def _take_over(self, c: TakeOver, now: int, _: Any) -> ModelReply:
        key, now = self._key_job_and_usage_time(c, now)
        if key is None or not key.is_live(now):
            return ("missing",)
        if key.status == "committed":
            return self._replay(key)
        if key.status == "rejected":
            return ("rejected", key.job, key.receipt, key.expires_at)
        if now > key.lease_until:
            reclaimed = self.reclaim_slot(self.jobs.get(key.job), c.policy_id, now, until=now + c.lease_ms)
            return reclaimed if isinstance(reclaimed, tuple) else self._grant_lease(key, c, now)
        if key.holder == c.holder:
            return self._held_reply(key)
        return ("in_progress", key.job, key.lease_until - now + 1)

    def _key_job_and_usage_time(self, c: Any, now: int) -> tuple[ModelKey | None, int]:
        """The key, and its decision time from the key, its job and its usage."""
        key, now = self.key_and_time(now, c.record_id)
        job = self.jobs.get(key.job) if key is not None else None
        return key, self.decision_time(now, usage=job.slot if job else b"", policy=c.policy_id)

    def _key_if_held(self, c: Any, now: int) -> tuple[ModelKey | None, int]:
        key, now = self._key_job_and_usage_time(c, now) if c.job_id else self.key_and_time_without_job(now, c.record_id)
        is_holder = key is not None and (key.job, key.token, key.holder) == (c.job_id, c.token, c.holder)
        return (key if key is not None and is_holder and key.is_live(now) else None), now

    def _renew(self, c: Renew, now: int, _: Any) -> ModelReply:
        key, now = self._key_if_held(c, now)
        if key is None:
            return ("refused", "STALE")
        if key.status != "pending" or not key.lease_until:
            return ("refused", "ALREADY_SETTLED")
        reclaimed = self.reclaim_slot(self.jobs.get(key.job), c.policy_id, now, until=now + c.lease_ms)
        if isinstance(reclaimed, tuple):
            return reclaimed
        key.lease_until, key.expires_at, key.changed_at = now + c.lease_ms, now + c.lease_ms + key.ttl, now
        self.keep_job_with_key(self.jobs.get(key.job), key, now)
        return self._held_reply(key)

    def _settle(self, c: Settle, now: int, _: Any) -> ModelReply:
        key, now = self._key_if_held(c, now)
        if key is None:
            return ("refused", "STALE")
        status = {Verdict.COMMIT: "committed", Verdict.REJECT: "rejected", Verdict.FAIL: "pending"}[c.verdict]
        if key.status != "pending" or not key.lease_until:
            if (key.status, key.receipt) == (status, c.receipt):
                return ("settled", status, key.job, key.token)
            return ("refused", "ALREADY_SETTLED")
        job = self.jobs.get(key.job)
        if job is not None and not job.ended_at:
            if status == "committed":
                reclaimed = self.reclaim_slot(job, c.policy_id, now, until=0)
                if isinstance(reclaimed, tuple):
                    return reclaimed
                job.state, job.slot = "pending", job.slot if reclaimed else b""
            elif status == "rejected":
                self.end(job, "failed", now)
            else:
                self.drop_slot(job, now)
        self.settle_key(key, status, now + (c.ttl_ms or key.ttl), c.receipt, now)
        self.keep_job_with_key(job, key, now)
        return ("settled", status, key.job, key.token)

    def _look_up(self, c: LookUpKey, now: int, _: Any) -> ModelReply:
        key, now = self.key_and_time(now, c.record_id)
        if key is None or not key.is_live(now):
            return ("missing",)
        state = self.jobs[key.job].state if key.job else ""
        return ("found", key.job, key.status, key.token, state)

    def _look_up_job(self, c: LookUpJob, _: int, __: Any) -> ModelReply:
        job = self.jobs.get(c.job_id)
        return ("missing",) if job is None else ("found", c.job_id, "", 0, job.state)

    def _dry_run(self, c: DryRun, now: int, reply: Any) -> ModelReply:
        dry_run_reply = getattr(reply, "reply", reply)
        if isinstance(c.command, Submit):
            return ("dry run", self._submit(c.command, now, dry_run_reply, dry=True))
        assert isinstance(c.command, Reserve)
        return ("dry run", self._reserve(c.command, now, dry_run_reply, dry=True))

    def _cancel(self, c: Cancel, now: int, _: Any) -> ModelReply:
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        if c.verb_key in job.cancels:
            return ("cancelled", c.job_id, job.state, job.cancels[c.verb_key])
        changed = not job.ended_at
        if changed:
            self.end(job, "cancelled", self.decision_time(max(now, job.changed_at), usage=job.slot))
        if c.verb_key:
            job.cancels[c.verb_key] = changed
            if len(job.cancels) > 8:
                del job.cancels[next(iter(job.cancels))]
        return ("cancelled", c.job_id, job.state, changed)

    def _forget(self, c: Forget, now: int, _: Any) -> ModelReply:
        key, now = self.key_and_time(now, c.record_id)
        if key is None or not key.is_live(now):
            return ("missing",)
        if key.status == "pending" and now <= key.lease_until:
            return ("refused", "IN_PROGRESS")
        key.expires_at, key.changed_at = min(key.expires_at, now + c.grace_ms), now
        self.keep_job_with_key(self.jobs.get(key.job), key, now)
        return ("forgotten", key.expires_at)

    def _expire(self, c: Expire, now: int, _: Any) -> ModelReply:
        key = self.keys.get(c.record_id)
        if key is None or key.is_live(max(now, key.changed_at)):
            return ("maintained", False)
        del self.keys[c.record_id]
        self.counts["expired"] += 1
        return ("maintained", True)

    def _maintain(self, c: Maintain, now: int, reply: Any) -> ModelReply:
        """Maintenance may act late, never early."""
        job = self.jobs.get(c.job_id)
        if job is None or not (isinstance(reply, Maintained) and reply.changed):
            return ("maintained", False)
        now = self.decision_time(max(now, job.changed_at), usage=job.slot)
        if job.ended_at and now > max(job.ended_at + c.retention_ms, job.keep_until):
            self.delete_job(c.job_id)
            self.counts["retained"] += 1
        elif job.state == "preparing" and now > job.keep_until:
            self.end(job, "failed", now)
            self.counts["abandoned"] += 1
        elif not self.expire_lease(job, now):
            return ("maintained", False)
        return ("maintained", True)

    def _count_hits(self, c: CountHits, now: int, _: Any) -> ModelReply:
        key = self.keys.get(c.record_id)
        if key is None or not key.is_live(max(now, key.changed_at)):
            return ("maintained", False)
        key.hits, key.conflicts, key.changed_at = (
            key.hits + c.hits,
            key.conflicts + c.conflicts,
            max(now, key.changed_at),
        )
        return ("maintained", True)

    def _purge(self, c: Purge, now: int, _: Any) -> ModelReply:
        """A key is purged with its job, whatever their states; a single job only if no live key can name it."""
        purged = 0
        if c.record_id and c.record_id in self.keys:
            key = self.keys.pop(c.record_id)
            self.delete_job(key.job)
            purged += 1
        for job_id in c.job_ids:
            job = self.jobs.get(job_id)
            if job is not None and max(now, job.changed_at) > job.keep_until:
                self.delete_job(job_id)
                purged += 1
        self.counts["purged"] += purged
        return ("maintained", purged > 0)


_ALL_RULES: dict[type[Any], Callable[..., ModelReply]] = {
    Submit: Model._submit,
    Reserve: Model._reserve,
    TakeOver: Model._take_over,
    Renew: Model._renew,
    Settle: Model._settle,
    LookUpKey: Model._look_up,
    LookUpJob: Model._look_up_job,
    DryRun: Model._dry_run,
    Cancel: Model._cancel,
    Forget: Model._forget,
    Expire: Model._expire,
    Maintain: Model._maintain,
    CountHits: Model._count_hits,
    Purge: Model._purge,
    **QUOTA_RULES,
    **WORK_RULES,
    **STEP_RULES,
}
