"""What must hold of the answers: a client knows only what it sent and what it was told, and when."""

from collections import Counter
from typing import Any

from msgspec import Struct

from onejob.core.command import Command
from onejob.core.replies import AnyReply, Created, Defect, KeyHeld, Rejected, Replayed
from onejob.core.states import IMMUTABLE_STATES, JobState
from onejob.core.submit import SubmissionCommand, Submit
from onejob.engine import Unavailable

from .checks import Watch, Window
from .store import SimStore, name_of


class Ask(Struct):
    """One question of one client."""

    client: int
    sent: float
    clock: int  # the store's, when it was sent
    commands: tuple[Command[Any], ...]


class Answers:
    def __init__(self, watch: Watch, store: SimStore) -> None:
        self.watch = watch
        self.store = store
        self.acknowledged: set[bytes] = set()
        self.slack_ms = 0  # by how much a jumping or drifting clock may prolong what a gate remembers
        self.steps_back: list[tuple[float, int]] = []  # of the store's clock: when, and what it showed then
        self._asked: Counter[bytes] = Counter()
        self._creators: dict[bytes, bytes] = {}
        self._holders: dict[tuple[bytes, bytes, int], bytes] = {}

    def asked(self, command: Command[Any]) -> None:
        name = name_of(command)
        self._asked[name] += 1
        self.watch.denied.discard(name)

    def answered(self, ask: Ask, command: Command[Any], result: AnyReply | BaseException) -> None:
        self.watch.counts[f"answer {_word(result)}"] += 1
        if isinstance(result, BaseException):
            self._failed(ask, command, result)
            return
        if isinstance(result, Defect):
            self.watch.violated("every command has an answer", f"{type(command).__name__}: {result.message}")
            return
        own = self._own(ask, command, result)
        if isinstance(command, SubmissionCommand):
            self._arrived(ask, command, result, own=own)
        elif not own:
            self.watch.violated("an answer is one's own", f"{type(command).__name__}: {result}")

    def _own(self, ask: Ask, command: Command[Any], reply: AnyReply) -> bool:
        """Decided in the store after it was asked, for this very command; equal reads may be one."""
        made = self.watch.decided.get(id(reply))
        if made is None or made[2] < ask.sent:
            return False
        return made[1] is command or (not command.writes and made[1] == command)

    def _failed(self, ask: Ask, command: Command[Any], error: BaseException) -> None:
        """A failure is never shared: the command itself failed, or the look at its job."""
        if isinstance(error, Unavailable) and isinstance(command, SubmissionCommand):
            self._denied(command)
        if isinstance(command, Submit) and len(ask.commands) == 1 and "ledger is" not in str(error):
            names = [name_of(command), *(job for key, job in self.watch.windows if key == command.record_id)]
            if not any(self.store.failed.get(name, -1.0) >= ask.sent for name in names):
                self.watch.violated("a failure is never shared", f"{command.key!r}: {error}")

    def _denied(self, arrival: SubmissionCommand) -> None:
        """Certainly not done: if it was asked once, its job must never be seen."""
        if self._asked[arrival.job_id] == 1:
            self.watch.denied.add(arrival.job_id)
            window = self.watch.windows.get((arrival.record_id, arrival.job_id))
            # An echo is heard inside the window; after it, the key speaks of somebody else.
            over = window is not None and window.until < self.store.clock()
            if arrival.job_id in self.watch.born and not over:
                self.watch.violated("unavailable means not done", f"job {arrival.job_id.hex()} was made")

    def _arrived(self, ask: Ask, arrival: SubmissionCommand, reply: AnyReply, *, own: bool) -> None:
        if isinstance(reply, (Replayed, Rejected)):
            if not own and not isinstance(arrival, Submit):
                self.watch.violated("only submissions share", f"{arrival.key!r}: {reply}")
        elif isinstance(reply, Created):
            if not own and self.watch.created.get(arrival.job_id) != reply.job.id:
                self.watch.violated("a job is created once", f"{arrival.key!r}: {reply}")
        elif not own:
            # In progress, conflict, refused, held: never from memory, never somebody else's.
            self.watch.violated("an answer is one's own", f"{arrival.key!r}: {reply}")
        if isinstance(reply, Created):
            self._created(arrival, reply)
        if isinstance(reply, Replayed) and reply.job is not None:
            self._not_created(arrival, reply.job.id)
        if isinstance(reply, KeyHeld):
            self._held(arrival, reply)
        if isinstance(reply, (Created, Replayed)) and reply.job is not None:
            self.acknowledged.add(reply.job.id)
            self._fresh(ask, reply.job.id, reply.job.state)
        echo = own and isinstance(reply, Created)  # may come after the window: it is the very same submission
        if arrival.record_id and isinstance(reply, (Created, Replayed, Rejected)) and not echo:
            self._in_window(ask, arrival, reply)

    def _created(self, arrival: SubmissionCommand, reply: Created) -> None:
        creator = self._creators.setdefault(reply.job.id, arrival.job_id)
        if reply.job.id in self.watch.dropped:
            return  # and made again since, by an old command
        if creator != arrival.job_id:
            self.watch.violated("a job is created once", f"{reply.job.id.hex()} for {arrival.key!r}")

    def _not_created(self, arrival: SubmissionCommand, job_id: bytes) -> None:
        """Whoever was told "created" is never told "replayed" of the same job."""
        if self.watch.created.get(arrival.job_id) != job_id:
            return
        if arrival.job_id == job_id:
            self.watch.violated("the same submission hears the same", f"{arrival.key!r}: replayed")
        # It finished what another had left; a gate that remembers somebody else's answer does not know that.
        self.watch.counts["echo lost"] += 1

    def _held(self, arrival: SubmissionCommand, reply: KeyHeld) -> None:
        # A record without a job starts again from token 1, and so does one whose job was dropped.
        name = (arrival.record_id, reply.job_id, reply.token)
        if not reply.job_id or reply.job_id in self.watch.dropped:
            return
        if self._holders.setdefault(name, reply.holder) != reply.holder:
            self.watch.violated("one holder per token", f"{arrival.key!r} token {reply.token}")

    def _in_window(self, ask: Ask, arrival: SubmissionCommand, reply: Created | Replayed | Rejected) -> None:
        """The job was the key's at some moment between question and answer."""
        watch = self.watch
        job_id = reply.job_id if isinstance(reply, Rejected) else reply.job.id if reply.job else b""
        window = watch.windows.get((arrival.record_id, job_id or getattr(reply, "receipt", b"")))
        what = f"{arrival.key!r} {_word(reply)} {job_id.hex()}"
        if window is None:
            watch.violated("the answer is the key's job", f"{what}: never its job")
            return
        if window.fingerprint != arrival.fingerprint:
            watch.violated("a job is never shared between fingerprints", what)
        if isinstance(reply, Rejected) is not (window.status == "rejected"):
            watch.violated("the answer is the key's state", f"{what}: it is {window.status}")
        # A clock that stepped back in between may have found the record alive again.
        clock = min([ask.clock, *(clock for when, clock in self.steps_back if when >= ask.sent)])
        if clock - self.slack_ms > window.until:
            late = clock - window.until
            watch.violated("nothing is answered from an expired record", f"{what}: asked {late} ms after")
        elif window.gone is not None and ask.sent > window.gone + self._remembered(window):
            watch.violated("the answer is the key's job", f"{what}: replaced before it was asked")

    def _remembered(self, window: Window) -> float:
        """For how long gates may go on with what is gone: they are not told of an erasure."""
        plan = self.store.plan
        memory = max(plan.committed_ttl, plan.rejected_ttl) if window.purged else 0.0
        return memory + self.slack_ms / 1000

    def _fresh(self, ask: Ask, job_id: bytes, state: JobState) -> None:
        """The state is one that the job had at some moment between question and answer."""
        told = self.watch.states.get(job_id, [])
        ends = [*(when for when, _ in told[1:]), float("inf")]
        if not any(state is was and end >= ask.sent for (_, was), end in zip(told, ends, strict=False)):
            self.watch.counts["stale state"] += 1
            if not told or state in IMMUTABLE_STATES:
                self.watch.violated("a state is one that was", f"{job_id.hex()} {state}")


def _word(result: object) -> str:
    return type(result).__name__.lower()
