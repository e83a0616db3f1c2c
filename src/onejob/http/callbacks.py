"""Callbacks: posts the end of a job to the URL that its submitter named, at least once.

A callback is itself a job, which this process claims, runs and finishes as a worker would. The URL comes from a
client: its host is resolved once, private addresses are refused, and redirects are not followed.

A receiver may hang, and so may the look-up of its name. Each tenant therefore has a few callbacks at a time and no more, and a
look-up, which cannot be interrupted, counts for its tenant until it returns.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import json

from onejob.backoff import Backoff
from onejob.clock import SystemClock
from onejob.core.callback import CallbackInput, has_public_port
from onejob.core.facts import Job
from onejob.core.identity import CALLBACK_TYPE, format_job_id
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Found
from onejob.core.work import RETENTION_MS, Finish, FinishOutcome
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.resources.jobs import JobView, to_job_view
from onejob.runtime.claims import ClaimedJob
from onejob.runtime.service_loop import ServiceLoop
from onejob.webhooks import load_or_create_secrets, signed_headers

from .config import ServiceConfig
from .metrics import VERSION
from .schemas.types import ResponseBody

POST_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 5.0  # with the TLS handshake
CALLBACKS_AT_ONCE_MAX = 100
CALLBACKS_PER_TENANT_MAX = 5
LEASE_MS = 60_000
PAUSE_FIRST = 0.2
PAUSE_MAX = 2.0
ACTOR = "system:callbacks"

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_LINE_BYTES_MAX = 4096
# The only block of IPv6 that is routed globally; `is_global` alone accepts more.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

AddressInfos = list[Any]  # what getaddrinfo returns
Resolve = Callable[[str, int], Awaitable[AddressInfos]]

log = logging.getLogger("onejob.http")


class PostFailed(Exception):
    """A delivery failed; the message may be shown to the submitter."""


class CallbackOut(ResponseBody, frozen=True, rename="camel"):
    """The body that is posted."""

    delivery: str  # the same on every retry
    job: JobView


@asynccontextmanager
async def callback_delivery(ledger: Ledger, config: ServiceConfig) -> AsyncIterator[None]:
    """Deliver callbacks inside this context."""
    sender = CallbackSender(
        runtime_of(ledger).gate,
        runtime_of(ledger).ids,
        allow_private=config.callbacks == "any",
        retention_ms=runtime_of(ledger).retention_ms,
    )
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        task.cancel()  # an interrupted delivery is repeated when its lease has expired
        with suppress(asyncio.CancelledError):
            await task


class Resolver:
    """Looks up host names in threads of its own, which do not delay the exit of the process.

    A look-up that nobody waits for any more still counts for its tenant, until the system gives up on it.
    """

    def __init__(self) -> None:
        self.busy: Counter[str] = Counter()  # threads by tenant

    async def resolve(self, tenant: str, host: str, port: int) -> AddressInfos:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[AddressInfos] = loop.create_future()

        def look_up() -> None:
            result: AddressInfos | Exception
            try:
                result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finish, tenant, future, result)

        Thread(target=look_up, name="onejob-resolver", daemon=True).start()
        self.busy[tenant] += 1
        return await future

    def _finish(self, tenant: str, future: "asyncio.Future[AddressInfos]", result: AddressInfos | Exception) -> None:
        self.busy[tenant] -= 1
        if not self.busy[tenant]:
            del self.busy[tenant]
        if future.done():  # the caller has gone
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


class CallbackSender:
    def __init__(self, gate: Gate, ids: Ids, *, allow_private: bool, retention_ms: int = RETENTION_MS) -> None:
        self._gate = gate
        self._ids = ids
        self._allow_private = allow_private
        self._resolver = Resolver()
        self._running: Counter[str] = Counter()  # callbacks by tenant
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = ServiceLoop(
            "callback delivery",
            gate,
            ids,
            type=CALLBACK_TYPE,
            lease_ms=LEASE_MS,
            start=True,
            room=self._room,
            handle=self._start,
            backoff=Backoff(PAUSE_FIRST, PAUSE_MAX),
            retention_ms=retention_ms,
        )

    async def run(self) -> None:
        try:
            await self._loop.run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def deliver_ready(self) -> int:
        """Deliver all callbacks that are ready; returns how many there were."""
        count = 0
        while started := await self._loop.run_once():
            count += started
            await asyncio.gather(*self._tasks)
        return count

    def _room(self, tenant: str) -> int:
        busy = self._resolver.busy
        own = CALLBACKS_PER_TENANT_MAX - max(self._running[tenant], busy[tenant])
        return min(own, CALLBACKS_AT_ONCE_MAX - max(len(self._tasks), busy.total()))

    async def _start(self, claimed: Sequence[ClaimedJob]) -> None:
        for callback in claimed:
            self._running[callback.job.tenant] += 1
            task = asyncio.get_running_loop().create_task(self._run_callback(callback))
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_task_end, callback.job.tenant))

    def _on_task_end(self, tenant: str, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._loop.has_room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease expires, and it is delivered again.
            log.warning("callback delivery failed, will retry: %s", type(error).__name__)

    async def _run_callback(self, claimed: ClaimedJob) -> None:
        job = claimed.job
        error, final = "", False
        try:
            await self._deliver(job, json.decode(claimed.input, type=CallbackInput))
        except PostFailed as failed:
            error = str(failed)
        except OnejobError as failed:
            error, final = "the job is gone", not failed.retryable
        outcome = FinishOutcome.FAILED if error else FinishOutcome.SUCCESS
        await self._gate.execute(
            [
                Finish(
                    tenant=job.tenant,
                    job_id=job.id,
                    token=job.token,
                    holder=job.holder,
                    outcome=outcome,
                    error=error,
                    final=final,
                    actor=ACTOR,
                )
            ]
        )

    async def _deliver(self, callback_job: Job, callback: CallbackInput) -> None:
        tenant = callback_job.tenant
        (reply,) = await self._gate.execute([LookUpJob(tenant=tenant, job_id=callback.job_id)])
        if not isinstance(reply, Found) or reply.job is None:
            raise OnejobError("the job is gone")
        secrets = await load_or_create_secrets(self._gate, tenant, self._ids, actor=ACTOR)
        body = json.encode(CallbackOut(format_job_id(callback_job.id), to_job_view(reply.job)))
        now = SystemClock().wall_ms() // 1000
        headers = {"User-Agent": f"onejob/{VERSION}"} | signed_headers(
            secrets, body, delivery=format_job_id(callback_job.id), at=now
        )
        resolve = partial(self._resolver.resolve, tenant)
        status = await post(callback.url, body, headers, resolve=resolve, allow_private=self._allow_private)
        if not 200 <= status < 300:
            raise PostFailed(f"answered {status}")


async def post(url: str, body: bytes, headers: Mapping[str, str], *, resolve: Resolve, allow_private: bool) -> int:
    """The status of the response; its body is not read."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(POST_SECONDS_MAX):
            address = await _resolve_address(parts, resolve, allow_private=allow_private)
            if not allow_private and not has_public_port(url):
                raise PostFailed("the port is not 80 or 443, and others are not allowed here")
            return await _send_request(parts, address, body, headers)
    except TimeoutError:
        raise PostFailed(f"no response within {POST_SECONDS_MAX:g} s") from None
    except ssl.SSLError as error:
        raise PostFailed(f"TLS connection failed ({error.reason or 'unknown reason'})") from None
    except OSError:
        raise PostFailed("connection failed") from None


async def _resolve_address(parts: SplitResult, resolve: Resolve, *, allow_private: bool) -> str:
    """The address to connect to. It is checked and used, so a second look-up cannot lead elsewhere."""
    try:
        resolved = await resolve(parts.hostname or "", _port(parts))
    except (OSError, UnicodeError):
        raise PostFailed("the host name cannot be resolved") from None
    for *_, sockaddr in resolved:
        address = str(sockaddr[0])
        if allow_private or is_public(address):
            return address
    raise PostFailed("the host has no public address, and private ones are not allowed here")


def is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        # An IPv4 address inside an IPv6 address: the inner one is the destination.
        inner = address.ipv4_mapped or address.sixtofour or _nat64_target(address)
        if inner is not None:
            return is_public(str(inner))
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


def _nat64_target(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a NAT64 translator connects to."""
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


async def _send_request(parts: SplitResult, address: str, body: bytes, headers: Mapping[str, str]) -> int:
    secure = parts.scheme == "https"
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(
                address,
                _port(parts),
                limit=_LINE_BYTES_MAX,
                ssl=_tls_context() if secure else None,
                server_hostname=parts.hostname if secure else None,
            )
    except TimeoutError:
        raise PostFailed(f"no connection within {CONNECT_SECONDS_MAX:g} s") from None
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("ascii") + body)
        await writer.drain()
        try:
            status_line = _STATUS.match(await reader.readline())
        except ValueError:
            status_line = None
        if not status_line:
            raise PostFailed("the response is not HTTP")
        return int(status_line[1])
    finally:
        writer.transport.abort()


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
