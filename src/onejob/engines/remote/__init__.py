"""The engine `http://m1:8002,m2:8002`: its decisions happen in managers, which own the ledger.

A batch is one request to one manager. What happens when it fails:

- Nothing was sent, or the manager says that nothing was done: the next manager is asked. `Unavailable` when none is left.
- It was sent and there is no answer (the connection is lost, or there was no sign of life for 2 s): reads go to the next
  manager. Writes are `Unknown`; whoever repeats them reaches the next manager, because this one counts as lost until
  it says hello again.
- A lost manager is visited each second. One that is silent even then is not asked until it says hello again: a batch that finds
  no other fails at once.
- A manager does not know a command or a field: it goes to the next manager, the others of its batch are done.

A copy of a batch may be executed late: by a manager that was frozen, after another manager executed the repetition. Most
commands recognise their own effect. The others are sent with `not_after`, a few seconds ahead on the store's clock, and
after a batch without an answer no such command is acknowledged before every late copy has become invalid.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.clock import Clock, SystemClock
from onejob.core.batch import to_defect
from onejob.core.command import Command, is_late_arrival
from onejob.core.replies import AnyReply, Defect
from onejob.engine import EngineBase, EngineInfo, LedgerOwner, OnSettled, OnTimeout, Page, Query
from onejob.engines.batcher import replies_or_partly_done
from onejob.errors import TenantRefused, Unavailable, Unknown
from onejob.settings import read_gate_key

from .codec import Result, WireCodec, decode_page, decode_struct, encode_struct, split_generation
from .connection import NoAnswer, NotSent, RequestRefused
from .messages import (
    BODY_BYTES_MAX,
    RESULT,
    SILENCE_SECONDS_MAX,
    STATUS_FORBIDDEN,
    BarrierRequest,
    TokenGrant,
    TokenRequest,
    UnsupportedCommand,
)
from .peers import Manager, ManagerRefused, Peers
from .url import ManagersUrl, parse_managers_url

T = TypeVar("T")

WRITE_LANES = 4  # batches under way at once, so that a long line does not bound the rate
LATE_MS_MAX = 3000  # how long a command without an echo may be under way
VISIT_LOST_SECONDS = 1.0
VISIT_ALL_SECONDS = 3.0
SUBSCRIBE_PAUSE_SECONDS = 1.0
_LATE_COPIES_SECONDS_MAX = 10.0

_TOO_LATE = "the command took too long to reach its store, and nothing was done; retry"

log = logging.getLogger("onejob")


class RemoteEngine(EngineBase):
    def __init__(self, url: ManagersUrl, clock: Clock, codec: WireCodec, silence_seconds_max: float) -> None:
        managers = [Manager(address, url.display(address)) for address in url.addresses]
        self.peers = Peers(
            managers,
            gate_key=url.gate_key,
            tls=url.ssl_context(),
            clock=clock,
            silence_seconds_max=silence_seconds_max,
        )
        self._monotonic = clock.monotonic
        self._codec = codec
        self._late_copies_until = 0  # on the store's clock: until then a copy without an answer may be executed
        self._listeners: dict[OnSettled, None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        codec: WireCodec | None = None,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        gate_key: str | None = None,  # None: that of the environment
    ) -> "RemoteEngine":
        """Refuses managers that do not belong together; it is enough that one of them is reached."""
        parsed = parse_managers_url(url, read_gate_key() if gate_key is None else gate_key)
        engine = cls(parsed, clock or SystemClock(), codec or WireCodec(), silence_seconds_max)
        await engine.peers.probe_all()
        try:
            engine.peers.raise_if_mixed()
            if engine.peers.agreed is None:
                raise engine.peers.unavailable_error()
        except Unavailable:
            await engine.aclose()
            raise
        engine._tasks.append(asyncio.get_running_loop().create_task(engine._watch_managers()))
        return engine

    @property
    def info(self) -> EngineInfo:
        agreed = self.peers.agreed
        assert agreed is not None
        return EngineInfo(
            name=f"http ({agreed.hello.engine})",
            ledger_id=agreed.hello.ledger_id,
            durability=agreed.hello.durability,
            durability_warning=agreed.hello.durability_warning,
            generation=self.peers.generation,
            write_lanes=WRITE_LANES,
            batch_max=agreed.hello.batch_max,
            lane_batch_min=agreed.hello.batch_max,  # each request costs a turn of both processes
            window_ms=agreed.hello.window_ms,
            erasure_ms=agreed.hello.erasure_ms,
            owner=LedgerOwner(
                prescribed=agreed.hello.prescribed,
                settings=self.peers.settings,
                managers=tuple(manager.info() for manager in self.peers.managers),
            ),
        )

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        self._refuse_closed()
        results = await self._execute_all(commands) if commands else []
        late = [n for n, result in enumerate(results) if is_late_arrival(result) and _needs_deadline(commands[n])]
        if late:  # the store's clock was set forward, or the line is slow: certainly not done, so once more
            again = await self._execute_once_more([commands[n] for n in late])
            for n, result in zip(late, again, strict=True):
                results[n] = Unavailable(_TOO_LATE) if is_late_arrival(result) else result
        return replies_or_partly_done(results)

    async def scan(self, query: Query[T], /) -> Page[T]:
        self._refuse_closed()
        return decode_page(await self._ask("/scan", self._codec.encode_query(query), may_repeat=True), query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        self._refuse_closed()
        await self._ask("/barrier", encode_struct(BarrierRequest(tenant, user)), may_repeat=True)

    async def take_tokens(self, tenant: str, actor: str, wanted: int) -> TokenGrant:
        """Tokens of a credential's rate limit, which all gates of a manager share."""
        request = TokenRequest(tenant, actor, wanted, len(self.peers.managers))
        grant: TokenGrant = decode_struct(
            await self._ask("/tokens", encode_struct(request), may_repeat=True), TokenGrant
        )
        return grant

    def subscribe(self, on_settled: OnSettled, /) -> None:
        if self._closed:
            return
        if not self._listeners:
            self._tasks.append(asyncio.get_running_loop().create_task(self._listen()))
        self._listeners[on_settled] = None

    async def aclose(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.peers.close()

    async def _execute_once_more(self, commands: Sequence[Command[Any]]) -> Sequence[Result]:
        """The results of commands that came too late, with a deadline of the store's time as it is now."""
        try:
            await self._read_clock()
            return await self._execute_all(commands)
        except (Unavailable, Unknown) as error:  # theirs alone: others of their batch are done
            return [error] * len(commands)

    async def _execute_all(self, commands: Sequence[Command[Any]]) -> list[Result]:
        """Each command's result. What cannot be encoded is not sent; what one manager does not know goes to the next."""
        not_after = 0
        if any(map(_needs_deadline, commands)):
            not_after = self._latest_store_time() + LATE_MS_MAX
            commands = [_with_deadline(command, not_after) for command in commands]
        results: list[Any] = [None] * len(commands)
        sent: Sequence[int] = range(len(commands))
        try:
            body = self._codec.encode_commands(commands)
        except Exception:  # noqa: BLE001 - find the command that has a value which no store could hold
            sent = self._refuse_unencodable(commands, results)
            body = self._codec.encode_commands([commands[n] for n in sent])
        may_repeat = not any(command.writes for command in commands)
        skipped: set[Manager] = set()
        while sent:
            try:
                answers, manager = await self._execute_body(body, len(sent), may_repeat, skipped, not_after)
            except (Unavailable, Unknown) as error:
                if not skipped:
                    raise
                if isinstance(error, Unknown):  # of these alone: the others are done
                    results = [error if isinstance(result, UnsupportedCommand) else result for result in results]
                break
            for n, answer in zip(sent, answers, strict=True):
                results[n] = answer
            if UnsupportedCommand not in map(type, answers):
                break
            skipped.add(manager)
            if len(skipped) == len(self.peers.managers):
                break
            sent = [n for n in sent if isinstance(results[n], UnsupportedCommand)]
            body = self._codec.encode_commands([commands[n] for n in sent])
        if not_after and self._late_copies_until:
            await self._outlast_late_copies()
        return list(map(_to_defect, results)) if skipped else results

    def _refuse_unencodable(self, commands: Sequence[Command[Any]], results: list[Any]) -> list[int]:
        """Set the results of the commands that cannot be encoded, and return which ones can."""
        sendable: list[int] = []
        for n, command in enumerate(commands):
            try:
                self._codec.encode_commands((command,))
                sendable.append(n)
            except Exception as error:  # noqa: BLE001 - it is the result
                results[n] = to_defect(command, error)
        return sendable

    async def _execute_body(
        self, body: bytes, count: int, may_repeat: bool, skipped: set[Manager], not_after: int
    ) -> tuple[list[Result | UnsupportedCommand], Manager]:
        if len(body) > BODY_BYTES_MAX:
            raise Unavailable("the batch is too large, and nothing was done; send fewer commands at once")
        try:
            answer, manager = await self._ask_one_of("/execute", body, may_repeat=may_repeat, skipped=skipped)
            answers = self._codec.decode_results(answer)
            if len(answers) != count:
                raise Unknown(f"{manager.url} gave {len(answers)} replies to {count} commands; retry")
        except Unavailable:
            raise
        except BaseException:  # also when the caller is cancelled: the batch may be under way
            self._late_copies_until = max(self._late_copies_until, not_after)
            raise
        if not_after and any(isinstance(answer, Unknown) for answer in answers):
            self._late_copies_until = max(self._late_copies_until, not_after)
        return answers, manager

    async def _ask(self, path: str, body: bytes, *, may_repeat: bool) -> bytes:
        return (await self._ask_one_of(path, body, may_repeat=may_repeat))[0]

    async def _ask_one_of(
        self, path: str, body: bytes, *, may_repeat: bool, skipped: set[Manager] | None = None
    ) -> tuple[bytes, Manager]:
        """The answer of the first manager that has one, and which it was."""
        failure: Exception | None = None
        for manager in self.peers.in_order():
            if skipped and manager in skipped:
                continue
            self._refuse_closed()
            try:
                return await self._ask_manager(manager, path, body), manager
            except ManagerRefused as error:
                failure = error
            except NotSent as error:
                manager.reason = str(error)
                failure = error
            except NoAnswer as error:
                manager.note_lost(str(error))
                failure = error
                if not may_repeat:
                    raise Unknown(f"{manager.url} did not answer ({error}); retry it") from error
        if failure is None or not self.peers.some_reached():
            raise self.peers.unavailable_error() from failure
        raise Unavailable(f"nothing was done: {failure}; retry") from failure

    async def _ask_manager(self, manager: Manager, path: str, body: bytes) -> bytes:
        try:
            connection, headers = await self.peers.connect(manager)
        except NotSent as error:
            manager.note_lost(str(error))
            raise
        try:
            answer = await connection.request(path, headers, body)
        except RequestRefused as error:
            self.peers.give_back(manager, connection)
            if error.failure.is_unknown:
                raise NoAnswer(str(error)) from error
            if error.status == STATUS_FORBIDDEN:  # the same at all managers, and other tenants are not concerned
                raise TenantRefused(f"nothing was done: {error}") from error
            raise self.peers.refusal(manager, error) from error
        self.peers.give_back(manager, connection)
        generation, answer = split_generation(answer)
        self.peers.note_generation(generation)
        return answer

    def _latest_store_time(self) -> int:
        sample = self.peers.clock_sample
        assert sample is not None
        return sample.latest(self._monotonic())

    async def _read_clock(self) -> int:
        """The store's time, as a manager says it now."""
        for manager in self.peers.in_order():
            try:
                connection, _ = await self.peers.connect(manager)
                await self.peers.say_hello(manager, connection)
            except (NotSent, ManagerRefused):
                continue
            self.peers.give_back(manager, connection)
            assert manager.hello is not None
            return manager.hello.at
        raise self.peers.unavailable_error()

    async def _outlast_late_copies(self) -> None:
        """Wait until no copy of an earlier batch without an answer can be executed any more."""
        until = self._monotonic() + _LATE_COPIES_SECONDS_MAX
        deadline = self._late_copies_until
        while (ms_left := deadline - await self._read_clock_or_unknown()) >= 0:
            if self._monotonic() >= until:
                raise Unknown("the store's clock does not advance, so a late copy may still be executed; retry")
            await asyncio.sleep(min(ms_left + 1, LATE_MS_MAX) / 1000)
        if self._late_copies_until == deadline:
            self._late_copies_until = 0

    async def _read_clock_or_unknown(self) -> int:
        try:
            return await self._read_clock()
        except Unavailable as error:
            raise Unknown(f"the managers were lost after the batch ({error}); retry it") from error

    async def _watch_managers(self) -> None:
        """Find managers that are back, and learn of those that differ, before a batch meets them."""
        silent_for = 0.0
        logged = {manager.url: manager.info().state for manager in self.peers.managers}
        while True:
            await asyncio.sleep(VISIT_LOST_SECONDS)
            silent_for += VISIT_LOST_SECONDS
            if silent_for < VISIT_ALL_SECONDS and all(manager.is_reached for manager in self.peers.managers):
                continue
            silent_for = 0.0
            await self.peers.probe_all()
            for manager in self.peers.managers:
                state = manager.info().state
                if state != logged[manager.url]:
                    logged[manager.url] = state
                    log.warning("manager %s is %s: %s", manager.url, state, manager.reason or "it answers")

    async def _listen(self) -> None:
        """Hear of settled records from the nearest manager. Polling finds them too, so gaps do no harm."""
        while True:
            for manager in self.peers.in_order():
                try:
                    connection, headers = await self.peers.connect(manager)
                    await connection.stream("/subscribe", headers, self._on_settled)
                except (NotSent, NoAnswer, RequestRefused, ManagerRefused):
                    continue
            await asyncio.sleep(SUBSCRIBE_PAUSE_SECONDS)

    def _on_settled(self, frame: bytes) -> None:
        if frame[:1] != RESULT:
            return
        for record_id in decode_struct(frame[1:], list[bytes]):
            for listener in tuple(self._listeners):
                listener(record_id)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Unavailable("this engine is closed; open another")


def _to_defect(result: Any) -> Any:
    return Defect(result.message, retryable=True) if isinstance(result, UnsupportedCommand) else result


def _needs_deadline(command: Command[Any]) -> bool:
    """True if a late copy could undo something, and the sender has set no deadline."""
    return not command.has_echo and not getattr(command, "not_after", 0)


def _with_deadline(command: Command[Any], not_after: int) -> Command[Any]:
    if not _needs_deadline(command):
        return command
    struct: Any = command  # every command is a Struct, and those without an echo have the field
    dated: Command[Any] = replace(struct, not_after=not_after)
    return dated
