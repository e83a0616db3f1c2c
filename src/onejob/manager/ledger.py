"""The manager's side of the wire: decodes requests, executes them on its engine, encodes the answers. It does no networking.

All gates share one batcher, so their commands are committed together. The manager decides nothing itself: it
checks the credential, the version and the ledger that a request names, and sets what is its own to set, which is how long
a forgotten key stays until every gate has forgotten it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.clock import Clock
from onejob.core.command import Command
from onejob.core.credentials import SetPolicy
from onejob.core.gate_keys import POLICY_PREFIX, GateKey
from onejob.core.identity import SYSTEM_TENANT, policy_id
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import Forget
from onejob.core.replies import AnyReply, KeySettled
from onejob.core.submit import Submit
from onejob.core.work import RETENTION_MS
from onejob.engine import Engine, LedgerSettings, Query
from onejob.engines.batcher import Batcher
from onejob.errors import OnejobError, Unavailable, Unknown
from onejob.http.rate_limit import RateLimiter
from onejob.ids import SystemIds
from onejob.ledger.maintenance import Sweeper
from onejob.wire.codec import Malformed, WireCodec, decode_struct, encode_page, encode_struct
from onejob.wire.messages import (
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
    NotUnderstood,
    TokenGrant,
    TokenRequest,
)

from .gate_keys import GateKeys

CREDENTIAL_SECONDS_MAX = 1.0  # a revoked gate credential is accepted no longer than this
COMMANDS_MAX = 10_000
SITE_COMMANDS = (Submit, LookUpJob)  # CancelAtSite is a Submit
_CREDENTIALS_MAX = 1000
_DISTANCE_PROBES = 3
_PROBE = LookUpJob(tenant=SYSTEM_TENANT, job_id=bytes(16))
_ANYBODY = GateKey("", "", (), 0, "")  # where no credential is needed: it may act for all tenants

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
        settings: LedgerSettings,
        needs_gate_key: bool,
        codec: WireCodec | None = None,
        retention_ms: int = RETENTION_MS,
        forget_grace_ms: int | None = None,  # None: as long as the settings let a gate remember
    ) -> None:
        self._batcher = Batcher(engine, coalesce=True)
        self._engine = engine
        self._monotonic = clock.monotonic
        self._settings = settings
        self._codec = codec or WireCodec()
        self._credentials = _GateCredentials(self._batcher, clock.monotonic) if needs_gate_key else None
        self._rates = RateShares(settings, clock.monotonic)
        self._sweeper = Sweeper(self._batcher, retention_ms=retention_ms)
        self._store_ms = 0.0
        remembered = max(settings.committed_ttl_seconds, settings.rejected_ttl_seconds)
        self._forget_grace_ms = round(remembered * 1000) if forget_grace_ms is None else forget_grace_ms
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
                return _result(await self._hello(request.body))
            version = self.check_target(request)
            handler = self._handlers.get(request.path)
            if handler is None:
                raise RequestError(STATUS_NOT_FOUND, f"a manager has no {request.path}")
            return _result(await handler(request.body, key, version))
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
        if self._credentials is None:
            return _ANYBODY
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
        version = int(request.version) if request.version.isdigit() and len(request.version) < 9 else 0
        if version not in spoken:
            raise RequestError(STATUS_OTHER_VERSION, _version_message(request.version or "none"))
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

    async def maintain(self, interval_seconds: float) -> None:
        """Sweep and measure the distance to the store, until cancelled."""
        while True:
            try:
                await self.measure_distance()
                await asyncio.sleep(interval_seconds)
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
        for _ in range(_DISTANCE_PROBES):
            begin = self._monotonic()
            await self._engine.execute([_PROBE])
            fastest = min(fastest, (self._monotonic() - begin) * 1000)
        self._store_ms = fastest

    async def aclose(self) -> None:
        await self._batcher.aclose()

    async def _hello(self, body: bytes) -> bytes:
        gate: HelloRequest = decode_struct(body, HelloRequest)
        if gate.newest < WIRE_VERSION_OLDEST or gate.oldest > WIRE_VERSION:
            raise RequestError(STATUS_OTHER_VERSION, _version_message(f"{gate.oldest} to {gate.newest}"))
        (probe,) = await self._batcher.execute([_PROBE])
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
                at=_time_of(probe),
                settings=self._settings,
                window_ms=info.window_ms,
                erasure_ms=info.erasure_ms,
            )
        )

    async def _execute(self, body: bytes, key: GateKey, version: int) -> bytes:
        parsed = self._codec.decode_commands(body)
        if len(parsed) > COMMANDS_MAX:
            raise RequestError(STATUS_BAD_REQUEST, f"a batch has at most {COMMANDS_MAX} commands; send fewer")
        commands = [command for command in parsed if not isinstance(command, NotUnderstood)]
        _check_allowed(commands, key)
        results = await self._batcher.execute_each([self._with_grace(command) for command in commands])
        if len(commands) == len(parsed):
            return self._codec.encode_results(results, version)
        replies = iter(results)
        return self._codec.encode_results(
            [one if isinstance(one, NotUnderstood) else next(replies) for one in parsed], version
        )

    async def _scan(self, body: bytes, key: GateKey, version: int) -> bytes:
        query = self._codec.decode_query(body)
        if isinstance(query, NotUnderstood):
            raise RequestError(STATUS_UNAVAILABLE, query.message)
        if key.is_site or not key.may_act_for(_tenant_of(query)):
            raise _not_allowed(key)
        return encode_page(await self._batcher.scan(query))

    async def _barrier(self, body: bytes, key: GateKey, version: int) -> bytes:
        request: BarrierRequest = decode_struct(body, BarrierRequest)
        if key.is_site or not key.may_act_for(request.tenant):
            raise _not_allowed(key)
        await self._batcher.barrier(request.tenant, request.user)
        return b""

    async def _grant_tokens(self, body: bytes, key: GateKey, version: int) -> bytes:
        request: TokenRequest = decode_struct(body, TokenRequest)
        if key.is_site or not key.may_act_for(request.tenant):
            raise _not_allowed(key)
        grant: TokenGrant = self._rates.grant(request)
        return encode_struct(grant)

    def _with_grace(self, command: Command[Any]) -> Command[Any]:
        if isinstance(command, Forget) and command.grace_ms < self._forget_grace_ms:
            return replace(command, grace_ms=self._forget_grace_ms)
        return command

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

    def __init__(self, settings: LedgerSettings, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._managers = 0
        self._limiter: RateLimiter | None = None

    def grant(self, request: TokenRequest) -> TokenGrant:
        if self._settings.rate_per_second is None:
            return TokenGrant(request.wanted)
        limiter = self._limiter_for(request.managers, self._settings.rate_per_second)
        bucket_key = (request.tenant, request.actor)
        granted = limiter.take(bucket_key, min(request.wanted, self._settings.rate_burst))
        return TokenGrant(granted, 0 if granted else limiter.retry_after(bucket_key))

    def _limiter_for(self, managers: int, rate: float) -> RateLimiter:
        """Gates that are restarted one by one may know different numbers of managers: the largest counts."""
        if self._limiter is None or managers > self._managers:
            self._managers = max(managers, 1)
            burst = max(1, self._settings.rate_burst // self._managers)
            self._limiter = RateLimiter(per_second=rate / self._managers, burst=burst, monotonic=self._monotonic)
        return self._limiter


def _check_allowed(commands: Sequence[Command[Any]], key: GateKey) -> None:
    tenants = {command.tenant for command in commands}
    if not all(map(key.may_act_for, tenants)):
        raise _not_allowed(key)
    if key.is_site and not all(isinstance(command, SITE_COMMANDS) for command in commands):
        raise RequestError(
            STATUS_FORBIDDEN, f"the credential {key.name!r} of a site may deliver jobs, and nothing else"
        )
    # A gate must not make credentials for other gates, under their name or under another.
    if SYSTEM_TENANT in tenants and any(map(_makes_gate_key, commands)):
        raise RequestError(STATUS_FORBIDDEN, "gate keys are made on the engine, not through a gate")


def _makes_gate_key(command: Command[Any]) -> bool:
    if command.tenant != SYSTEM_TENANT or not isinstance(command, SetPolicy):
        return False
    is_named_right = command.policy_id == policy_id(command.tenant, command.name)
    return command.name.startswith(POLICY_PREFIX) or not is_named_right


def _tenant_of(query: Query[Any]) -> str | None:
    return getattr(query, "tenant", None)


def _not_allowed(key: GateKey) -> RequestError:
    return RequestError(STATUS_FORBIDDEN, f"the gate credential {key.name!r} may not act for this tenant")


def _version_message(gate: str) -> str:
    spoken = f"{WIRE_VERSION_OLDEST} to {WIRE_VERSION}"
    return f"it speaks versions {spoken} of the wire, and the gate {gate}; upgrade the older one"


def _time_of(reply: AnyReply) -> int:
    at: int | None = getattr(reply, "at", None)
    if at is None:
        raise Unavailable("the store's time cannot be read; retry")
    return at


def _result(payload: bytes) -> WireResponse:
    return WireResponse(STATUS_OK, RESULT + payload)


def _failure(status: int, message: str, *, is_unknown: bool = False) -> WireResponse:
    return WireResponse(status, FAILURE + encode_struct(Failure(message, is_unknown)))
