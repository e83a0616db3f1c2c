"""Checks of every commit: against the model, and against invariants that need no model."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from onejob.core.facts import JOB_ID_BYTES, AttachmentKind, Job, Kind, Record
from onejob.core.maintenance import Purge
from onejob.core.replies import AnyReply, Cancelled, Created
from onejob.core.reserve import Settle
from onejob.core.states import ENDED_STATES, IMMUTABLE_STATES, IdempotencyStatus, JobState
from onejob.core.submit import Submit

from .comparison import format_short, model_reply, modelled_fact, stored_fact
from .invariants import find_violations
from .loop import VirtualLoop
from .model import Model
from .store import FactChange, Proposal, SimStore, command_identity

VIOLATIONS_MAX = 5


class KeyWindow(Struct):
    """The time in which a key belongs to one job."""

    fingerprint: bytes
    until: int
    status: str
    replaced_at: float | None = None  # when another job, or none, took its place
    purged: bool = False  # deleted inside its window: gates may cache it for a while


class CommitChecker:
    """Observes every commit, in order."""

    def __init__(self, loop: VirtualLoop, record_event: Callable[[str], None]) -> None:
        self.model = Model()
        self.store: SimStore | None = None
        self.violations: list[str] = []
        self.windows: dict[tuple[bytes, bytes], KeyWindow] = {}
        # By id(); the reply itself is kept, so that no id is reused.
        self.decided_replies: dict[int, tuple[AnyReply, Any, float]] = {}
        self.created_job_ids: dict[bytes, bytes] = {}  # candidate -> job of the reply "created"
        self.certainly_not_done: set[bytes] = set()  # candidates whose only call was Unavailable
        self.proposed_job_ids: set[bytes] = set()  # candidates of all submissions
        self.existing_jobs: set[bytes] = set()
        self.deleted_jobs: set[bytes] = set()
        self.states: dict[bytes, list[tuple[float, JobState]]] = {}  # of each job: since when it had which state
        self.counts: Counter[str] = self.model.counts
        self._last_window_ends: dict[bytes, int] = {}  # of records that were deleted
        self._loop = loop
        self._now = loop.time
        self._record_event = record_event

    def report_violation(self, invariant: str, detail: str) -> None:
        self._record_event(f"VIOLATION {invariant}: {detail}")
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{invariant}: {detail}")
        self._loop.halt()

    def on_commit(self, proposal: Proposal, changes: list[FactChange]) -> None:
        """Check the replies and the changes of one commit."""
        now = proposal.now
        for command, reply in zip(proposal.commands, proposal.replies, strict=True):
            self.decided_replies[id(reply)] = (reply, command, self._now())
            if isinstance(reply, Created):
                self.created_job_ids[command_identity(command)] = reply.job.id
            expected = self.model.expect(command, now, reply)
            actual = model_reply(reply)
            command_name = type(command).__name__
            self._record_event(f"{now} {command_name} {format_short(expected)}")
            self.counts[f"{command_name} {expected[0]}"] += 1
            if actual != expected:
                self.report_violation("replies equal those of the model", f"{command_name}: {actual}, not {expected}")
        erased = {command.tenant for command in proposal.commands if isinstance(command, Purge)}
        replaced_records = {old.id for old, new in changes if isinstance(old, Record) and _is_replaced(old, new)}
        for old, new in changes:
            if isinstance(new or old, Job):
                self._check_job_change(old, new, now, erased=erased, replaced_records=replaced_records)
        settling = any(isinstance(command, Settle) for command in proposal.commands)
        for old, new in changes:
            if isinstance(new or old, Record):
                self._check_record_change(old, new, now, settling=settling, erased=erased)
        for invariant, detail in find_violations(proposal, changes, self.store):
            self.report_violation(invariant, detail)
        if erased:
            self._check_created_and_purged(proposal)
        self._compare_with_model(proposal)

    def _check_created_and_purged(self, proposal: Proposal) -> None:
        """A job that was created or cancelled, and purged in one batch has no change, but its caller got a reply."""
        for command, reply in zip(proposal.commands, proposal.replies, strict=True):
            if isinstance(reply, Cancelled) and reply.job.id not in self.existing_jobs:
                self.states.setdefault(reply.job.id, []).append((self._now(), reply.job.state))
            if not isinstance(reply, Created) or reply.job.id in self.existing_jobs:
                continue
            self.deleted_jobs.add(reply.job.id)
            self.states.setdefault(reply.job.id, [(self._now(), reply.job.state)])
            if isinstance(command, Submit) and command.record_id:
                name = (command.record_id, reply.job.id)
                window = KeyWindow(command.fingerprint, reply.expires_at, "committed", self._now(), purged=True)
                self.windows.setdefault(name, window)

    def _compare_with_model(self, proposal: Proposal) -> None:
        """All facts that these commands read must be equal in the model and in the store."""
        assert self.store is not None
        records, jobs = self.store.tables[Kind.RECORD], self.store.tables[Kind.JOB]
        for kind, id, _ in proposal.read_set:
            stored = self.store.tables[kind].get(id)
            now = max(proposal.now, getattr(stored, "changed_at", 0))
            ours, theirs = modelled_fact(self.model, kind, id, now), stored_fact(stored, now)
            if ours != theirs:
                self.report_violation(
                    "stored facts equal those of the model", f"{kind.name} {id.hex()}: {theirs}, not {ours}"
                )
            elif kind is Kind.RECORD:
                self._check_job_outlives_record(records.get(id), jobs)
            elif kind is Kind.JOB and stored is not None:
                self.model.jobs[id].changed_at = stored.changed_at  # the model has no rule for it

    def _check_job_outlives_record(self, record: Record | None, jobs: dict[bytes, Job]) -> None:
        """Maintenance must not delete a job that is being prepared or has ended before its record."""
        if record is None or not record.job_ids:
            return
        job = jobs.get(record.job_id)
        if job is None or (job.state not in ENDED_STATES and job.state is not JobState.PREPARING):
            return
        # A job that is being prepared is due for a take-over with its lease, and ended after its key.
        due_at = job.keep_until if job.state is JobState.PREPARING else job.due_at
        if 0 < due_at < record.expires_at:
            self.report_violation("no job is deleted before its record", f"{record.key!r}: due at {due_at}")

    def _check_record_change(
        self, old: Record | None, new: Record | None, now: int, *, settling: bool, erased: set[str]
    ) -> None:
        now = max(now, old.changed_at if old else 0, new.changed_at if new else 0)
        was_live = old is not None and (now <= old.expires_at or now <= old.lease_until)
        if old is not None and _is_replaced(old, new):
            purged = old.tenant in erased
            if was_live and not purged:
                self.report_violation("one job per window", f"{old.key!r} at {now} lost {old.job_ids.hex()} early")
            window = self._window_of(old)
            window.replaced_at, window.purged = self._now(), purged
            self._last_window_ends[old.id] = 0 if purged else max(old.expires_at, old.lease_until)
        elif old is not None and new is not None:
            self._check_same_window(old, new, now, settling=settling)
        if old is None and new is not None:
            self._check_new_window(new)
        if new is not None:
            window = self._window_of(new)
            if old is None or new.created_at != old.created_at:
                window.replaced_at, window.purged = None, False
            window.until = max(new.expires_at, new.lease_until)
            window.status = new.status.value
            for id in split_job_ids(new.job_ids):
                if id not in self.existing_jobs:
                    self.report_violation("a step is atomic", f"a record without its job {id.hex()}")

    def _check_new_window(self, new: Record) -> None:
        """A deletion leaves no timestamp, so nothing but its own date keeps a new record out of the window before."""
        assert self.store is not None
        ended_at = self._last_window_ends.get(new.id, 0)
        if new.created_at <= ended_at and not self.store.plan.faults.back:
            self.report_violation(
                "one job per window", f"{new.key!r} at {new.created_at} was another's until {ended_at}"
            )

    def _check_same_window(self, old: Record, new: Record, now: int, *, settling: bool) -> None:
        if old.status is not IdempotencyStatus.PENDING:
            fixed = ("status", "fingerprint", "holder", "token", "receipt", "lease_until", "ttl_ms")
            changed = [name for name in fixed if getattr(old, name) != getattr(new, name)]
            if changed:
                self.report_violation("a settled record never changes", f"{old.key!r}: {changed}")
            if new.expires_at > old.expires_at:
                self.report_violation("a settled record never changes", f"{old.key!r} expires later")
        if new.fingerprint != old.fingerprint:
            self.report_violation("a key keeps its fingerprint", old.key)
        if new.token < old.token or (new.holder != old.holder and new.token == old.token):
            self.report_violation("tokens never decrease", f"{old.key!r}: {old.token} to {new.token}")
        # A lease may be released and acquired in one batch.
        if new.token != old.token and now <= old.lease_until and not settling:
            self.report_violation(
                "a key is not taken over before its lease ends",
                f"{old.key!r} taken at {now}, held until {old.lease_until}",
            )

    def _check_job_change(
        self, old: Job | None, new: Job | None, now: int, *, erased: set[str], replaced_records: set[bytes]
    ) -> None:
        if new is not None and (old is None or old.state is not new.state):
            self.states.setdefault(new.id, []).append((self._now(), new.state))
        if old is None and new is not None:
            if new.id in self.existing_jobs:
                self.report_violation("a job is created once", new.id.hex())
            if new.id not in self.proposed_job_ids:
                self.report_violation("a job id comes from its submission", new.id.hex())
            if new.id in self.certainly_not_done:
                self.report_violation("unavailable means not done", f"job {new.id.hex()} was created")
            assert self.store is not None
            if (new.id, AttachmentKind.INPUT, 0) not in self.store.attachments:
                self.report_violation("a step is atomic", f"job {new.id.hex()} without its input")
            self.counts["made again"] += new.id in self.deleted_jobs
            self.existing_jobs.add(new.id)
        elif old is not None and new is None:
            purged = old.tenant in erased
            if old.state not in ENDED_STATES and not purged:
                self.report_violation("no job is lost", f"{old.id.hex()} went while {old.state}")
            for (record_id, job_id), window in self.windows.items():
                if purged and record_id in replaced_records:
                    continue  # purged together with its record
                if job_id == old.id and window.replaced_at is None and now <= window.until:
                    self.report_violation("no job is deleted before its record", f"{old.id.hex()} at {now}")
            # A repeated command finds its job only while that is stored, which is seconds here.
            self.existing_jobs.discard(old.id)
            self.deleted_jobs.add(old.id)
        elif old is not None and new is not None:
            if new.changed_at < old.changed_at:
                self.report_violation("timestamps never decrease", old.id.hex())
            if old.state in IMMUTABLE_STATES and new.state is not old.state:
                self.report_violation("an ended job stays ended", f"{old.id.hex()}: {old.state} to {new.state}")
            if new.state is JobState.PREPARING and old.state is not JobState.PREPARING:
                self.report_violation("a ready job is not prepared again", old.id.hex())

    def _window_of(self, record: Record) -> KeyWindow:
        # A record without a job is identified by its receipt.
        name = (record.id, record.job_ids or record.receipt)
        window = self.windows.get(name)
        if window is None:
            window = self.windows[name] = KeyWindow(record.fingerprint, 0, "")
        return window


def _is_replaced(old: Record, new: Record | None) -> bool:
    """True if the key no longer belongs to this job."""
    return new is None or new.created_at != old.created_at or new.job_ids != old.job_ids


def split_job_ids(job_ids: bytes) -> list[bytes]:
    return [job_ids[at : at + JOB_ID_BYTES] for at in range(0, len(job_ids), JOB_ID_BYTES)]
