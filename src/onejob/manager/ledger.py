"""The manager's side of the wire: decodes requests, executes them on its engine, encodes the answers. It does no networking.

All gates share one batcher, so their commands are committed together. The manager decides nothing itself: it
checks the credential, the version and the ledger that a request names.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from onejob.clock import Clock
from onejob.core.credentials import LookUpPolicy
from onejob.core.gate_keys import GateKey
from onejob.core.identity import SYSTEM_TENANT
from onejob.core.ledger_settings import SETTINGS_POLICY_ID
from onejob.core.replies import AnyReply, KeySettled, PolicyFound
from onejob.core.work import RETENTION_MS
from onejob.engine import CountCommits, Engine, GateSettings
from onejob.engines.batcher import Batcher
from onejob.engines.remote.codec import (
    Malformed,
    WireCodec,
    add_generation,
    array_length,
    decode_struct,
    encode_page,
    encode_struct,
)
from onejob.engines.remote.messages import (
    FAILURE,
    RESULT,
    STATUS_BAD_REQUEST,
    STATUS_FORBIDDEN,
    STATUS_NOT_FOUND,
    STATUS_OK,
    STATUS_OTHER_LEDGER,
    STATUS_OTHER_VERSION,
    STATUS_UNAUTHORIZED,
    STATUS_UNAVAILABLE,
    WIRE_VERSION,
    WIRE_VERSION_OLDEST,
    BarrierRequest,
    Failure,
    Hello,
    HelloRequest,
    TokenGrant,
    TokenRequest,
    UnsupportedCommand,
    describe_versions,
)
from onejob.engines.remote.url import MANAGERS_MAX
from onejob.errors import OnejobError, Unavailable, Unknown
from onejob.ids import SystemIds
from onejob.runtime.maintenance import Sweeper
from onejob.runtime.rate_limit import RateLimiter
from onejob.runtime.settings import open_lapsed_doors

from .access import (
    ANYBODY,
    GATE_KEY_KINDS,
    PROBE,
    add_differences,
    may_scan,
    not_allowed,
    refusal_of,
    visible_page,
    visible_reply,
)
from .gate_keys import GateKeys

CREDENTIAL_SECONDS_MAX = 1.0  # a revoked gate credential is accepted no longer than this
_CREDENTIALS_MAX = 1000
_DISTANCEPROBES = 3

OnRecordSettled = Callable[[bytes], None]

log = logging.getLogger("onejob.manager")


class WireRequest(NamedTuple):
    path: str
    body: bytes
    version: str = ""
    ledger_id: str = ""
    gate_key: str = ""


class WireResponse(NamedTuple):
    status: int
    frame: bytes
    body_bytes_max: int = 0  # of the next request; 0: as before


class RequestError(Exception):
    """A request that is not executed; the message says what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ManagerIdempotencyLedger:
    """The authoritative ledger behind gates."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        settings: GateSettings,
        needs_gate_key: bool,
        codec: WireCodec | None = None,
        retention_ms: int = RETENTION_MS,
        needs_settings: bool = True,  # False: commands need not prove the settings of the ledger, for the conformance suite
    ) -> None:
        self._batcher = Batcher(engine, coalesce=True)
        self._needs_settings = needs_settings
        self._engine = engine
        self._monotonic = clock.monotonic
        self._settings = settings
        self._codec = codec or WireCodec()
        self._needs_gate_key = needs_gate_key
        self._credentials = _GateCredentials(self._batcher, clock.monotonic)
        self._rates = RateShares(settings, clock.monotonic)
        self._sweeper = Sweeper(self._batcher, retention_ms=retention_ms)
        self._store_ms = 0.0
        self._listeners: dict[OnRecordSettled, None] = {}
        self._handlers = {
            "/execute": self._execute,
            "/scan": self._scan,
            "/barrier": self._barrier,
            "/tokens": self._grant_tokens,
        }

    async def respond(self, request: WireRequest) -> WireResponse:
        """Never raises: every failure has a response."""
        try:
            key = await self.authorize(request)
            if request.path == "/hello":
                return _result(await self._hello(request.body), key)
            version = self.check_target(request)
            handler = self._handlers.get(request.path)
            if handler is None:
                raise RequestError(STATUS_NOT_FOUND, f"a manager has no {request.path}")
            result = await handler(request.body, key, version)
            return _result(add_generation(self._engine.info.generation, result), key)
        except RequestError as error:
            return _failure(error.status, str(error))
        except Malformed as error:
            return _failure(STATUS_BAD_REQUEST, f"the request is malformed ({error})")
        except Unknown as error:
            return _failure(STATUS_UNAVAILABLE, str(error), is_unknown=True)
        except OnejobError as error:
            return _failure(STATUS_UNAVAILABLE, str(error))
        except Exception:
            log.exception("a request for %s failed", request.path)
            return _failure(STATUS_UNAVAILABLE, "the manager failed unexpectedly; see its log", is_unknown=True)

    async def authorize(self, request: WireRequest) -> GateKey:
        """A credential that is sent limits, also where none is needed."""
        if not self._needs_gate_key and not request.gate_key:
            return ANYBODY
        key = await self._credentials.find(request.gate_key)
        if key is None:
            raise RequestError(
                STATUS_UNAUTHORIZED,
                "it does not accept this gate's credential; create one with `onejob gatekey create` on its engine, "
                "and set ONEJOB_GATE_KEY",
            )
        return key

    def check_target(self, request: WireRequest) -> int:
        """The version of a request, if it is one that is spoken here and the ledger is the right one."""
        spoken = range(WIRE_VERSION_OLDEST, WIRE_VERSION + 1)
        version = int(request.version) if request.version.isdecimal() and len(request.version) < 9 else 0
        if version not in spoken:
            raise RequestError(
                STATUS_OTHER_VERSION, _version_message(f"version {request.version}" if request.version else "none")
            )
        if request.ledger_id != self._engine.info.ledger_id:
            raise RequestError(
                STATUS_OTHER_LEDGER,
                f"its ledger is {self._engine.info.ledger_id}, and the request is for {request.ledger_id or 'none'}; "
                "name only managers of one ledger",
            )
        return version

    def subscribe(self, listener: OnRecordSettled) -> None:
        """Call back with records that are settled here or elsewhere, until `unsubscribe`."""
        if not self._listeners:
            self._engine.subscribe(self._on_settled)
            self._batcher.add_commit_listener(self._on_commit)
        self._listeners[listener] = None

    def unsubscribe(self, listener: OnRecordSettled) -> None:
        self._listeners.pop(listener, None)

    def _refusal(self, command: Any, key: GateKey) -> UnsupportedCommand | Unavailable | None:
        is_of_key = bool(getattr(command, "record_id", None))
        if self._needs_settings and is_of_key and getattr(command, "settings", None) == b"":
            return Unavailable(
                "nothing was done: the command does not prove the settings of the ledger; upgrade the gate"
            )
        # A gate for all tenants is limited in the system tenant alone.
        is_limited = bool(key.tenants) or getattr(command, "tenant", SYSTEM_TENANT) == SYSTEM_TENANT
        return refusal_of(command, key) if is_limited else None

    async def maintain(self, interval_seconds: float) -> None:
        """Sweep and measure the distance to the store, until cancelled."""
        while True:
            try:
                await self.measure_distance()
                await asyncio.sleep(interval_seconds)
                await open_lapsed_doors(self._engine)
                await self._sweeper.sweep()
            except OnejobError as error:
                log.warning("maintenance run failed, will retry: %s", error)
                await asyncio.sleep(interval_seconds)
            except Exception:
                log.exception("maintenance run failed with an unexpected error, will retry")
                await asyncio.sleep(interval_seconds)

    async def measure_distance(self) -> None:
        """The fastest of a few point reads: what else delays one says nothing about the line."""
        fastest = float("inf")
        for _ in range(_DISTANCEPROBES):
            begin = self._monotonic()
            await self._engine.execute([PROBE])
            fastest = min(fastest, (self._monotonic() - begin) * 1000)
        self._store_ms = fastest

    async def aclose(self) -> None:
        await self._batcher.aclose()

    async def _hello(self, body: bytes) -> bytes:
        gate: HelloRequest = decode_struct(body, HelloRequest)
        if gate.newest < WIRE_VERSION_OLDEST or gate.oldest > WIRE_VERSION:
            raise RequestError(STATUS_OTHER_VERSION, _version_message(describe_versions(gate.oldest, gate.newest)))
        # The scan goes past the batcher, which may share a page that was read before: every commit until now must be counted.
        read_settings = LookUpPolicy(tenant=SYSTEM_TENANT, policy_id=SETTINGS_POLICY_ID)
        stored, commits = await asyncio.gather(
            self._batcher.execute([read_settings]), self._engine.scan(CountCommits())
        )
        info = self._engine.info
        return encode_struct(
            Hello(
                oldest=WIRE_VERSION_OLDEST,
                newest=WIRE_VERSION,
                ledger_id=info.ledger_id,
                engine=info.name,
                durability=info.durability,
                durability_warning=info.durability_warning,
                batch_max=info.batch_max,
                store_ms=self._store_ms,
                at=_time_of(stored[0]),
                prescribed=self._settings,
                settings=stored[0].policy.body if isinstance(stored[0], PolicyFound) else b"",
                window_ms=info.window_ms,
                erasure_ms=info.erasure_ms,
                generation=commits.items[0] if commits.items else None,
            )
        )

    async def _execute(self, body: bytes, key: GateKey, version: int) -> bytes:
        kind = GATE_KEY_KINDS[key.is_site]
        if array_length(body) > kind.commands_max:  # before anything is decoded
            raise RequestError(STATUS_BAD_REQUEST, f"a batch has at most {kind.commands_max} commands; send fewer")
        parsed = (kind.codec or self._codec).decode_commands(body)
        refused = {
            n: refusal for n, command in enumerate(parsed) if (refusal := self._refusal(command, key)) is not None
        }
        commands: list[Any] = [command for n, command in enumerate(parsed) if n not in refused] if refused else parsed
        results: list[Any] = await self._batcher.execute_each(commands)
        if kind.is_delivery:
            results = await add_differences(self._batcher, commands, results)
        if key.tenants:
            results = [visible_reply(result, key) for result in results]
        if refused:
            replies = iter(results)
            results = [refused[n] if n in refused else next(replies) for n in range(len(parsed))]
        return self._codec.encode_results(results, version)

    async def _scan(self, body: bytes, key: GateKey, version: int) -> bytes:
        query = self._codec.decode_query(body)
        if isinstance(query, UnsupportedCommand):
            raise RequestError(STATUS_UNAVAILABLE, query.message)
        _require(may_scan(query, key), key)
        return encode_page(visible_page(await self._batcher.scan(query), query, key))

    async def _barrier(self, body: bytes, key: GateKey, version: int) -> bytes:
        request: BarrierRequest = decode_struct(body, BarrierRequest)
        _require(key.may_act_for(request.tenant), key)
        await self._batcher.barrier(request.tenant, request.user)
        return b""

    async def _grant_tokens(self, body: bytes, key: GateKey, version: int) -> bytes:
        request: TokenRequest = decode_struct(body, TokenRequest)
        _require(key.may_act_for(request.tenant), key)
        grant: TokenGrant = self._rates.grant(request, is_limited=bool(key.tenants))
        return encode_struct(grant)

    def _on_settled(self, record_id: bytes) -> None:
        for listener in tuple(self._listeners):
            listener(record_id)

    def _on_commit(self, results: Sequence[AnyReply | Exception]) -> None:
        for result in results:
            if isinstance(result, KeySettled):
                self._on_settled(result.record.id)


class _GateCredentials:
    """Verified credentials, read again from the store every second."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float]) -> None:
        self._keys = GateKeys(engine, SystemIds(), actor="system:manager")
        self._monotonic = monotonic
        self._verified: dict[bytes, tuple[float, GateKey]] = {}  # by a digest: no secret stays in memory

    async def find(self, text: str) -> GateKey | None:
        digest = sha256(text.encode()).digest()
        known = self._verified.get(digest)
        now = self._monotonic()
        if known is not None and now - known[0] < CREDENTIAL_SECONDS_MAX:
            return known[1]
        key = await self._keys.verify(text)
        self._verified.pop(digest, None)
        if key is not None:
            if len(self._verified) >= _CREDENTIALS_MAX:
                self._verified.clear()
            self._verified[digest] = now, key
        return key


class RateShares:
    """This manager's share of the rate limits, from which gates take tokens for new submissions.

    Each credential has a token bucket in every manager. It refills with the rate divided by the number of managers, so
    that all gates together stay within the rate, whichever managers they ask.
    """

    def __init__(self, settings: GateSettings, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._managers = 1
        self._managers_of: dict[str, int] = {}  # as gates say that act for some tenants alone: it is theirs only
        self._limiters: dict[int, RateLimiter] = {}  # by the number of managers

    def grant(self, request: TokenRequest, *, is_limited: bool = False) -> TokenGrant:
        wanted = max(request.wanted, 0)
        if self._settings.rate_per_second is None:
            return TokenGrant(wanted)
        managers = self._count_managers(request, is_limited=is_limited)
        limiter = self._limiter_for(managers, self._settings.rate_per_second)
        bucket_key = (request.tenant, request.actor)
        granted = limiter.take(bucket_key, min(wanted, self._settings.rate_burst))
        return TokenGrant(granted, 0 if granted else limiter.retry_after(bucket_key))

    def _count_managers(self, request: TokenRequest, *, is_limited: bool) -> int:
        """Gates that are restarted one by one may know different numbers of managers: the largest counts."""
        told = min(max(request.managers, 1), MANAGERS_MAX)
        if is_limited:
            self._managers_of[request.tenant] = max(told, self._managers_of.get(request.tenant, 1))
        else:
            self._managers = max(told, self._managers)
        return max(self._managers, self._managers_of.get(request.tenant, 1))

    def _limiter_for(self, managers: int, rate: float) -> RateLimiter:
        if managers not in self._limiters:
            burst = max(1, self._settings.rate_burst // managers)
            self._limiters[managers] = RateLimiter(per_second=rate / managers, burst=burst, monotonic=self._monotonic)
        return self._limiters[managers]


def _require(is_allowed: bool, key: GateKey) -> None:
    if not is_allowed or GATE_KEY_KINDS[key.is_site].is_delivery:
        raise RequestError(STATUS_FORBIDDEN, not_allowed(key))


def _version_message(gate: str) -> str:
    spoken = describe_versions(WIRE_VERSION_OLDEST, WIRE_VERSION)
    return f"it speaks {spoken} of the wire, and the gate {gate}; upgrade the older one"


def _time_of(reply: AnyReply) -> int:
    at: int | None = getattr(reply, "at", None)
    if at is None:
        raise Unavailable("the store's time cannot be read; retry")
    return at


def _result(payload: bytes, key: GateKey) -> WireResponse:
    return WireResponse(STATUS_OK, RESULT + payload, GATE_KEY_KINDS[key.is_site].body_bytes_max)


def _failure(status: int, message: str, *, is_unknown: bool = False) -> WireResponse:
    return WireResponse(status, FAILURE + encode_struct(Failure(message, is_unknown)))
