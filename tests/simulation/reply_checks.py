"""What must hold of the answers: a client knows only what it sent and what it was told, and when."""

from collections import Counter
from typing import Any

from msgspec import Struct

from onejob.core.command import Command
from onejob.core.replies import AnyReply, Created, Defect, KeyHeld, Rejected, Replayed
from onejob.core.states import IMMUTABLE_STATES, JobState
from onejob.core.submit import SubmissionCommand, Submit
from onejob.engine import Unavailable

from .commit_checks import CommitChecker, KeyWindow
from .store import SimStore, command_identity


class Call(Struct):
    """One question of one client."""

    client: int
    sent: float
    clock: int  # the store's, when it was sent
    commands: tuple[Command[Any], ...]


class ReplyChecker:
    def __init__(self, commit_checker: CommitChecker, store: SimStore) -> None:
        self.commit_checker = commit_checker
        self.store = store
        self.acknowledged: set[bytes] = set()
        self.slack_ms = 0  # by how much a jumping or drifting clock may prolong what a gate remembers
        self.steps_back: list[tuple[float, int]] = []  # of the store's clock: when, and what it showed then
        self._call_counts: Counter[bytes] = Counter()
        self._creators: dict[bytes, bytes] = {}
        self._holders: dict[tuple[bytes, bytes, int], bytes] = {}

    def on_call(self, command: Command[Any]) -> None:
        name = command_identity(command)
        self._call_counts[name] += 1
        self.commit_checker.certainly_not_done.discard(name)

    def on_reply(self, ask: Call, command: Command[Any], result: AnyReply | BaseException) -> None:
        self.commit_checker.counts[f"answer {_type_name(result)}"] += 1
        if isinstance(result, BaseException):
            self._check_failure(ask, command, result)
            return
        if isinstance(result, Defect):
            self.commit_checker.report_violation(
                "every command has an answer", f"{type(command).__name__}: {result.message}"
            )
            return
        own = self._is_own_reply(ask, command, result)
        if isinstance(command, SubmissionCommand):
            self._check_submission_reply(ask, command, result, own=own)
        elif not own:
            self.commit_checker.report_violation("an answer is one's own", f"{type(command).__name__}: {result}")

    def _is_own_reply(self, ask: Call, command: Command[Any], reply: AnyReply) -> bool:
        """Decided in the store after it was asked, for this very command; equal reads may be one."""
        made = self.commit_checker.decided_replies.get(id(reply))
        if made is None or made[2] < ask.sent:
            return False
        return made[1] is command or (not command.writes and made[1] == command)

    def _check_failure(self, ask: Call, command: Command[Any], error: BaseException) -> None:
        """A failure is never shared: the command itself failed, or the look at its job."""
        if isinstance(error, Unavailable) and isinstance(command, SubmissionCommand):
            self._check_not_done(command)
        if isinstance(command, Submit) and len(ask.commands) == 1 and "ledger is" not in str(error):
            names = [
                command_identity(command),
                *(job for key, job in self.commit_checker.windows if key == command.record_id),
            ]
            if not any(self.store.failed_commands.get(name, -1.0) >= ask.sent for name in names):
                self.commit_checker.report_violation("a failure is never shared", f"{command.key!r}: {error}")

    def _check_not_done(self, arrival: SubmissionCommand) -> None:
        """Certainly not done: if it was asked once, its job must never be seen."""
        if self._call_counts[arrival.job_id] == 1:
            self.commit_checker.certainly_not_done.add(arrival.job_id)
            window = self.commit_checker.windows.get((arrival.record_id, arrival.job_id))
            # An echo is heard inside the window; after it, the key speaks of somebody else.
            over = window is not None and window.until < self.store.clock()
            if arrival.job_id in self.commit_checker.existing_jobs and not over:
                self.commit_checker.report_violation(
                    "unavailable means not done", f"job {arrival.job_id.hex()} was made"
                )

    def _check_submission_reply(self, ask: Call, arrival: SubmissionCommand, reply: AnyReply, *, own: bool) -> None:
        if isinstance(reply, (Replayed, Rejected)):
            if not own and not isinstance(arrival, Submit):
                self.commit_checker.report_violation("only submissions share", f"{arrival.key!r}: {reply}")
        elif isinstance(reply, Created):
            if not own and self.commit_checker.created_job_ids.get(arrival.job_id) != reply.job.id:
                self.commit_checker.report_violation("a job is created once", f"{arrival.key!r}: {reply}")
        elif not own:
            # In progress, conflict, refused, held: never from memory, never somebody else's.
            self.commit_checker.report_violation("an answer is one's own", f"{arrival.key!r}: {reply}")
        if isinstance(reply, Created):
            self._check_created(arrival, reply)
        if isinstance(reply, Replayed) and reply.job is not None:
            self._check_not_created_before(arrival, reply.job.id)
        if isinstance(reply, KeyHeld):
            self._check_held(arrival, reply)
        if isinstance(reply, (Created, Replayed)) and reply.job is not None:
            self.acknowledged.add(reply.job.id)
            self._check_job_state(ask, reply.job.id, reply.job.state)
        echo = own and isinstance(reply, Created)  # may come after the window: it is the very same submission
        if arrival.record_id and isinstance(reply, (Created, Replayed, Rejected)) and not echo:
            self._check_window(ask, arrival, reply)

    def _check_created(self, arrival: SubmissionCommand, reply: Created) -> None:
        creator = self._creators.setdefault(reply.job.id, arrival.job_id)
        if reply.job.id in self.commit_checker.deleted_jobs:
            return  # and made again since, by an old command
        if creator != arrival.job_id:
            self.commit_checker.report_violation("a job is created once", f"{reply.job.id.hex()} for {arrival.key!r}")

    def _check_not_created_before(self, arrival: SubmissionCommand, job_id: bytes) -> None:
        """Whoever was told "created" is never told "replayed" of the same job."""
        if self.commit_checker.created_job_ids.get(arrival.job_id) != job_id:
            return
        if arrival.job_id == job_id:
            self.commit_checker.report_violation("the same submission hears the same", f"{arrival.key!r}: replayed")
        # It finished what another had left; a gate that remembers somebody else's answer does not know that.
        self.commit_checker.counts["echo lost"] += 1

    def _check_held(self, arrival: SubmissionCommand, reply: KeyHeld) -> None:
        # A record without a job starts again from token 1, and so does one whose job was dropped.
        name = (arrival.record_id, reply.job_id, reply.token)
        if not reply.job_id or reply.job_id in self.commit_checker.deleted_jobs:
            return
        if self._holders.setdefault(name, reply.holder) != reply.holder:
            self.commit_checker.report_violation("one holder per token", f"{arrival.key!r} token {reply.token}")

    def _check_window(self, ask: Call, arrival: SubmissionCommand, reply: Created | Replayed | Rejected) -> None:
        """The job was the key's at some moment between question and answer."""
        watch = self.commit_checker
        job_id = reply.job_id if isinstance(reply, Rejected) else reply.job.id if reply.job else b""
        window = watch.windows.get((arrival.record_id, job_id or getattr(reply, "receipt", b"")))
        what = f"{arrival.key!r} {_type_name(reply)} {job_id.hex()}"
        if window is None:
            watch.report_violation("the answer is the key's job", f"{what}: never its job")
            return
        if window.fingerprint != arrival.fingerprint:
            watch.report_violation("a job is never shared between fingerprints", what)
        if isinstance(reply, Rejected) is not (window.status == "rejected"):
            watch.report_violation("the answer is the key's state", f"{what}: it is {window.status}")
        # A clock that stepped back in between may have found the record alive again.
        clock = min([ask.clock, *(clock for when, clock in self.steps_back if when >= ask.sent)])
        if clock - self.slack_ms > window.until:
            late = clock - window.until
            watch.report_violation("nothing is answered from an expired record", f"{what}: asked {late} ms after")
        elif window.replaced_at is not None and ask.sent > window.replaced_at + self._cached_seconds(window):
            watch.report_violation("the answer is the key's job", f"{what}: replaced before it was asked")

    def _cached_seconds(self, window: KeyWindow) -> float:
        """For how long gates may go on with what is gone: they are not told of an erasure."""
        plan = self.store.plan
        memory = max(plan.committed_ttl, plan.rejected_ttl) if window.purged else 0.0
        return memory + self.slack_ms / 1000

    def _check_job_state(self, ask: Call, job_id: bytes, state: JobState) -> None:
        """The state is one that the job had at some moment between question and answer."""
        told = self.commit_checker.states.get(job_id, [])
        ends = [*(when for when, _ in told[1:]), float("inf")]
        if not any(state is was and end >= ask.sent for (_, was), end in zip(told, ends, strict=False)):
            self.commit_checker.counts["stale state"] += 1
            if not told or state in IMMUTABLE_STATES:
                self.commit_checker.report_violation("a state is one that was", f"{job_id.hex()} {state}")


def _type_name(result: object) -> str:
    return type(result).__name__.lower()
