"""The managers that an engine knows: what each said in its hello, its connections, and which of them to ask first.

All managers of a gate must own the same ledger with the same settings and the same durability. The first contact
decides; whoever differs from it is refused by name and never asked, until it says otherwise.

A store counts its commits, and each answer says how many the manager knows of. The hello says how many there are now: if they
are fewer than this process knew before it asked, acknowledged commits are missing, and the manager is refused. Answers may
overtake each other, so only a hello is compared.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from onejob.addresses import Address
from onejob.clock import Clock
from onejob.engine import Durability, GateSettings, ManagerInfo
from onejob.errors import StoreRefused, Unavailable
from onejob.ids import random_fraction

from .codec import Malformed, decode_struct, encode_struct
from .connection import (
    IDLE_CONNECTIONS_MAX,
    HeaderLines,
    NoAnswer,
    NotSent,
    RequestRefused,
    WireConnection,
    open_connection,
)
from .messages import (
    LEDGER_HEADER,
    STATUS_OTHER_LEDGER,
    STATUS_OTHER_VERSION,
    STATUS_UNAUTHORIZED,
    VERSION_HEADER,
    WIRE_VERSION,
    WIRE_VERSION_OLDEST,
    Hello,
    HelloRequest,
    describe_versions,
)

# Managers whose cost differs by less are equally near: which of them a gate asks is drawn, so that gates spread.
NEAR_MS = 5.0
# How often a batch that loads under locks crosses the network between a manager and its store.
_STORE_CROSSINGS = 6
_FINGERPRINT_VERSION = 1
_DURABILITIES = tuple(Durability)
_REFUSING_STATUSES = (STATUS_UNAUTHORIZED, STATUS_OTHER_LEDGER, STATUS_OTHER_VERSION)


class ManagerRefused(Exception):
    """This manager must not be asked: it owns another ledger, is too old, or does not accept the credential."""


class AgreedLedger(NamedTuple):
    """The hello that all others are compared with, and the manager that said it."""

    url: str
    hello: Hello


class StoreTimeSample(NamedTuple):
    """The store's time, and between which moments of the own monotonic clock it was read."""

    at: int
    sent: float
    received: float

    def latest(self, now: float) -> int:
        """The latest that the store's clock can show now."""
        return self.at + round((now - self.sent) * 1000) + 1


class Manager:
    """One manager. `hello` is what it said last; None: nothing yet."""

    def __init__(self, address: Address, url: str) -> None:
        self.address = address
        self.url = url
        self.hello: Hello | None = None
        self.version = 0
        self.cost_ms = float("inf")
        self.is_reached = False
        self.is_refused = False
        self.is_silent = False  # at the last visit: batches do not wait for it until it says hello
        self.reason = "it was not asked yet"
        self.idle: list[WireConnection] = []
        self.tie_break = random_fraction()

    def info(self) -> ManagerInfo:
        state = "refused" if self.is_refused else "reached" if self.is_reached else "unreachable"
        return ManagerInfo(
            url=self.url, state=state, version=self.version, reason="" if self.is_reached else self.reason
        )

    def note_reached(self) -> None:
        self.is_reached, self.is_refused, self.is_silent, self.reason = True, False, False, ""

    def note_lost(self, reason: str) -> None:
        self.is_reached, self.reason = False, reason
        self.close_idle()

    def note_refused(self, reason: str) -> None:
        self.is_refused = True
        self.note_lost(reason)

    def close_idle(self) -> None:
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()


class Peers:
    def __init__(
        self,
        managers: Sequence[Manager],
        *,
        gate_key: str,
        tls: ssl.SSLContext | None,
        clock: Clock,
        silence_seconds_max: float,
    ) -> None:
        self.managers = managers
        self.agreed: AgreedLedger | None = None
        self.settings = b""  # of the ledger, as a manager has last said
        self.clock_sample: StoreTimeSample | None = None
        self.generation = 0  # the most commits of the store that an answer has shown
        self._authorization: HeaderLines = ((b"authorization", b"Bearer " + gate_key.encode()),) if gate_key else ()
        self._tls = tls
        self._monotonic = clock.monotonic
        self._silence_seconds_max = silence_seconds_max

    def in_order(self) -> list[Manager]:
        """The managers to ask, the nearest first; those that are not reached come last, refused and silent ones not at all."""
        usable = [manager for manager in self.managers if not (manager.is_refused or manager.is_silent)]
        nearest = min((manager.cost_ms for manager in usable if manager.is_reached), default=0.0)
        return sorted(
            usable, key=lambda manager: (not manager.is_reached, manager.cost_ms > nearest + NEAR_MS, manager.tie_break)
        )

    async def connect(self, manager: Manager) -> tuple[WireConnection, HeaderLines]:
        """A connection that has said hello, and the headers of its requests. Raises NotSent or ManagerRefused."""
        while manager.idle:
            connection = manager.idle.pop()
            if connection.is_open:
                return connection, self._headers(manager)
        connection = await self._open(manager)
        await self.say_hello(manager, connection)
        return connection, self._headers(manager)

    def give_back(self, manager: Manager, connection: WireConnection) -> None:
        if connection.is_open and manager.is_reached and len(manager.idle) < IDLE_CONNECTIONS_MAX:
            manager.idle.append(connection)
        else:
            connection.close()

    async def say_hello(self, manager: Manager, connection: WireConnection) -> None:
        """Ask a manager who it is, and refuse it if it does not belong to the others."""
        sent, known_generation = self._monotonic(), self.generation
        try:
            request = encode_struct(HelloRequest(WIRE_VERSION_OLDEST, WIRE_VERSION))
            answer = await connection.request("/hello", self._authorization, request)
            hello: Hello = decode_struct(answer, Hello)
            received = self._monotonic()
            self._check(manager, hello)
            self._check_generation(hello, known_generation)
        except ManagerRefused as error:
            connection.close()
            manager.note_refused(str(error))
            raise
        except RequestRefused as error:
            connection.close()
            raise self.refusal(manager, error) from error
        except (NotSent, NoAnswer) as error:
            connection.close()
            manager.note_lost(str(error))
            raise NotSent(str(error), is_silent=error.is_silent) from error
        except Malformed as error:
            connection.close()
            manager.note_lost(str(error))
            raise NotSent(str(error)) from error
        self.settings = hello.settings
        manager.hello, manager.version = hello, min(hello.newest, WIRE_VERSION)
        # The best of several: what else delayed an answer says nothing about the line.
        manager.cost_ms = min(manager.cost_ms, (received - sent) * 1000 + _STORE_CROSSINGS * hello.store_ms)
        manager.note_reached()
        self.clock_sample = StoreTimeSample(hello.at, sent, received)

    def note_generation(self, generation: int) -> None:
        self.generation = max(self.generation, generation)

    def refusal(self, manager: Manager, error: RequestRefused) -> Exception:
        """What a failure that a manager answered with means for it."""
        if error.status in _REFUSING_STATUSES:
            manager.note_refused(str(error))
            return ManagerRefused(str(error))
        return NotSent(str(error))

    def raise_if_mixed(self) -> None:
        """Refuse to open if a manager that was reached is not one of this ledger."""
        for manager in self.managers:
            if manager.is_refused:
                raise StoreRefused(f"the manager {manager.url} is refused: {manager.reason}")

    def some_reached(self) -> bool:
        return any(manager.is_reached for manager in self.managers)

    def unavailable_error(self) -> Unavailable:
        reasons = "; ".join(f"{manager.url}: {manager.reason}" for manager in self.managers)
        return Unavailable(f"no manager can be reached, and nothing was done ({reasons}); retry")

    def close(self) -> None:
        for manager in self.managers:
            manager.note_lost("this engine is closed")

    async def probe_all(self) -> None:
        """Say hello to every manager: so that those that were lost are asked again, and to learn how far the others are."""
        await asyncio.gather(*(self._visit(manager) for manager in self.managers))

    async def _visit(self, manager: Manager) -> None:
        try:
            connection = await self._open(manager)
            await self.say_hello(manager, connection)
        except NotSent as error:
            manager.note_lost(str(error))
            manager.is_silent = error.is_silent
        except ManagerRefused:
            pass  # the manager has the reason
        else:
            self.give_back(manager, connection)

    async def _open(self, manager: Manager) -> WireConnection:
        return await open_connection(manager.address, self._tls, silence_seconds_max=self._silence_seconds_max)

    def _check(self, manager: Manager, hello: Hello) -> None:
        if hello.oldest > WIRE_VERSION or hello.newest < WIRE_VERSION_OLDEST:
            raise ManagerRefused(
                f"it speaks {describe_versions(hello.oldest, hello.newest)} of the wire, and this program "
                f"{describe_versions(WIRE_VERSION_OLDEST, WIRE_VERSION)}; upgrade the older one"
            )
        if hello.prescribed.fingerprint_version != _FINGERPRINT_VERSION:
            raise ManagerRefused("its fingerprints are of another version; upgrade the older program")
        if self.agreed is None:
            self.agreed = AgreedLedger(manager.url, hello)
        url, known = self.agreed
        if hello.ledger_id != known.ledger_id:
            raise ManagerRefused(
                f"its ledger is {hello.ledger_id}, and that of {url} is {known.ledger_id}; "
                "name only managers of one ledger"
            )
        if hello.durability is not known.durability:
            lower = min(hello.durability, known.durability, key=_DURABILITIES.index)
            raise ManagerRefused(
                f"its durability is {hello.durability}, and that of {url} is {known.durability}; raise the one with {lower}"
            )
        if hello.prescribed != known.prescribed:
            raise ManagerRefused(
                f"its settings differ from those of {url} ({_differences(hello.prescribed, known.prescribed)}); "
                "configure all managers alike, then restart this process"
            )

    def _check_generation(self, hello: Hello, known: int) -> None:
        if hello.generation is None:
            return  # a store that does not count, or an older manager
        if hello.generation < known:
            raise ManagerRefused(
                f"its store was rolled back: it has {hello.generation} commits, and this process has seen {known}, so that "
                "answered keys would be new; put the newest store back, or serve what is left as a new ledger "
                "(`onejob restore --accept-loss --force`), then restart this process"
            )
        self.note_generation(hello.generation)

    def _headers(self, manager: Manager) -> HeaderLines:
        assert self.agreed is not None
        return (
            (VERSION_HEADER, b"%d" % manager.version),
            (LEDGER_HEADER, self.agreed.hello.ledger_id.encode()),
            *self._authorization,
        )


def _differences(own: GateSettings, other: GateSettings) -> str:
    names = (name for name in own.__struct_fields__ if getattr(own, name) != getattr(other, name))
    return ", ".join(f"{name}: {getattr(own, name)} and {getattr(other, name)}" for name in names)
