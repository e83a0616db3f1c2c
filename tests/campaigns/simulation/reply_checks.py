"""Checks of every reply, from the view of a client: what it sent, what it received, and when."""

from collections import Counter
from typing import Any

from msgspec import Struct

from onejob.core.command import Command
from onejob.core.replies import AnyReply, Created, Defect, KeyHeld, Rejected, Replayed
from onejob.core.states import IMMUTABLE_STATES, JobState
from onejob.core.submit import SubmissionCommand, Submit
from onejob.errors import NotAccepted, Unavailable

from .commit_checks import CommitChecker, KeyWindow
from .store import SimStore, command_identity


class Call(Struct):
    """One call of one client."""

    client: int
    sent: float
    clock: int  # the store's clock when it was sent
    commands: tuple[Command[Any], ...]


class ReplyChecker:
    def __init__(self, commit_checker: CommitChecker, store: SimStore) -> None:
        self.commit_checker = commit_checker
        self.store = store
        self.acknowledged: set[bytes] = set()
        self.slack_ms = 0  # by how much a jumping or drifting clock may extend a gate's cache
        self.steps_back: list[
            tuple[float, int]
        ] = []  # of the store's clock: virtual time, and the clock after the step
        self._call_counts: Counter[bytes] = Counter()
        self._creators: dict[bytes, bytes] = {}
        self._holders: dict[tuple[bytes, bytes, int], bytes] = {}

    def on_call(self, command: Command[Any]) -> None:
        name = command_identity(command)
        self._call_counts[name] += 1
        self.commit_checker.certainly_not_done.discard(name)

    def on_reply(self, call: Call, command: Command[Any], result: AnyReply | BaseException) -> None:
        self.commit_checker.counts[f"answer {_type_name(result)}"] += 1
        if isinstance(result, BaseException):
            self._check_failure(call, command, result)
            return
        if isinstance(result, Defect):
            self.commit_checker.report_violation(
                "every command can be decided", f"{type(command).__name__}: {result.message}"
            )
            return
        is_own = self._is_own_reply(call, command, result)
        if isinstance(command, SubmissionCommand):
            self._check_submission_reply(call, command, result, is_own=is_own)
        elif not is_own:
            self.commit_checker.report_violation(
                "a reply belongs to its own command", f"{type(command).__name__}: {result}"
            )

    def _is_own_reply(self, call: Call, command: Command[Any], reply: AnyReply) -> bool:
        """True if the store decided this very command after the call; equal reads may share a reply."""
        decided = self.commit_checker.decided_replies.get(id(reply))
        if decided is None or decided[2] < call.sent:
            return False
        return decided[1] is command or (not command.writes and decided[1] == command)

    def _check_failure(self, call: Call, command: Command[Any], error: BaseException) -> None:
        """A failure is never shared: the command itself failed, or the read of its job."""
        if isinstance(error, Unavailable) and isinstance(command, SubmissionCommand):
            self._check_not_done(command)
        if isinstance(command, Submit) and len(call.commands) == 1 and not isinstance(error, NotAccepted):
            names = [
                command_identity(command),
                *(job for key, job in self.commit_checker.windows if key == command.record_id),
            ]
            if not any(self.store.failed_commands.get(name, -1.0) >= call.sent for name in names):
                self.commit_checker.report_violation("a failure is never shared", f"{command.key!r}: {error}")

    def _check_not_done(self, command: SubmissionCommand) -> None:
        """Unavailable means not executed: if this was the only call, its job must never exist."""
        if self._call_counts[command.job_id] == 1:
            self.commit_checker.certainly_not_done.add(command.job_id)
            window = self.commit_checker.windows.get((command.record_id, command.job_id))
            # Inside the window a repeated command finds its job; afterwards the key has another one.
            over = window is not None and window.until < self.store.clock()
            if command.job_id in self.commit_checker.existing_jobs and not over:
                self.commit_checker.report_violation(
                    "unavailable means not done", f"job {command.job_id.hex()} was made"
                )

    def _check_submission_reply(self, call: Call, command: SubmissionCommand, reply: AnyReply, *, is_own: bool) -> None:
        if isinstance(reply, (Replayed, Rejected)):
            # The gate remembers the settled answer of a key without a job, and answers reservations with it too.
            if not is_own and not isinstance(command, Submit) and command.job_id:
                self.commit_checker.report_violation(
                    "only plain submissions share replies", f"{command.key!r}: {reply}"
                )
        elif isinstance(reply, Created):
            if not is_own and self.commit_checker.created_job_ids.get(command.job_id) != reply.job.id:
                self.commit_checker.report_violation("a job is created once", f"{command.key!r}: {reply}")
        elif not is_own:
            # In progress, conflict, refused, held: never cached, never shared.
            self.commit_checker.report_violation("a reply belongs to its own command", f"{command.key!r}: {reply}")
        if isinstance(reply, Created):
            self._check_created(command, reply)
        if isinstance(reply, Replayed) and reply.job is not None:
            self._check_not_created_before(command, reply.job.id)
        if isinstance(reply, KeyHeld):
            self._check_held(command, reply)
        if isinstance(reply, (Created, Replayed)) and reply.job is not None:
            self.acknowledged.add(reply.job.id)
            self._check_job_state(call, reply.job.id, reply.job.state)
        echo = is_own and isinstance(reply, Created)  # a repeated submission, also after its window
        if command.record_id and isinstance(reply, (Created, Replayed, Rejected)) and not echo:
            self._check_window(call, command, reply)

    def _check_created(self, command: SubmissionCommand, reply: Created) -> None:
        creator = self._creators.setdefault(reply.job.id, command.job_id)
        if reply.job.id in self.commit_checker.deleted_jobs:
            return  # and created again by an old command
        if creator != command.job_id:
            self.commit_checker.report_violation("a job is created once", f"{reply.job.id.hex()} for {command.key!r}")

    def _check_not_created_before(self, command: SubmissionCommand, job_id: bytes) -> None:
        """A submission that got "created" never gets "replayed" with the same job."""
        if self.commit_checker.created_job_ids.get(command.job_id) != job_id:
            return
        if command.job_id == job_id:
            self.commit_checker.report_violation(
                "a repeated submission gets the same reply", f"{command.key!r}: replayed"
            )
        # It finished an abandoned key; a gate that has cached another caller's reply cannot know that.
        self.commit_checker.counts["echo lost"] += 1

    def _check_held(self, command: SubmissionCommand, reply: KeyHeld) -> None:
        # A record without a job restarts at token 1, and so does one whose job was deleted.
        name = (command.record_id, reply.job_id, reply.token)
        if not reply.job_id or reply.job_id in self.commit_checker.deleted_jobs:
            return
        if self._holders.setdefault(name, reply.holder) != reply.holder:
            self.commit_checker.report_violation("one holder per token", f"{command.key!r} token {reply.token}")

    def _check_window(self, call: Call, command: SubmissionCommand, reply: Created | Replayed | Rejected) -> None:
        """The key had this job at some moment between call and reply."""
        checker = self.commit_checker
        job_id = reply.job_id if isinstance(reply, Rejected) else reply.job.id if reply.job else b""
        window = checker.windows.get((command.record_id, job_id or getattr(reply, "receipt", b"")))
        detail = f"{command.key!r} {_type_name(reply)} {job_id.hex()}"
        if window is None:
            checker.report_violation("the reply names the key's job", f"{detail}: never its job")
            return
        if window.fingerprint != command.fingerprint:
            checker.report_violation("a job is never shared between fingerprints", detail)
        if isinstance(reply, Rejected) is not (window.status == "rejected"):
            checker.report_violation("the reply matches the key's status", f"{detail}: it is {window.status}")
        # After a step back of the clock the record may have been live again.
        clock = min([call.clock, *(clock for when, clock in self.steps_back if when >= call.sent)])
        if clock - self.slack_ms > window.until:
            late_ms = clock - window.until
            checker.report_violation("no reply comes from an expired record", f"{detail}: called {late_ms} ms later")
        elif window.replaced_at is not None and call.sent > window.replaced_at + self._cached_seconds(window):
            checker.report_violation("the reply names the key's job", f"{detail}: replaced before the call")

    def _cached_seconds(self, window: KeyWindow) -> float:
        """For how long gates may cache a deleted key: they are not notified of a purge."""
        plan = self.store.plan
        memory = max(plan.committed_ttl, plan.rejected_ttl) if window.purged else 0.0
        return memory + self.slack_ms / 1000

    def _check_job_state(self, call: Call, job_id: bytes, state: JobState) -> None:
        """The job had this state at some moment between call and reply."""
        states = self.commit_checker.states.get(job_id, [])
        ends = [*(when for when, _ in states[1:]), float("inf")]
        if not any(
            state is state_then and end >= call.sent for (_, state_then), end in zip(states, ends, strict=False)
        ):
            self.commit_checker.counts["stale state"] += 1
            if not states or state in IMMUTABLE_STATES:
                self.commit_checker.report_violation("a reported state was the job's state", f"{job_id.hex()} {state}")


def _type_name(result: object) -> str:
    return type(result).__name__.lower()
