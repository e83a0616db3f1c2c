"""The rules once more, plainly: dicts, no cleverness, written from the design and not from the core.

It is told each command in the order in which the store took them, with the store's time, and says what the
answer must be and how the key and the job must look afterwards.
"""

from collections.abc import Callable
from typing import Any

from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import AnyReply, Maintained
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver, Verdict
from onejob.core.submit import Submit
from onejob.core.work import Cancel

from .clerk import RULES
from .foreman import WORK_RULES, Foreman
from .purse import Need, text
from .shelf import Key, Work

Said = tuple[Any, ...]


class Model(Foreman):
    def expect(self, command: Any, now: int, reply: AnyReply) -> Said:
        """The only right answer. Where the design leaves a choice, the reply says which one was made."""
        return _RULES[type(command)](self, command, now, reply)

    def _arrives(self, c: Any, key: Key, now: int) -> Said | None:
        """What a living key says; None: it is pending, and nobody holds it."""
        if key.foreign:
            return self._replay(key)
        if key.client:
            return ("refused", "IDEMPOTENCY_KEY_REUSED")
        if key.fingerprint != c.fingerprint or bool(key.job) != bool(c.job_id):
            return ("conflict", key.job)
        if key.status == "committed":
            return self._replay(key)
        if key.status == "rejected":
            return ("rejected", key.job, key.receipt, key.expires)
        if now <= key.lease:
            return ("in_progress", key.job, key.lease - now + 1)
        return None

    def _replay(self, key: Key) -> Said:
        state = self.jobs[key.job].state if key.job else ""
        return ("replayed", key.job, state, key.expires, key.receipt)

    def _at(self, c: Any, now: int) -> tuple[Key | None, int]:
        """A submission's look at its key, its job, its user and the tenant; without a job at its key alone."""
        if not c.job_id:
            return self.alone(now, c.record_id)
        key, now = self.judge(now, c.record_id, c.job_id)
        return key, self.stamped(now, tally=c.usage_id, policy=c.policy_id)

    def _submit(self, c: Submit, now: int, reply: Any, *, dry: bool = False) -> Said:
        key, now = self._at(c, now)
        if key is None or not key.lives(now):
            if c.job_id in self.jobs:  # this very command, again, after its window: nobody may live on it
                over = min(getattr(reply, "expires_at", 0), now - 1)
                return ("created", c.job_id, self.jobs[c.job_id].state, over)
            need = Need(1, c.cost, c.reservation, job=text(c.job_id), had=bool(c.reservation))
            charged = self.charge(c.usage_id, c.policy_id, need, now, dry=dry)
            if isinstance(charged, tuple):
                return charged
            expires = now + c.ttl_ms if c.record_id else 0
            if not dry:
                self._make(c, "pending", expires, now, charged=charged)
                if c.record_id:
                    self.make_key(c, "committed", c.job_id, 0, expires, now)
            return ("created", c.job_id, "pending", expires)
        said = self._arrives(c, key, now)
        if said is None:
            return self._finish(c, key, now, dry=dry)
        if said[0] == "replayed" and key.holder == c.job_id:
            return ("created", *said[1:4])
        return said

    def _make(self, c: Any, state: str, until: int, now: int, *, charged: bool) -> None:
        slot = c.usage_id if charged else b""
        self.make_job(c.job_id, state, until, now, user=c.user, slot=slot, cost=c.cost)
        job = self.jobs[c.job_id]
        job.once, job.most = c.delivery == "at_most_once", c.attempts_max

    def _finish(self, c: Submit, key: Key, now: int, *, dry: bool) -> Said:
        job = self.jobs[key.job]
        if job.ended:
            return self._close(key, job, now, dry=dry)
        need = Need(1, job.cost, c.reservation, job=text(key.job), new=False, had=bool(c.reservation))
        charged = self.charge(c.usage_id, c.policy_id, need, now, dry=dry)
        if isinstance(charged, tuple):
            return charged
        if not dry:
            self.counts["take-overs"] += 1
            job.slot, job.user = c.usage_id if charged else b"", c.user
            key.holder, key.token = c.job_id, key.token + 1
            self.settle_key(key, "committed", now + c.ttl_ms, b"", now)
            job.state = "pending"
            self.tie(job, key, now)
        return ("created", key.job, "pending", now + c.ttl_ms)

    def _close(self, key: Key, job: Work, now: int, *, dry: bool = False) -> Said:
        """Cancelled while it was prepared: that is the answer from now on."""
        if not dry:
            self.settle_key(key, "committed", now + key.ttl, b"", now)
            self.tie(job, key, now)
        return ("replayed", key.job, job.state, now + key.ttl, b"")

    def _reserve(self, c: Reserve, now: int, reply: Any, *, dry: bool = False) -> Said:
        key, now = self._at(c, now)
        if key is None or not key.lives(now):
            if c.job_id and c.job_id in self.jobs:
                return ("refused", "STALE")
            lease = now + c.lease_ms
            charged: Any = False
            if c.job_id:
                need = self._preparing(c.job_id, c.cost, lease, using=c.reservation)
                charged = self.charge(c.usage_id, c.policy_id, need, now, dry=dry)
                if isinstance(charged, tuple):
                    return charged
            if not dry:
                self.make_key(c, "pending", c.holder, lease, lease + c.ttl_ms, now)
                if c.job_id:
                    self._make(c, "preparing", lease + c.ttl_ms, now, charged=charged)
            return ("held", c.job_id, 1, c.holder, lease, False)
        said = self._arrives(c, key, now)
        if said is None:
            job = self.jobs[key.job] if key.job else None
            if job is None or job.ended:
                return self._take(key, c, now, dry=dry)
            need = self._preparing(job.id, job.cost, now + c.lease_ms, using=c.reservation)
            need.new = False
            charged = self.charge(c.usage_id, c.policy_id, need, now, dry=dry)
            if isinstance(charged, tuple):
                return charged
            if not dry:
                job.slot, job.user = c.usage_id if charged else b"", c.user
            return self._take(key, c, now, dry=dry)
        if said[0] == "in_progress" and key.holder == c.holder:
            return self._hold(key)
        return said

    def _preparing(self, job_id: bytes, cost: int, until: int, *, using: str) -> Need:
        """While it is prepared it has a slot in its own name, until the lease ends."""
        return Need(1, cost, using, until, job_id.hex(), text(job_id), had=bool(using))

    def _hold(self, key: Key) -> Said:
        return ("held", key.job, key.token, key.holder, key.lease, key.token > 1)

    def _take(self, key: Key, c: Any, now: int, *, dry: bool = False) -> Said:
        job = self.jobs[key.job] if key.job else None
        if job is not None and job.ended:
            return self._close(key, job, now, dry=dry)
        lease = now + c.lease_ms
        if not dry:
            self.counts["take-overs"] += 1
            key.holder, key.token, key.lease = c.holder, key.token + 1, lease
            key.expires, key.stamp = lease + key.ttl, now
            self.tie(job, key, now)
        return ("held", key.job, key.token + dry, c.holder, lease, True)

    def _take_over(self, c: TakeOver, now: int, _: Any) -> Said:
        key, now = self._followed(c, now)
        if key is None or not key.lives(now):
            return ("missing",)
        if key.status == "committed":
            return self._replay(key)
        if key.status == "rejected":
            return ("rejected", key.job, key.receipt, key.expires)
        if now > key.lease:
            regained = self.regain(self.jobs.get(key.job), c.policy_id, now, until=now + c.lease_ms)
            return regained if isinstance(regained, tuple) else self._take(key, c, now)
        if key.holder == c.holder:
            return self._hold(key)
        return ("in_progress", key.job, key.lease - now + 1)

    def _followed(self, c: Any, now: int) -> tuple[Key | None, int]:
        """A key, its job, and the user who is counted for it."""
        key, now = self.judge(now, c.record_id)
        job = self.jobs.get(key.job) if key is not None else None
        return key, self.stamped(now, tally=job.slot if job else b"", policy=c.policy_id)

    def _held_by(self, c: Any, now: int) -> tuple[Key | None, int]:
        key, now = self._followed(c, now) if c.job_id else self.alone(now, c.record_id)
        mine = key is not None and (key.job, key.token, key.holder) == (c.job_id, c.token, c.holder)
        return (key if key is not None and mine and key.lives(now) else None), now

    def _renew(self, c: Renew, now: int, _: Any) -> Said:
        key, now = self._held_by(c, now)
        if key is None:
            return ("refused", "STALE")
        if key.status != "pending" or not key.lease:
            return ("refused", "ALREADY_SETTLED")
        regained = self.regain(self.jobs.get(key.job), c.policy_id, now, until=now + c.lease_ms)
        if isinstance(regained, tuple):
            return regained
        key.lease, key.expires, key.stamp = now + c.lease_ms, now + c.lease_ms + key.ttl, now
        self.tie(self.jobs.get(key.job), key, now)
        return self._hold(key)

    def _settle(self, c: Settle, now: int, _: Any) -> Said:
        key, now = self._held_by(c, now)
        if key is None:
            return ("refused", "STALE")
        status = {Verdict.COMMIT: "committed", Verdict.REJECT: "rejected", Verdict.FAIL: "pending"}[c.verdict]
        if key.status != "pending" or not key.lease:
            if (key.status, key.receipt) == (status, c.receipt):
                return ("settled", status, key.job, key.token)
            return ("refused", "ALREADY_SETTLED")
        job = self.jobs.get(key.job)
        if job is not None and not job.ended:
            if status == "committed":
                regained = self.regain(job, c.policy_id, now, until=0)
                if isinstance(regained, tuple):
                    return regained
                job.state, job.slot = "pending", job.slot if regained else b""
            elif status == "rejected":
                self.end(job, "failed", now)
            else:
                self.drop_slot(job, now)
        self.settle_key(key, status, now + (c.ttl_ms or key.ttl), c.receipt, now)
        self.tie(job, key, now)
        return ("settled", status, key.job, key.token)

    def _look_up(self, c: LookUpKey, now: int, _: Any) -> Said:
        key, now = self.judge(now, c.record_id)
        if key is None or not key.lives(now):
            return ("missing",)
        state = self.jobs[key.job].state if key.job else ""
        return ("found", key.job, key.status, key.token, state)

    def _look_up_job(self, c: LookUpJob, _: int, __: Any) -> Said:
        job = self.jobs.get(c.job_id)
        return ("missing",) if job is None else ("found", c.job_id, "", 0, job.state)

    def _probe(self, c: DryRun, now: int, reply: Any) -> Said:
        foreseen = getattr(reply, "reply", reply)
        if isinstance(c.command, Submit):
            return ("foreseen", self._submit(c.command, now, foreseen, dry=True))
        assert isinstance(c.command, Reserve)
        return ("foreseen", self._reserve(c.command, now, foreseen, dry=True))

    def _cancel(self, c: Cancel, now: int, _: Any) -> Said:
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        if job.ended:
            return ("cancelled", c.job_id, job.state, False)
        self.end(job, "cancelled", self.stamped(max(now, job.stamp), tally=job.slot))
        return ("cancelled", c.job_id, "cancelled", True)

    def _forget(self, c: Forget, now: int, _: Any) -> Said:
        key, now = self.judge(now, c.record_id)
        if key is None or not key.lives(now):
            return ("missing",)
        if key.status == "pending" and now <= key.lease:
            return ("refused", "IN_PROGRESS")
        key.expires, key.stamp = min(key.expires, now + c.grace_ms), now
        self.tie(self.jobs.get(key.job), key, now)
        return ("forgotten", key.expires)

    def _expire(self, c: Expire, now: int, _: Any) -> Said:
        key = self.keys.get(c.record_id)
        if key is None or key.lives(max(now, key.stamp)):
            return ("tended", False)
        del self.keys[c.record_id]
        self.counts["expired"] += 1
        return ("tended", True)

    def _tend(self, c: Maintain, now: int, reply: Any) -> Said:
        """Upkeep may come late, never early: when it acts, its time must have come."""
        job = self.jobs.get(c.job_id)
        if job is None or not (isinstance(reply, Maintained) and reply.changed):
            return ("tended", False)
        now = self.stamped(max(now, job.stamp), tally=job.slot)
        if job.ended and now > max(job.ended + c.retention_ms, job.until):
            del self.jobs[c.job_id]
            self.counts["retained"] += 1
        elif job.state == "preparing" and now > job.until:
            self.end(job, "failed", now)
            self.counts["abandoned"] += 1
        elif not self.lapse(job, now):
            return ("tended", False)
        return ("tended", True)

    def _count(self, c: CountHits, now: int, _: Any) -> Said:
        key = self.keys.get(c.record_id)
        if key is None or not key.lives(max(now, key.stamp)):
            return ("tended", False)
        key.hits, key.conflicts, key.stamp = (
            key.hits + c.hits,
            key.conflicts + c.conflicts,
            max(now, key.stamp),
        )
        return ("tended", True)

    def _purge(self, c: Purge, now: int, _: Any) -> Said:
        """A key goes with its job, whatever their state; a job by itself only when no living key can name it."""
        gone = 0
        if c.record_id and c.record_id in self.keys:
            key = self.keys.pop(c.record_id)
            self.jobs.pop(key.job, None)
            gone += 1
        for job_id in c.job_ids:
            job = self.jobs.get(job_id)
            if job is not None and max(now, job.stamp) > job.until:
                del self.jobs[job_id]
                gone += 1
        self.counts["purged"] += gone
        return ("tended", gone > 0)


_RULES: dict[type[Any], Callable[..., Said]] = {
    Submit: Model._submit,
    Reserve: Model._reserve,
    TakeOver: Model._take_over,
    Renew: Model._renew,
    Settle: Model._settle,
    LookUpKey: Model._look_up,
    LookUpJob: Model._look_up_job,
    DryRun: Model._probe,
    Cancel: Model._cancel,
    Forget: Model._forget,
    Expire: Model._expire,
    Maintain: Model._tend,
    CountHits: Model._count,
    Purge: Model._purge,
    **RULES,
    **WORK_RULES,
}
