"""The rules of slots, limits, sequences and external keys, as part of the model."""

from collections.abc import Callable
from typing import Any

from onejob.core.credentials import SetPolicy
from onejob.core.identity import usage_id
from onejob.core.sequence import Evict, LookUpStream, SubmitSequence
from onejob.core.slots import (
    Backfill,
    ConsumeSlot,
    LookUpUsage,
    Reconcile,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
)
from onejob.core.submit import ExternalJob, StoreKey

from .model_state import ModelKey, ModelStream
from .usage_model import HOLDING_MONEY, LIVE, ModelPolicy, QuotaRequest, UsageModel, UserUsage, job_id_text

ModelReply = tuple[Any, ...]
DAY = 86_400_000
SLOT_LOST = ("refused", "SLOT_LOST")
SLOT_USED = ("refused", "ALREADY_SETTLED")


class QuotaModel(UsageModel):
    def _set_limits(self, c: SetLimits, now: int, _: Any) -> ModelReply:
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        usage = self.usages.get(c.usage_id)
        if (usage.limits if usage else b"") != c.limits:
            usage = self.usages.setdefault(c.usage_id, UserUsage(now))
            usage.limits, usage.changed_at = c.limits, now
        return self._usage_reply(c, now)

    def _set_policy(self, c: SetPolicy, now: int, _: Any) -> ModelReply:
        policy = self.policies.get(c.policy_id)
        if policy is None:
            self.policies[c.policy_id] = ModelPolicy(c.body, now)
        elif policy.body != c.body:
            policy.body, policy.changed_at, policy.version = c.body, max(now, policy.changed_at), policy.version + 1
        return ("policy", c.body)

    def _look_up_usage(self, c: LookUpUsage, now: int, _: Any) -> ModelReply:
        return self._usage_reply(c, self.decision_time(now, usage=c.usage_id, policy=c.policy_id))

    def _usage_reply(self, c: Any, now: int) -> ModelReply:
        return ("usage", self.usage_counts(c.usage_id, now) if c.usage_id in self.usages else None)

    def _reserve_slot(self, c: ReserveSlot, now: int, _: Any) -> ModelReply:
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        slot = self._find_slot(c, now)
        if slot is not None:
            return ("slot", c.reservation, slot.expires_at) if slot.state == "active" else SLOT_USED
        until = now + c.ttl_ms
        request = QuotaRequest(until=until, slot_name=c.reservation, counts_rate=False, caller_limit=c.max_concurrent)
        charged = self.charge(c.usage_id, c.policy_id, request, now, always_counted=True)
        return charged if isinstance(charged, tuple) else ("slot", c.reservation, until)

    def _find_slot(self, c: Any, now: int) -> Any:
        usage = self.usages.get(c.usage_id)
        return None if usage is None else usage.slot(c.reservation, now)

    def _renew_slot(self, c: RenewSlot, now: int, _: Any) -> ModelReply:
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        slot = self._find_slot(c, now)
        if slot is None or slot.state != "active":
            return SLOT_LOST if slot is None else SLOT_USED
        slot.expires_at = self.usages[c.usage_id].changed_at = now
        slot.expires_at += c.ttl_ms
        return ("slot", c.reservation, slot.expires_at)

    def _release_slot(self, c: ReleaseSlot, now: int, _: Any) -> ModelReply:
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        slot = self._find_slot(c, now)
        if slot is not None and slot.state == "consumed":
            return SLOT_USED
        if slot is not None and slot.state == "active":
            slot.state, self.usages[c.usage_id].changed_at = "released", now
        return ("slot settled", "released")

    def _consume_slot(self, c: ConsumeSlot, now: int, _: Any) -> ModelReply:
        _, now = self.key_and_time(now, b"", c.job_id)
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        slot, job = self._find_slot(c, now), self.jobs.get(c.job_id)
        if slot is not None and (slot.state, slot.job) == ("consumed", job_id_text(c.job_id)):
            return ("slot settled", "consumed")
        if slot is None or slot.state != "active":
            return SLOT_LOST if slot is None else SLOT_USED
        if c.job_id and job is None:
            return ("missing",)
        if job is not None and usage_id(c.tenant, job.user) != c.usage_id:
            return ("refused", "NOT_THE_OWNER")
        slot.state, slot.job, slot.cost = "consumed", job_id_text(c.job_id), 0
        self.usages[c.usage_id].changed_at = now
        if job is not None and not job.slot and job.state in LIVE:
            job.slot, job.changed_at = c.usage_id, now
        return ("slot settled", "consumed")

    def _backfill(self, c: Backfill, now: int, _: Any) -> ModelReply:
        _, now = self.key_and_time(now, b"", c.job_id)
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        job = self.jobs.get(c.job_id)
        counted = c.usage_id in self.usages or self.effective_limits(c.usage_id, c.policy_id)
        if job is None or job.slot or job.state not in LIVE or job.user != c.user or not counted:
            return ("maintained", False)
        self.usages.setdefault(c.usage_id, UserUsage(now)).changed_at = job.changed_at = now
        job.slot = c.usage_id
        return ("maintained", True)

    def _reconcile(self, c: Reconcile, now: int, reply: Any) -> ModelReply:
        """The model has no drift: reconciling finds none, unless the usage changed meanwhile."""
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        usage = self.usages.get(c.usage_id)
        is_applied = bool(getattr(reply, "changed", False))
        if usage is None or not is_applied:
            return ("reconciled", 0, False)
        jobs = [job for job in self.jobs.values() if job.slot == c.usage_id and job.state in HOLDING_MONEY]
        if (c.live, c.cost_held) != (self.live_jobs(c.usage_id), sum(job.cost for job in jobs)):
            return ("reconciled", 0, False)
        unexpired = [slot for slot in usage.slots.values() if now <= slot.expires_at]
        if not (usage.limits or unexpired or c.jobs_counted) and not _counts_anything(
            self.usage_counts(c.usage_id, now)
        ):
            del self.usages[c.usage_id]
        else:
            usage.changed_at = now
        return ("reconciled", 0, True)

    def _submit_sequence(self, c: SubmitSequence, now: int, reply: Any) -> ModelReply:
        key, now = self.key_and_time(now, c.record_id, *(item.job_id for item in c.items))
        now = self.decision_time(now, usage=c.usage_id, policy=c.policy_id)
        stream = self.streams.get(c.stream_id)
        now = max(now, stream.changed_at if stream else 0)
        if stream is not None and stream.owner != c.owner:
            return ("refused", "NOT_THE_OWNER")
        last = stream.last if stream else 0
        if key is not None and key.is_live(now):
            return self._replay_sequence(c, key, last)
        if c.sequence > last + 1:
            return ("refused", "SEQUENCE_GAP", last)
        if c.sequence <= last:
            return self._refuse_used_number(c, last, now, reply)
        return self._execute_sequence(c, stream, now)

    def _refuse_used_number(self, c: SubmitSequence, last: int, now: int, reply: Any) -> ModelReply:
        jobs = tuple(item.job_id for item in c.items)
        if all(
            job in self.jobs for job in jobs
        ):  # the same command again, after its window: the reply must not extend it
            return ("committed", jobs, c.sequence, min(getattr(reply, "expires_at", 0), now - 1))
        return ("refused", "ALREADY_COMMITTED", last)

    def _replay_sequence(self, c: SubmitSequence, key: ModelKey, last: int) -> ModelReply:
        if (key.client_id, key.fingerprint) != (c.client_id, c.fingerprint):
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        if key.holder == c.items[0].job_id:
            return ("committed", key.jobs, key.sequence, key.expires_at)
        return ("already", key.jobs, key.sequence, last, key.expires_at)

    def _execute_sequence(self, c: SubmitSequence, stream: ModelStream | None, now: int) -> ModelReply:
        request = QuotaRequest(len(c.items), sum(item.cost for item in c.items))
        charged = self.charge(c.usage_id, c.policy_id, request, now)
        if isinstance(charged, tuple):
            return charged
        until = now + c.ttl_ms
        slot = c.usage_id if charged else b""
        for item in c.items:
            self.make_job(item.job_id, "pending", until, now, user=c.user, slot=slot, cost=item.cost)
        jobs = tuple(item.job_id for item in c.items)
        key = self.make_key(c, "committed", jobs[0], 0, until, now)
        key.client_id, key.sequence, key.jobs, key.job = c.client_id, c.sequence, jobs, jobs[0]
        stream = self.streams.setdefault(c.stream_id, ModelStream(0, now, c.owner, 0, now))
        stream.last, stream.last_seen, stream.changed_at = c.sequence, now, now
        stream.expires_at, stream.evicted = now + DAY, False
        self.counts["numbers"] += 1
        return ("committed", jobs, c.sequence, until)

    def _look_up_stream(self, c: LookUpStream, _: int, __: Any) -> ModelReply:
        stream = self.streams.get(c.stream_id)
        return ("missing",) if stream is None else ("stream", stream.last, stream.owner)

    def _evict(self, c: Evict, now: int, _: Any) -> ModelReply:
        stream = self.streams.get(c.stream_id)
        now = max(now, stream.changed_at if stream else 0)
        if stream is None or now <= stream.expires_at:
            return ("maintained", False)
        if stream.evicted:
            del self.streams[c.stream_id]
        else:
            stream.evicted, stream.expires_at, stream.changed_at = True, now + 400 * DAY, now
        return ("maintained", True)

    def _store_key(self, c: StoreKey, now: int, _: Any) -> ModelReply:
        key, now = self.key_and_time(now, c.record_id)
        job = self.jobs.get(key.job) if key is not None else None
        now = self.decision_time(now, usage=job.slot if job else b"")
        if key is None or not key.is_known(now):
            external = ExternalJob(c.external_id, c.actor, c.user, c.ttl_ms, fingerprint=c.fingerprint)
            return ("settled", "committed", b"", self.store_external_job(c.record_id, external, now).token)
        is_other = bool(c.fingerprint) and key.fingerprint not in (b"", c.fingerprint)
        if c.external_id not in (key.external_id, job_id_text(key.job)) or is_other:
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        if key.status == "pending":
            return ("refused", "IN_PROGRESS")
        return ("settled", key.status, key.job, key.token)

    def store_external_job(self, record_id: bytes, external: ExternalJob, now: int, *, dry: bool = False) -> ModelKey:
        """Commit a key that is not known. Its old holder has another token, and the job it prepared is cancelled."""
        old = self.keys.get(record_id)
        was_held = old is not None and old.is_live(now)
        token = old.token + 1 if old is not None and was_held else 1
        until = now + external.ttl_ms
        key = ModelKey(external.fingerprint, "committed", b"", b"", token, 0, until, external.ttl_ms, now)
        key.external_id = external.id
        job = self.jobs.get(old.job) if old is not None and was_held else None
        if not dry:
            self.keys[record_id] = key
            if job is not None and not job.ended_at:
                self.end(job, "cancelled", now)
                job.keep_until = 0
        return key


QUOTA_RULES: dict[type[Any], Callable[..., ModelReply]] = {
    SetLimits: QuotaModel._set_limits,
    SetPolicy: QuotaModel._set_policy,
    LookUpUsage: QuotaModel._look_up_usage,
    ReserveSlot: QuotaModel._reserve_slot,
    RenewSlot: QuotaModel._renew_slot,
    ReleaseSlot: QuotaModel._release_slot,
    ConsumeSlot: QuotaModel._consume_slot,
    Backfill: QuotaModel._backfill,
    Reconcile: QuotaModel._reconcile,
    SubmitSequence: QuotaModel._submit_sequence,
    LookUpStream: QuotaModel._look_up_stream,
    Evict: QuotaModel._evict,
    StoreKey: QuotaModel._store_key,
}


def _counts_anything(usage_counts: tuple[Any, ...]) -> bool:
    *counts, spent = usage_counts
    return any(counts) or any(spent)
