"""The engine on nothing but an object store: a log of batches, and a local replica with all queries.

`log/{n}`, created if absent, is the only commit point. A batch is decided on the replica in an open transaction; then its
entry is put in the place of the commit's sync; then the replica is committed. The rules:

1. One batch at a time per process. While a put of this process may be under way, the same bytes are put at the same
   position again, and nothing else; new batches wait behind it.
2. A position that another process has taken is applied, and the batch is decided again on what it says.
3. A read, and a batch that changed nothing, is answered once the next position was found empty after it was asked.
4. Entries are deleted at least a day after a newer snapshot. So a process that has not confirmed its position for an hour
   opens again before it reads or writes; the age is judged by this machine's boot time and by the store's time, before a
   request and after its answer.
5. A replica that fails after its entry was put is opened again, and the reply stands.
6. The last entry that a process of this machine has seen must be in the log, unless a snapshot covers it: otherwise answered
   keys would be new, so it is refused by name, and no replica is discarded, which may be the last that knows them. This is
   judged whenever a replica is opened, and every half minute.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw
from msgspec import Struct
from msgspec.structs import replace

from onejob.backoff import Backoff
from onejob.clock import Clock, SystemClock
from onejob.core.command import Command
from onejob.core.facts import Attachment, Kind, NewerFormat
from onejob.core.replies import AnyReply
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query
from onejob.engines.sqlite import WorkerThread
from onejob.errors import OnejobError, StoreRefused, Unavailable, Unknown
from onejob.ids import Ids, SystemIds

from .log import (
    ACCEPT_LOSS,
    LEDGER_NAME,
    LOG_FOLDER,
    LOST,
    RESTORE,
    SNAPSHOT_FOLDER,
    LogEntry,
    LogPart,
    StoreTime,
    decode_entry,
    encode_entry,
    encode_ledger,
    encode_new_ledger,
    find_damaged_entries,
    log_name,
    next_ledger_id,
    origin_of,
    position_of,
    read_or_create_ledger,
)
from .objects import NothingSent, ObjectStore, RequestFailed, prove_create_if_absent
from .replica import (
    ERASURE_POLICY_ID,
    BehindLog,
    BrokenLog,
    Decided,
    Mark,
    Payload,
    Replica,
    ReplicaFile,
    Summary,
    ViewChanges,
    to_replica_failure,
)
from .snapshots import (
    DATE_MS,
    ENTRY_AGE_MS_MIN,
    Erasure,
    Snapshot,
    SnapshotManager,
    find_snapshots,
    list_names,
    load_snapshot,
)
from .url import BucketUrl, ViewMode, open_objects, parse_bucket_url
from .view import CURSOR_NAME, ViewRepair, ViewWriter, accept_view_of_log, parse_cursor, repair_view

T = TypeVar("T")
Run = Callable[..., Coroutine[Any, Any, Any]]
log = logging.getLogger("onejob")

ANSWER_SECONDS: Final = 15.0
BATCH_MAX: Final = 256
CONFIRMED_SECONDS_MAX: Final = 3600.0
JUMP_MS_MAX: Final = 60_000
AGREEING_DATES: Final = 3
_DATES_ASKED_MAX: Final = 9
_READ_SECONDS: Final = 10.0
_REFUSED_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.03
_PAUSE_SECONDS_MAX: Final = 1.5
_JITTER: Final = 2 / 3
_GETS_AT_ONCE: Final = 32
_PAYLOADS_AT_ONCE: Final = 8
_ATTEMPTS_MAX: Final = 10_000
_VIEW_REPAIR_ENTRIES: Final = 256
_KEEP_SECONDS: Final = 600.0
_VERIFY_SECONDS: Final = 30.0
VIEW_CLOSE_SECONDS: Final = 2.0
WINDOW_MS: Final = 30 * 86_400_000


# A batch is put while the view of the last is written.
# By then a process that runs has seen that entries and snapshots from before a purge are old enough.
ERASURE_MS: Final = ENTRY_AGE_MS_MIN + DATE_MS + int(_KEEP_SECONDS * 1000)
HINTS: Final[dict[str, Any]] = {
    "write_lanes": 2,
    "batch_max": BATCH_MAX,
    "window_ms": WINDOW_MS,
    "erasure_ms": ERASURE_MS,
}


class BucketEngine(EngineBase):
    _check: asyncio.Task[None] | None = None
    _date = 0  # the last that the store told
    _verified = Mark(0, b"")  # the last entry when it was verified for the last time
    _erased_at = 0  # the last purge whose bytes are known to be gone
    _has_marks = False  # those of other processes are read
    _closed = False

    def __init__(
        self,
        objects: ObjectStore,
        replica_file: ReplicaFile,
        *,
        clock: Clock,
        ids: Ids | None = None,
        view: ViewMode = ViewMode.BEFORE,
        durability: Durability = Durability.DISK,
        durability_warning: str = "",
        display: str = "the bucket",
        run: Run | None = None,
        examine: bool = False,
        accepts_loss: bool = False,
    ) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._objects = objects
        self._clock = clock
        self._ids = ids or SystemIds()
        self._display = display
        self._time = StoreTime(clock.monotonic)
        self._thread = WorkerThread("onejob-replica") if run is None else None
        self._run_in_thread = run
        self._replica = Replica(replica_file, self._time.latest_ms, view=view is not ViewMode.OFF)
        self._view_mode = view
        self._view = ViewWriter(objects, self._replica, self._run, self._spawn)
        self._keeper = SnapshotManager(objects, self._replica, self._run, self._run_current, self._time.latest_ms)
        self._lock = asyncio.Lock()
        self._ordinals = count(1)
        self._proof = ConfirmedPosition(0, float("-inf"), 0)
        self._must_reopen = True
        self._examines = examine  # use only what is in the bucket and verified, and write only when asked to
        self._must_discard = examine  # the file of the replica has failed, or is not trusted
        self._marks: set[Mark] = set()  # what the log must have before the replica is opened again
        self._accepts_loss = accepts_loss  # of what this machine has seen
        self._writes: set[asyncio.Task[Any]] = set()  # those of the tasks that must not be cancelled
        self.info = EngineInfo(
            name="bucket", ledger_id="", durability=durability, durability_warning=durability_warning, **HINTS
        )

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock | None = None, examine: bool = False, accepts_loss: bool = False
    ) -> "BucketEngine":
        parsed, clock = parse_bucket_url(url), clock or SystemClock()
        if examine:
            _refuse_missing_folder(parsed)
        engine = cls(
            open_objects(parsed, clock),
            ReplicaFile(parsed.replica, parsed.place, temporary=examine),
            clock=clock,
            view=parsed.view,
            durability=parsed.durability,
            durability_warning=parsed.durability_warning,
            display=parsed.display,
            examine=examine,
            accepts_loss=accepts_loss,
        )
        await engine.start()
        return engine

    async def start(self) -> None:
        """Prove the store, and follow its log to the end."""
        try:
            if self._examines and not await self._retry(lambda: read_or_create_ledger(self._objects, create=False)):
                raise _no_ledger(self._display)
            await self._retry(lambda: prove_create_if_absent(self._objects, self._ids))
            self._serve_ledger(await self._retry(lambda: read_or_create_ledger(self._objects)))
            async with self._lock:
                await self._translate(self._ensure_current)
        except BaseException:
            await self.aclose()
            raise
        if self._examines:
            return
        if self._view_mode is not ViewMode.OFF:
            self._spawn(self._view.run())
            self._spawn(self._repair_view())
        self._spawn(self._keep_periodically())
        self._spawn(self._verify_periodically())

    def _serve_ledger(self, ids: Sequence[str]) -> None:
        self._replica.ledger_ids = ids
        self.info = replace(self.info, ledger_id=ids[-1])

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        self._check_open()
        if not any(command.writes for command in commands):
            return await self._read(self._replica.read, commands)
        call = WriteCall()
        task = self._spawn(self._write_or_unknown(commands, call))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        # A caller that is cancelled leaves the task: what was sent must be resolved before the next batch.
        done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if not done:
            error = call.stop_waiting()
            if on_timeout is None or isinstance(error, Unavailable):
                raise error
            on_timeout(error)
            await asyncio.wait({task})
        if task.cancelled():
            raise call.stop_waiting()
        return task.result()

    async def scan(self, query: Query[T], /) -> Page[T]:
        self._check_open()
        page, large = await self._read(self._replica.scan, query)
        if not large:
            return page
        items: list[Any] = list(page.items)
        loaded = await asyncio.gather(*(self._load_payload(payload) for payload in large.values()))
        for n, data in zip(large, loaded, strict=True):
            item = items[n]
            assert isinstance(item, Attachment)
            items[n] = replace(item, data=data)
        return Page([item for item in items if item is not None], page.more, page.scanned_to)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        """Return at once: whoever has decided before a change of the limit finds its position taken, and decides again."""
        self._check_open()

    async def examine_erasure(self) -> Erasure | None:
        """What is left of facts that were purged; None: nothing was, or everything is gone. For `onejob doctor`."""
        await self._confirm()
        requested_at = await self._run(self._replica.erasure_requested_at)
        erasure = await self._retry(lambda: self._keeper.examine_erasure(requested_at)) if requested_at else None
        return erasure if erasure is not None and erasure.remaining else None

    async def find_damage(self) -> "Damage":
        """Read and verify every object that decides; for `onejob doctor`."""
        await self._confirm()
        snapshots = await self._retry(lambda: list_names(self._objects, SNAPSHOT_FOLDER))
        entries = await self._retry(lambda: list_names(self._objects, LOG_FOLDER))
        payloads = await self._run(self._replica.list_payloads)
        covered = max(map(position_of, snapshots), default=0)
        found = await find_damaged_entries(entries, self._get, origin_of(self.info.ledger_id), covered)
        found += await self._find_damaged_snapshots(snapshots)
        found += await self._find_damaged_payloads(payloads)
        return Damage(len(entries), len(snapshots), len(payloads), found)

    async def _find_damaged_snapshots(self, names: Sequence[str]) -> list[str]:
        damaged = [name for name in names if not await self._retry(partial(self._keeper.is_readable, name))]
        if damaged:  # one may have been deleted meanwhile, because there is a newer one
            there = await self._retry(lambda: list_names(self._objects, SNAPSHOT_FOLDER))
            return [f"{name} is damaged" for name in damaged if name in there]
        return []

    async def _find_damaged_payloads(self, payloads: Sequence[Payload]) -> list[str]:
        found: dict[str, str] = {}
        for start in range(0, len(payloads), _PAYLOADS_AT_ONCE):
            some = payloads[start : start + _PAYLOADS_AT_ONCE]
            results = await asyncio.gather(*map(self._load_payload, some), return_exceptions=True)
            for payload, result in zip(some, results, strict=True):
                if isinstance(result, StoreRefused):
                    found[payload.name] = str(result).partition(";")[0]
                elif isinstance(result, BaseException):
                    raise result
        if found:  # a job may have been deleted meanwhile, and its payloads with it
            await self._confirm()
            named = {payload.name for payload in await self._run(self._replica.list_payloads)}
            return [text for name, text in found.items() if name in named]
        return []

    @property
    def has_view(self) -> bool:
        return self._view_mode is not ViewMode.OFF

    async def repair_view(self) -> ViewRepair:
        """Compare every object of the view with the log, and write or delete what differs; for `onejob doctor`."""
        await self._confirm()
        if not self._examines:
            await self._view.write_all_pending()
        return await self._retry(lambda: repair_view(self._objects, self._replica, self._run, self._find_end))

    async def _find_end(self) -> int:
        await self._confirm()
        return self._replica.state.position

    async def accept_loss(self) -> "AcceptedLoss":
        """Begin another ledger after the last entry that is left, for `onejob restore --accept-loss`.

        The entry comes first: whoever has served the old ledger stops at it. If this process dies before it has named the new
        ledger in onejob.json, everybody does, until it is called again.
        """
        await self._run(self._replica.refuse_running)
        # An older copy does not name them; a process that has served one would refuse the bucket from then on.
        lost = await self._run(self._replica.list_lost_ledgers)
        marks = [] if lost else await self._run(self._replica.read_marks)
        async with self._lock:
            state, ids = self._replica.state, self._replica.ledger_ids
            is_countable = not lost and not await self._begins_ledger(state.position)
            ids = [*ids, *lost, next_ledger_id(ids[-1])]
            entry = encode_new_ledger(
                state.position + 1, self._ids.holder(), state.digest, self._replica.now(), ids[-1]
            )
            if await self._append(entry, WriteCall()) is not None:
                raise Unavailable("another process has written to the bucket; stop all of them, then retry")
            await self._retry(lambda: self._objects.put(LEDGER_NAME, encode_ledger(ids)))
            self._serve_ledger(ids)
            await self._apply([entry])
        # What the view tells of later answers would be taken for another loss.
        make = partial(accept_view_of_log, self._objects, self._replica, self._run, self._find_end)
        shown = await self._retry(make) if self.has_view else 0
        last = max([shown, *(mark.position for mark in marks)])
        commits_lost = max(0, last - state.position) if is_countable else None
        return AcceptedLoss(await self._run(self._replica.summarize), commits_lost)

    async def _begins_ledger(self, position: int) -> bool:
        """True after an accepted loss that may have been interrupted: what tells of lost entries may be half gone."""
        data = await self._get(log_name(position))
        return data is not None and bool(self._decode(position, data).ledger_id)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writes:
            await asyncio.wait(self._writes, timeout=ANSWER_SECONDS)
        if self._view_mode is not ViewMode.OFF and self._proof.ordinal and not self._examines:
            with suppress(TimeoutError, OnejobError, apsw.Error, OSError):  # the next who opens the bucket writes it
                await asyncio.wait_for(self._view.write_all_pending(), VIEW_CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._run(self._replica.release)
        if self._thread is not None:
            await self._thread.aclose()
        await self._objects.aclose()

    # Writing

    async def _write_or_unknown(self, commands: Sequence[Command[Any]], call: "WriteCall") -> list[AnyReply]:
        """Whatever fails while an entry of this batch may be in the log, it does not say that nothing was done."""
        try:
            return await self._translate(self._write, commands, call)
        except Unavailable as error:
            if call.may_be_sent:
                raise Unknown(f"a failure followed a write that may have been executed ({error})") from error
            raise

    async def _write(self, commands: Sequence[Command[Any]], call: "WriteCall") -> list[AnyReply]:
        async with self._lock:
            for _ in range(_ATTEMPTS_MAX):
                if call.abandoned:
                    raise Unavailable("nobody waits for this batch any more: nothing was done")
                await self._ensure_current()
                decided = await self._run(self._replica.decide, commands)
                if not decided.parts:
                    if await self._is_newest():
                        return list(decided.replies)
                    continue
                proof, ordinal = self._proof, next(self._ordinals)
                changes = await self._put_entry(decided, call)
                if changes is not None:
                    break
            else:
                raise Unavailable("other processes have taken every position of the log; retry")
        # What follows is not part of the commit, so the next batch may go on.
        await asyncio.gather(self._check_age(proof), self._publish_view(changes))
        self._confirm_position(ordinal)
        return list(decided.replies)

    async def _put_entry(self, decided: Decided, call: "WriteCall") -> ViewChanges | None:
        """Commit what was decided; None if another process has taken the position."""
        state = self._replica.state
        entry = encode_entry(state.position + 1, self._ids.holder(), state.digest, decided.at, decided.parts)
        try:
            await self._put_payloads(decided.payloads)
            other = await self._append(entry, call)
        except BaseException:
            await self._run(self._replica.rollback)
            raise
        if other is not None:
            call.may_be_sent = False  # the position is taken, so what was sent can have no effect
            await self._run(self._replica.rollback)
            await self._apply([other])
            return None
        return await self._commit_replica(entry)

    async def _append(self, entry: LogEntry, call: "WriteCall") -> LogEntry | None:
        """Create an entry; returns the other one that is at its position, or None if it is ours."""
        name = log_name(entry.position)
        may_be_sent = False
        backoff = self._backoff()
        refused_until = asyncio.get_running_loop().time() + _REFUSED_SECONDS
        while True:
            if call.abandoned and not may_be_sent:
                raise Unavailable("nobody waits for this batch any more: nothing was done")
            if self._is_stale():
                self._must_reopen = True
                raise Unknown("the bucket has not answered for an hour; retry with the same key")
            call.may_be_sent = True
            try:
                if await self._objects.create(name, entry.data):
                    return None
            except NothingSent as error:
                call.may_be_sent = may_be_sent
                if not may_be_sent and asyncio.get_running_loop().time() >= refused_until:
                    raise Unavailable(f"{self._display} cannot be written ({error}): nothing was done; retry") from None
                await asyncio.sleep(next(backoff))
                continue
            except RequestFailed:
                may_be_sent = True
            found = await self._find_entry(name, backoff)
            if found == entry.data:
                return None
            if found is not None:
                try:
                    return self._decode(entry.position, found)
                except Unavailable:  # damaged, and perhaps ours, unless the only answer was that it was there
                    call.may_be_sent = may_be_sent
                    raise
            await asyncio.sleep(next(backoff))

    async def _find_entry(self, name: str, backoff: Backoff) -> bytes | None:
        """What is at the position of an entry that this process has put, or may have put."""
        while True:
            try:
                return await self._objects.get(name)
            except RequestFailed:
                if self._is_stale():
                    return None  # the caller notices it too
                await asyncio.sleep(next(backoff))

    async def _commit_replica(self, entry: LogEntry) -> ViewChanges:
        try:
            dropped = await self._run(self._replica.list_payloads_dropped_by, entry.parts)
            changes: ViewChanges = await self._run(self._replica.commit, entry)
        except (apsw.Error, OSError) as error:
            log.warning("local replica failed (%s), rebuilding it; the commit is safe in the bucket", error)
            self._must_reopen = self._must_discard = True
            self._marks.add(Mark(entry.position, entry.digest))
            self._note_generation(entry.position)
            return ViewChanges([], [])
        self._note_generation(entry.position)
        if dropped:
            self._spawn(self._delete_quietly(dropped))
        if self._keeper.is_due(self._replica.state):
            self._spawn(self._keep())
        if any(row[0] == ERASURE_POLICY_ID for row in _policy_rows(entry.parts)):
            self._spawn(self._erase_soon())
        if self._view_mode is not ViewMode.OFF and self._replica.state.position % _VIEW_REPAIR_ENTRIES == 0:
            self._spawn(self._repair_view())
        return changes

    async def _publish_view(self, changes: ViewChanges) -> None:
        """Write the view: what was created before the reply, later states behind it."""
        if self._view_mode is ViewMode.OFF:
            return
        self._view.queue(changes.changed)
        if self._view_mode is ViewMode.SOON:
            self._view.queue(changes.created)
        elif changes.created:
            await self._view.write_before_reply(changes.created)

    async def _check_age(self, proof: "ConfirmedPosition") -> None:
        """After the answer: a process that stood still for longer than entries are kept has put its entry for nothing."""
        backoff = self._backoff()
        while not self._is_stale(proof):
            try:
                await self._read_date()
                break
            except RequestFailed:
                await asyncio.sleep(next(backoff))
        if self._is_stale(proof):
            # The entry may be the only one at its position, but not part of the history that others have continued.
            self._must_reopen = self._must_discard = True
            raise Unknown("this process was stopped for more than an hour; retry with the same key")

    async def _put_payloads(self, payloads: Sequence[Payload]) -> None:
        puts = (partial(self._objects.put, payload.name, payload.data) for payload in payloads)
        await asyncio.gather(*map(self._retry, puts))

    async def _load_payload(self, payload: Payload) -> bytes:
        data = await self._get(payload.name)
        if data is None or sha256(data).digest() != payload.digest:
            what = "is missing" if data is None else "is damaged"
            raise StoreRefused(f"{payload.name} {what}; {RESTORE}")
        return bytes(data)

    # Following the log

    async def _read(self, work: Callable[..., T], *args: Any) -> T:
        """Read from the replica once it is at the newest entry. If it is just being reopened, wait and read again."""
        while True:
            await self._confirm()
            position = self._replica.state.position
            with suppress(BehindLog):
                return await self._translate(self._run, self._replica.run_at, position, work, *args)

    async def _run_current(self, work: Callable[..., T], *args: Any) -> T:
        """Run something on the replica while it is at the end of the log, and stays there."""
        async with self._lock:
            await self._ensure_current()
            await self._catch_up()
            return await self._run(work, *args)

    async def _confirm(self) -> None:
        """Return when the replica is at the newest entry that there was when this was called. Callers share requests."""
        asked = next(self._ordinals)
        while self._proof.ordinal < asked or self._must_reopen:
            self._check_open()
            if self._check is None or self._check.done():
                self._check = self._spawn(self._translate(self._run_check))
            check = self._check
            await asyncio.wait({check})
            if not check.cancelled() and (error := check.exception()) is not None:
                raise type(error)(*error.args) from error

    async def _run_check(self) -> None:
        if self._must_reopen or self._is_stale() or not self._has_plausible_time():
            async with self._lock:
                await self._ensure_current()
        ordinal = next(self._ordinals)
        position = self._replica.state.position + 1
        found = await self._find_newer(position)
        if found is None and not self._must_reopen:
            self._confirm_position(ordinal)
            return
        async with self._lock:  # behind a batch of this process that may be about to take the position
            await self._ensure_current()
            if self._proof.ordinal < ordinal:
                await self._catch_up()

    async def _is_newest(self) -> bool:
        """True if there is no newer entry than the replica has; else they are applied. The caller holds the lock."""
        ordinal = next(self._ordinals)
        position = self._replica.state.position + 1
        found = await self._find_newer(position)
        if found is None and not self._must_reopen:
            self._confirm_position(ordinal)
            return True
        if found is not None:
            await self._apply([self._decode(position, found)])
        return False

    async def _find_newer(self, position: int) -> bytes | None:
        found, _ = await asyncio.gather(self._get(log_name(position)), self._retry(self._read_date))
        if self._is_stale():
            self._must_reopen = True
            return None
        return found

    async def _catch_up(self) -> None:
        """Apply entries until there is none. The caller holds the lock."""
        width = 1
        while True:
            position = self._replica.state.position + 1
            ordinal = next(self._ordinals)
            found = await asyncio.gather(*(self._get(log_name(position + n)) for n in range(width)))
            entries = [self._decode(position + n, data) for n, data in enumerate(_until_none(found))]
            if entries:
                await self._apply(entries)
            if len(entries) < width:
                self._confirm_position(ordinal)
                return
            width = min(width * 4, _GETS_AT_ONCE)

    def _decode(self, position: int, data: bytes) -> LogEntry:
        """Nothing of an entry is used before its digest is verified."""
        return decode_entry(position, data)

    async def _apply(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            if entry.ledger_id and entry.ledger_id not in self._replica.ledger_ids:
                self._refuse_new_ledger(entry)
        await self._run(self._replica.apply, entries)
        self._note_generation(self._replica.state.position)

    def _note_generation(self, position: int) -> None:
        if position != self.info.generation:
            self.info = replace(self.info, generation=position)

    def _refuse_new_ledger(self, entry: LogEntry) -> None:
        if self._accepts_loss:  # the process that began it has died before it could name it
            self._serve_ledger([*self._replica.ledger_ids, entry.ledger_id])
            return
        self._must_reopen = True
        raise StoreRefused(
            f"{log_name(entry.position)} begins another ledger, because a loss was accepted; restart this process (if it was "
            f"just started: {ACCEPT_LOSS} was not finished, and must be repeated)"
        )

    async def _ensure_current(self) -> None:
        """Before a decision: the replica is not stale, and the store's time is believed. The caller holds the lock."""
        if self._must_reopen or self._is_stale():
            await self._reopen()
        if self._has_plausible_time():
            return
        for _ in range(_DATES_ASKED_MAX):
            await self._retry(self._read_date)
            if self._has_plausible_time():
                return
        raise Unavailable(
            "the answers of the store disagree about the time: nothing was done; check its clocks, then retry"
        )

    def _has_plausible_time(self) -> bool:
        jumped = self._time.latest_ms() - self._replica.state.at > JUMP_MS_MAX
        return not jumped or self._time.agreeing >= AGREEING_DATES

    async def _reopen(self) -> None:
        """Find the place of the replica in the log, or begin with a snapshot; then follow the log to the end."""
        self._must_reopen = True  # nobody reads meanwhile
        await self._retry(self._read_date)
        await self._run(self._replica.rollback)
        try:
            self._note_mark()  # before the replica is discarded
            await self._run(self._open_replica)
            self._note_mark()
            self._must_discard = False
            await self._follow_from_snapshot()
            await self._follow_to_end()
        except BrokenLog as error:
            raise self._broken_log(error) from None
        self._marks.clear()
        if not self._verified.position:
            self._verified = Mark(self._replica.state.position, self._replica.state.digest)
        self._note_generation(self._replica.state.position)
        self._must_reopen = False

    def _open_replica(self) -> None:
        """In the thread of the replica."""
        if not self._has_marks and not self._accepts_loss:
            self._marks.update(self._replica.read_marks())
            self._has_marks = True
        self._replica.open(discard=self._must_discard)

    def _note_mark(self) -> None:
        state = self._replica.state
        if state.position:
            self._marks.add(Mark(state.position, state.digest))

    async def _follow_from_snapshot(self) -> None:
        snapshots = await self._retry(lambda: find_snapshots(self._objects))
        newest = snapshots[-1].position if snapshots else 0
        there = await self._refuse_lost_entries(newest)
        # Entries up to a snapshot may be deleted, those after the newest are not.
        position = self._replica.state.position
        if position >= newest and (position in there or not position):
            return
        for snapshot in reversed(snapshots[-2:]):
            judge = self._refuse_foreign_snapshot
            load = partial(load_snapshot, self._objects, self._replica, self._run, snapshot, judge)
            if await self._retry(load):
                return
            log.warning("%s is damaged and not used; %s", snapshot.name, RESTORE)
        await self._run(self._replica.reset)
        await self._catch_up()
        if self._replica.state.position < newest:
            names = " and ".join(snapshot.name for snapshot in snapshots[-2:])
            raise StoreRefused(f"{names} cannot be read, and the log is not complete without; {RESTORE}")

    async def _refuse_lost_entries(self, newest_snapshot: int) -> set[int]:
        """Refuse a log that lacks what this machine has seen of it; returns the positions whose entries are still there."""
        marks = sorted(self._marks)
        found = await asyncio.gather(*(self._get(log_name(mark.position)) for mark in marks))
        for mark, data in zip(marks, found, strict=True):
            name = log_name(mark.position)
            if data is None and mark.position > newest_snapshot:
                raise StoreRefused(f"{name} is missing, which this machine has seen: {LOST}")
            if data is not None and self._decode(mark.position, data).digest != mark.digest and mark.digest:
                raise StoreRefused(f"{name} is another entry than this machine has seen there: {LOST}")
        return {mark.position for mark, data in zip(marks, found, strict=True) if data is not None}

    async def _refuse_foreign_snapshot(self, snapshot: Snapshot, digest: bytes) -> None:
        """The last entry that it has must be the same one; once that is deleted, the next must continue its digest."""
        last, after = log_name(snapshot.position), log_name(snapshot.position + 1)
        found = await self._get(last)
        if found is not None:
            if self._decode(snapshot.position, found).digest != digest:
                raise StoreRefused(f"{snapshot.name} is not of this log; {RESTORE}")
            return
        following = await self._get(after)
        if following is not None and self._decode(snapshot.position + 1, following).previous != digest:
            raise StoreRefused(f"{snapshot.name} is not of this log: {after} does not continue it; {RESTORE}")
        if following is None and await self._has_entry_before(snapshot.position):
            # Entries are deleted behind a snapshot, its own after all before it: it is beyond the end of this log.
            raise StoreRefused(
                f"{last} is missing, which {snapshot.name} has, and earlier entries are there: the snapshot is not of this log, "
                f"or the log has lost its end; {RESTORE}"
            )

    async def _has_entry_before(self, position: int) -> bool:
        async def find() -> bool:
            async for page in self._objects.list(LOG_FOLDER):
                for info in page:
                    if entry := position_of(info.name):
                        return entry < position
            return False

        return await self._retry(find)

    async def _follow_to_end(self) -> None:
        """Apply all entries. If there is one after the end, somebody has deleted what was between."""
        _, listed = await asyncio.gather(
            self._catch_up(), self._retry(partial(self._find_last_entry, self._replica.state.position))
        )
        while (end := self._replica.state.position) < listed:
            await self._catch_up()
            if self._replica.state.position == end:
                next_act = _move_away(end + 2) if self._accepts_loss else f"answered keys would be new; {RESTORE}"
                raise StoreRefused(f"{log_name(end + 1)} is missing: {next_act}")

    async def _find_last_entry(self, after: int) -> int:
        pages = self._objects.list(LOG_FOLDER, after=log_name(after))
        return max([position_of(info.name) async for page in pages for info in page], default=0)

    # Helpers

    def _confirm_position(self, ordinal: int) -> None:
        self._proof = ConfirmedPosition(max(self._proof.ordinal, ordinal), self._clock.monotonic(), self._date)

    def _is_stale(self, proof: "ConfirmedPosition | None" = None) -> bool:
        """True if the proof is too old, by this machine's clock or by the store's."""
        proof = proof or self._proof
        seconds = max(self._clock.monotonic() - proof.at, (self._date - proof.date) / 1000)
        return seconds > CONFIRMED_SECONDS_MAX

    async def _read_date(self) -> None:
        sent = self._clock.monotonic()
        date = await self._objects.read_date()
        self._time.add(date, sent, self._clock.monotonic())
        self._date = date.ms

    async def _get(self, name: str) -> bytes | None:
        return await self._retry(lambda: self._objects.get(name))

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request that may be repeated."""
        until = asyncio.get_running_loop().time() + _READ_SECONDS
        backoff = self._backoff()
        while True:
            try:
                return await ask()
            except RequestFailed as error:
                if asyncio.get_running_loop().time() >= until:
                    raise Unavailable(f"{self._display} does not answer ({error}): nothing was done; retry") from None
                await asyncio.sleep(next(backoff))

    def _backoff(self) -> Backoff:
        return Backoff(_PAUSE_SECONDS, _PAUSE_SECONDS_MAX, jitter=_JITTER, random=self._ids.fraction)

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._thread is None:
            assert self._run_in_thread is not None
            result: T = await self._run_in_thread(work, *args)
            return result
        return await self._thread.call(work, *args)

    async def _translate(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Turn the errors of the replica into the two failures of the seam, and reopen it."""
        try:
            return await work(*args)
        except OnejobError:
            raise
        except BrokenLog as error:
            self._must_reopen = True
            raise self._broken_log(error) from None
        except (apsw.Error, OSError, NewerFormat) as error:
            self._must_reopen = self._must_discard = True
            raise to_replica_failure(self._replica, error) from error

    def _broken_log(self, error: BrokenLog) -> StoreRefused:
        next_act = _move_away(error.position) if self._accepts_loss else LOST
        return StoreRefused(f"{error}: objects in log/ were changed or removed, so that {next_act}")

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the engine on {self._display} is closed; open another")

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it raises it

    async def _delete_quietly(self, names: Sequence[str]) -> None:
        with suppress(RequestFailed):  # what is left is found when unnamed payloads are deleted
            await self._objects.delete(names)

    async def _keep(self, *, erase: bool = False) -> None:
        if self._must_reopen:  # what the replica has may not be the history of the log
            return
        try:
            if erase:
                await self._erase()
            else:
                await self._keeper.snapshot_and_prune(self._lock)
        except (RequestFailed, OnejobError, apsw.Error, OSError) as error:
            log.warning("a snapshot or the cleaning of %s failed, will retry: %s", self._display, error)

    async def _erase_soon(self) -> None:
        await asyncio.sleep(2 * DATE_MS / 1000)  # the date of the snapshot is then certainly later than the purge
        await self._keep(erase=True)

    async def _erase(self) -> None:
        requested_at = await self._run(self._replica.erasure_requested_at)
        if requested_at in (0, self._erased_at):
            return
        erasure = await self._keeper.erase(self._lock, requested_at)
        if erasure.remaining:
            log.info("purged bytes are in %d objects of %s for up to a day", erasure.remaining, self._display)
        else:
            log.info("purged data erased from %s", self._display)
            self._erased_at = requested_at

    async def _keep_periodically(self) -> None:
        """What is due while nobody writes."""
        while True:
            await asyncio.sleep(_KEEP_SECONDS)
            await self._keep(erase=True)
            if not self._must_reopen and self._keeper.is_due(self._replica.state):
                await self._keep()

    async def _verify_periodically(self) -> None:
        while True:
            await asyncio.sleep(_VERIFY_SECONDS)
            try:
                await self._verify_last_entry()
            except (OnejobError, RequestFailed) as error:
                log.warning("the last entry of %s could not be verified, will retry: %s", self._display, error)

    async def _verify_last_entry(self) -> None:
        """An entry is put without a look at the one before. So notice if that is gone, or if others have filled its place."""
        state = self._replica.state
        marks = {mark for mark in (Mark(state.position, state.digest), self._verified) if mark.position}
        if self._must_reopen:
            return
        for mark in marks:
            if not await self._is_in_log(mark):
                log.error("%s is not what this process has seen there; it stops answering", log_name(mark.position))
                self._marks |= marks
                self._must_reopen = True  # which refuses it by name, until it is put back
                return
        if (hole := await self._find_hole(self._verified.position, state.position)) is not None:
            log.error("%s is missing from the log; this process stops answering", log_name(hole.position))
            self._marks |= marks | {hole}
            self._must_reopen = True
            return
        self._verified = Mark(state.position, state.digest)

    async def _find_hole(self, after: int, end: int) -> Mark | None:
        """The last entry between two that others could put again, or that a process that opens the bucket would stop at."""
        missing = await self._retry(partial(self._list_missing, after, end)) if after + 1 < end else []
        for position in reversed(missing):
            if await self._get(log_name(position)) is None:  # a list may be older than an entry
                snapshots = await self._retry(lambda: find_snapshots(self._objects))
                if snapshots and snapshots[-1].position >= position:
                    return None
                data = await self._get(log_name(position + 1))
                try:
                    return Mark(position, self._decode(position + 1, data).previous if data is not None else b"")
                except StoreRefused:  # damaged
                    return Mark(position, b"")
        return None

    async def _list_missing(self, after: int, end: int) -> list[int]:
        found: set[int] = set()
        async for page in self._objects.list(LOG_FOLDER, after=log_name(after)):
            found.update(position_of(info.name) for info in page)
            if page and position_of(page[-1].name) > end:
                break
        return [position for position in range(after + 1, end) if position not in found]

    async def _is_in_log(self, mark: Mark) -> bool:
        """True also if it may be deleted, because a snapshot covers it."""
        found = await self._get(log_name(mark.position))
        if found is None:
            snapshots = await self._retry(lambda: find_snapshots(self._objects))
            return bool(snapshots) and snapshots[-1].position >= mark.position
        try:
            return self._decode(mark.position, found).digest == mark.digest
        except StoreRefused:  # damaged
            return False

    async def _repair_view(self) -> None:
        """Write what lies after the cursor of the view and is not known to be written, then move the cursor."""
        try:
            cursor = parse_cursor(await self._objects.get(CURSOR_NAME))
            if cursor > self._replica.state.position:
                await self._confirm()  # another process may have gone on
            async with self._lock:
                if cursor <= self._replica.state.position:
                    await self._run(self._replica.forget_view_before, cursor)
                else:
                    log.error("%s names entry %d, and the log ends before; see `onejob doctor`", CURSOR_NAME, cursor)
            position = self._replica.state.position
            if await self._view.write_all_pending() and (position or cursor):
                await self._objects.put(CURSOR_NAME, b"%d" % position)
        except (RequestFailed, OnejobError, apsw.Error, OSError) as error:
            log.warning("the view of %s could not be repaired, will retry: %s", self._display, error)


class ConfirmedPosition(NamedTuple):
    """The last request that showed the position of the replica to be the newest, and when that was."""

    ordinal: int
    at: float  # on the clock of this machine
    date: int  # on the store's


class Damage(Struct, frozen=True):
    """What was read of the objects that decide, and which of them are not as they were written."""

    entries: int
    snapshots: int
    payloads: int
    found: list[str]


class AcceptedLoss(NamedTuple):
    """What is left, and how many later entries something tells of: a replica of this machine, or the view."""

    summary: Summary
    commits_lost: int | None  # None: it cannot be said, e.g. because an earlier call was interrupted


class WriteCall:
    """How far a call has come, for the error of a caller that stops waiting."""

    def __init__(self) -> None:
        self.may_be_sent = False
        self.abandoned = False

    def stop_waiting(self) -> Unavailable | Unknown:
        if self.may_be_sent:
            return Unknown("the bucket has not answered in time; retry with the same key")
        self.abandoned = True
        return Unavailable("the bucket is slow: nothing was done; retry")


def _refuse_missing_folder(url: BucketUrl) -> None:
    """Opening would make it."""
    if url.scheme == "file" and not Path(url.prefix).is_dir():
        raise _no_ledger(url.display)


def _no_ledger(display: str) -> StoreRefused:
    return StoreRefused(f"there is no ledger at {display}; check the bucket and the prefix")


def _move_away(position: int) -> str:
    return (
        f"what follows cannot be used; {RESTORE}, or move {log_name(position)} and all later entries out of {LOG_FOLDER}/, "
        f"keep them, and repeat {ACCEPT_LOSS}"
    )


def _policy_rows(parts: Sequence[LogPart]) -> Iterable[Sequence[Any]]:
    for part in parts:
        yield from part.rows.inserts.get(Kind.POLICY, ())
        yield from (row for row, _ in part.rows.updates.get(Kind.POLICY, ()))


def _until_none(found: Iterable[bytes | None]) -> Iterable[bytes]:
    for data in found:
        if data is None:
            return
        yield data
