"""The rules of slots, limits, sequences and foreign keys once more, as plainly as those of keys."""

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
from onejob.core.submit import StoreKey

from .purse import HOLDING, LIVE, Need, Purse, Purses, Rules, text
from .shelf import Key, Row

Said = tuple[Any, ...]
DAY = 86_400_000
LOST = ("refused", "SLOT_LOST")


class Clerk(Purses):
    def _set_limits(self, c: SetLimits, now: int, _: Any) -> Said:
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        purse = self.purses.get(c.usage_id)
        if (purse.limits if purse else b"") != c.limits:
            purse = self.purses.setdefault(c.usage_id, Purse(now))
            purse.limits, purse.stamp = c.limits, now
        return self._tally(c, now)

    def _set_policy(self, c: SetPolicy, now: int, _: Any) -> Said:
        rules = self.rules.get(c.policy_id)
        if rules is None:
            self.rules[c.policy_id] = Rules(c.body, now)
        elif rules.body != c.body:
            rules.body, rules.stamp, rules.version = c.body, max(now, rules.stamp), rules.version + 1
        return ("policy", c.body)

    def _look_up_tally(self, c: LookUpUsage, now: int, _: Any) -> Said:
        return self._tally(c, self.stamped(now, tally=c.usage_id, policy=c.policy_id))

    def _tally(self, c: Any, now: int) -> Said:
        return ("tally", self.standing(c.tally_id, now) if c.tally_id in self.purses else None)

    def _reserve_slot(self, c: ReserveSlot, now: int, _: Any) -> Said:
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        before = self._slot(c, now)
        if before is not None:
            return ("slot", c.reservation, before.expires) if before.state == "active" else LOST
        until = now + c.ttl_ms
        need = Need(until=until, name=c.reservation, new=False, most=c.max_concurrent)
        charged = self.charge(c.usage_id, c.policy_id, need, now, anyway=True)
        return charged if isinstance(charged, tuple) else ("slot", c.reservation, until)

    def _slot(self, c: Any, now: int) -> Any:
        purse = self.purses.get(c.tally_id)
        return None if purse is None else purse.slot(c.reservation, now)

    def _renew_slot(self, c: RenewSlot, now: int, _: Any) -> Said:
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        slot = self._slot(c, now)
        if slot is None or slot.state != "active":
            return LOST
        slot.expires = self.purses[c.usage_id].stamp = now
        slot.expires += c.ttl_ms
        return ("slot", c.reservation, slot.expires)

    def _release_slot(self, c: ReleaseSlot, now: int, _: Any) -> Said:
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        slot = self._slot(c, now)
        if slot is not None and slot.state == "consumed":
            return ("refused", "ALREADY_SETTLED")
        if slot is not None and slot.state == "active":
            slot.state, self.purses[c.usage_id].stamp = "released", now
        return ("slot settled", "released")

    def _consume_slot(self, c: ConsumeSlot, now: int, _: Any) -> Said:
        _, now = self.judge(now, b"", c.job_id)
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        slot, job = self._slot(c, now), self.jobs.get(c.job_id)
        if slot is not None and (slot.state, slot.job) == ("consumed", text(c.job_id)):
            return ("slot settled", "consumed")
        if slot is None or slot.state != "active":
            return LOST
        if c.job_id and job is None:
            return ("missing",)
        if job is not None and usage_id(c.tenant, job.user) != c.usage_id:
            return ("refused", "NOT_THE_OWNER")
        slot.state, slot.job, slot.cost = "consumed", text(c.job_id), 0
        self.purses[c.usage_id].stamp = now
        if job is not None and not job.slot and job.state in LIVE:
            job.slot, job.stamp = c.usage_id, now
        return ("slot settled", "consumed")

    def _adopt(self, c: Backfill, now: int, _: Any) -> Said:
        _, now = self.judge(now, b"", c.job_id)
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        job = self.jobs.get(c.job_id)
        counted = c.usage_id in self.purses or self.allowed(c.usage_id, c.policy_id)
        if job is None or job.slot or job.state not in LIVE or job.user != c.user or not counted:
            return ("tended", False)
        self.purses.setdefault(c.usage_id, Purse(now)).stamp = job.stamp = now
        job.slot = c.usage_id
        return ("tended", True)

    def _recount(self, c: Reconcile, now: int, reply: Any) -> Said:
        """What was counted is what there is: upkeep finds no drift, unless it came too late to tell."""
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        purse = self.purses.get(c.usage_id)
        looked = bool(getattr(reply, "changed", False))
        if purse is None or not looked:
            return ("recounted", 0, False)
        marked = [job for job in self.jobs.values() if job.slot == c.usage_id and job.state in HOLDING]
        if (c.live, c.cost_held) != (self.live(c.usage_id), sum(job.cost for job in marked)):
            return ("recounted", 0, False)
        unexpired = [slot for slot in purse.slots.values() if now <= slot.expires]
        if not (purse.limits or unexpired or c.jobs_counted) and not _says_something(self.standing(c.usage_id, now)):
            del self.purses[c.usage_id]
        else:
            purse.stamp = now
        return ("recounted", 0, True)

    def _submit_sequence(self, c: SubmitSequence, now: int, _: Any) -> Said:
        key, now = self.judge(now, c.record_id, *(item.job_id for item in c.items))
        now = self.stamped(now, tally=c.usage_id, policy=c.policy_id)
        row = self.rows.get(c.stream_id)
        now = max(now, row.stamp if row else 0)
        if row is not None and row.owner != c.owner:
            return ("refused", "NOT_THE_OWNER")
        last = row.last if row else 0
        if key is not None and key.lives(now):
            return self._known(c, key, last)
        if c.sequence > last + 1:
            return ("refused", "SEQUENCE_GAP", last)
        if c.sequence <= last:
            return ("already", (), c.sequence, last, 0)
        return self._execute(c, row, now)

    def _known(self, c: SubmitSequence, key: Key, last: int) -> Said:
        if (key.client, key.fingerprint) != (c.client_id, c.fingerprint):
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        if key.holder == c.items[0].job_id:
            return ("committed", key.jobs, key.number, key.expires)
        return ("already", key.jobs, key.number, last, key.expires)

    def _execute(self, c: SubmitSequence, row: Row | None, now: int) -> Said:
        need = Need(len(c.items), sum(item.cost for item in c.items))
        charged = self.charge(c.usage_id, c.policy_id, need, now)
        if isinstance(charged, tuple):
            return charged
        until = now + c.ttl_ms
        slot = c.usage_id if charged else b""
        for item in c.items:
            self.make_job(item.job_id, "pending", until, now, user=c.user, slot=slot, cost=item.cost)
        jobs = tuple(item.job_id for item in c.items)
        key = self.make_key(c, "committed", jobs[0], 0, until, now)
        key.client, key.number, key.jobs, key.job = c.client_id, c.sequence, jobs, jobs[0]
        row = self.rows.setdefault(c.stream_id, Row(0, now, c.owner, 0, now))
        row.last, row.seen, row.expires, row.stamp, row.evicted = c.sequence, now, now + DAY, now, False
        self.counts["numbers"] += 1
        return ("committed", jobs, c.sequence, until)

    def _look_up_stream(self, c: LookUpStream, _: int, __: Any) -> Said:
        row = self.rows.get(c.stream_id)
        return ("missing",) if row is None else ("stream", row.last, row.owner)

    def _evict(self, c: Evict, now: int, _: Any) -> Said:
        row = self.rows.get(c.stream_id)
        now = max(now, row.stamp if row else 0)
        if row is None or now <= row.expires:
            return ("tended", False)
        if row.evicted:
            del self.rows[c.stream_id]
        else:
            row.evicted, row.expires, row.stamp = True, now + 400 * DAY, now
        return ("tended", True)

    def _store_key(self, c: StoreKey, now: int, _: Any) -> Said:
        key, now = self.judge(now, c.record_id)
        if key is not None and key.lives(now):
            if c.external_id and c.external_id in (key.foreign, text(key.job)):
                return ("settled", key.status, key.job, key.token)
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        self.make_key(c, "committed", b"", 0, now + c.ttl_ms, now).foreign = c.external_id
        return ("settled", "committed", b"", 1)


RULES: dict[type[Any], Callable[..., Said]] = {
    SetLimits: Clerk._set_limits,
    SetPolicy: Clerk._set_policy,
    LookUpUsage: Clerk._look_up_tally,
    ReserveSlot: Clerk._reserve_slot,
    RenewSlot: Clerk._renew_slot,
    ReleaseSlot: Clerk._release_slot,
    ConsumeSlot: Clerk._consume_slot,
    Backfill: Clerk._adopt,
    Reconcile: Clerk._recount,
    SubmitSequence: Clerk._submit_sequence,
    LookUpStream: Clerk._look_up_stream,
    Evict: Clerk._evict,
    StoreKey: Clerk._store_key,
}


def _says_something(standing: tuple[Any, ...]) -> bool:
    """Whether anything is counted at all."""
    *counts, spent = standing
    return any(counts) or any(spent)
