"""Callbacks: posts the end of a job to the URL that its submitter named, at least once.

A callback is itself a job, which this process claims, runs and finishes as a worker would. The URL comes from a
client: its host is resolved once, private addresses are refused, and redirects are not followed.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from urllib.parse import SplitResult, urlsplit

from msgspec import json

from onejob.clock import SystemClock
from onejob.core.callback import CallbackInput
from onejob.core.facts import Job
from onejob.core.identity import CALLBACK_TYPE, format_job_id
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Found
from onejob.core.views import JobView
from onejob.core.work import RETENTION_MS, Finish, FinishOutcome
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.ledger.claims import ClaimedJob, ClaimRequest, Claims
from onejob.webhooks import DELIVERY_HEADER, SIGNATURE_HEADER, load_secrets, sign

from .config import ServiceConfig
from .metrics import VERSION
from .schemas.jobs import JobOut, job_out
from .schemas.types import ResponseBody

POST_SECONDS_MAX = 15.0
CALLBACKS_AT_ONCE_MAX = 20
LEASE_MS = 60_000
PAUSE_FIRST = 0.2
PAUSE_MAX = 2.0
ACTOR = "system:callbacks"

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_LINE_BYTES_MAX = 4096
# The only block of IPv6 that is routed globally; `is_global` alone accepts more.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

log = logging.getLogger("onejob.http")


class PostFailed(Exception):
    """A delivery failed; the message may be shown to the submitter."""


class CallbackOut(ResponseBody, frozen=True, rename="camel"):
    """The body that is posted."""

    delivery: str  # the same on every repetition
    job: JobOut


@asynccontextmanager
async def callback_delivery(ledger: Ledger, config: ServiceConfig) -> AsyncIterator[None]:
    """Deliver callbacks inside this context, if the settings allow them."""
    if config.callbacks == "none":
        yield
        return
    sender = CallbackSender(
        ledger.runtime.gate,
        ledger.runtime.ids,
        allow_private=config.callbacks == "any",
        retention_ms=ledger.runtime.retention_ms,
    )
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        task.cancel()  # an interrupted delivery is repeated when its lease has expired
        with suppress(asyncio.CancelledError):
            await task


class CallbackSender:
    def __init__(self, gate: Gate, ids: Ids, *, allow_private: bool, retention_ms: int = RETENTION_MS) -> None:
        self._gate = gate
        self._claims = Claims(gate, ids, retention_ms=retention_ms)  # its own, because it takes turns between tenants
        self._ids = ids
        self._allow_private = allow_private

    async def run(self) -> None:
        pause = PAUSE_FIRST
        while True:
            try:
                pause = PAUSE_FIRST if await self.deliver_ready() else min(pause * 2, PAUSE_MAX)
            except OnejobError as error:
                log.warning("callback delivery failed, will retry: %s", error)
                pause = PAUSE_MAX
            except Exception:
                log.exception("callback delivery failed, will retry")
                pause = PAUSE_MAX
            await asyncio.sleep(pause)

    async def deliver_ready(self) -> int:
        """Deliver the callbacks that are ready; returns how many there were."""
        request = ClaimRequest(
            types=(CALLBACK_TYPE,),
            holder=self._ids.holder(),
            limit=CALLBACKS_AT_ONCE_MAX,
            lease_ms=LEASE_MS,
            start=True,
        )
        claimed = await self._claims.claim(request)
        await asyncio.gather(*map(self._run_callback, claimed))
        return len(claimed)

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
        secrets = await load_secrets(self._gate, tenant)
        if not secrets:
            raise PostFailed("the tenant has no webhook secret; make one with `onejob webhook-secret create`")
        body = json.encode(CallbackOut(format_job_id(callback_job.id), job_out(JobView(reply.job))))
        headers = {
            "User-Agent": f"onejob/{VERSION}",
            DELIVERY_HEADER: format_job_id(callback_job.id),
            SIGNATURE_HEADER: sign(secrets, body, SystemClock().wall_ms() // 1000),
        }
        status = await post(callback.url, body, headers, allow_private=self._allow_private)
        if not 200 <= status < 300:
            raise PostFailed(f"answered {status}")


async def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> int:
    """The status of the response; its body is not read."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(POST_SECONDS_MAX):
            address = await _resolve_address(parts, allow_private=allow_private)
            return await _send_request(parts, address, body, headers)
    except TimeoutError:
        raise PostFailed(f"no response within {POST_SECONDS_MAX:g} s") from None
    except ssl.SSLError as error:
        raise PostFailed(f"TLS connection failed ({error.reason or 'unknown reason'})") from None
    except OSError:
        raise PostFailed("connection failed") from None


async def _resolve_address(parts: SplitResult, *, allow_private: bool) -> str:
    """The address to connect to. It is checked and used, so a second look-up cannot lead elsewhere."""
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(parts.hostname, _port(parts), type=socket.SOCK_STREAM)
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
    reader, writer = await asyncio.open_connection(
        address,
        _port(parts),
        limit=_LINE_BYTES_MAX,
        ssl=_tls_context() if secure else None,
        server_hostname=parts.hostname if secure else None,
    )
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
