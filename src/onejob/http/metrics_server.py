"""A port on which a worker process shows its metrics and that it is alive: GET /metrics and GET /healthz, nothing else.

The metrics are those of this process. The gauges of the whole store are left to the service: if every worker reported
them, a sum over all targets would count each job many times.
"""

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from onejob.addresses import Address, parse_address
from onejob.ledger import Ledger
from onejob.server.listener import bind_socket
from onejob.worker import Worker

from .metrics import METRICS_MEDIA_TYPE, MetricFamily, Metrics, MetricSample, render_metrics

LOOPBACK = "127.0.0.1"
REQUEST_SECONDS_MAX = 5.0
HEAD_BYTES_MAX = 8192
CONNECTIONS_MAX = 16
_SERVICE_FAMILIES = ("onejob_http_", "onejob_preparations")  # their absence says that no service is there
_TEXT = b"text/plain; charset=utf-8"

log = logging.getLogger("onejob.worker")


def parse_metrics_address(text: str) -> Address:
    """HOST:PORT, :PORT or PORT; without a host it is the loopback address."""
    return parse_address(text, setting="metrics", advice="HOST:PORT, or only a port, e.g. 9101", host_default=LOOPBACK)


@asynccontextmanager
async def serve_metrics(address: tuple[str, int], ledger: Ledger, worker: Worker) -> AsyncIterator[str]:
    """Serve inside this context; gives the URL of the metrics."""
    server = MetricsServer(Metrics(ledger), worker)
    with bind_socket(*address) as listener:
        async with await asyncio.start_server(server.on_connection, sock=listener, limit=HEAD_BYTES_MAX) as listening:
            yield f"{Address(*listener.getsockname()[:2]).url()}/metrics"
            listening.close()


class MetricsServer:
    def __init__(self, metrics: Metrics, worker: Worker) -> None:
        self._metrics = metrics
        self._worker = worker
        self._connections = 0

    async def on_connection(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One request, then the connection is closed."""
        if self._connections >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body, media_type = self._respond(head.split(b"\r\n", 1)[0])
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n"
                    b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%b"
                    % (status, media_type, len(body), body)
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a request for metrics was not answered: %s", error)
            writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _respond(self, request_line: bytes) -> tuple[bytes, bytes, bytes]:
        method, _, rest = request_line.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if path not in (b"/metrics", b"/healthz"):
            return b"404 Not Found", b"there are /metrics and /healthz\n", _TEXT
        if method != b"GET":
            return b"405 Method Not Allowed\r\nAllow: GET", b"send GET\n", _TEXT
        if path == b"/healthz":
            return b"200 OK", b"ok\n", _TEXT
        families = [family for family in self._metrics.families() if not family.name.startswith(_SERVICE_FAMILIES)]
        return b"200 OK", render_metrics([*families, *worker_families(self._worker)]), METRICS_MEDIA_TYPE


def worker_families(worker: Worker) -> list[MetricFamily]:
    running = MetricSample("onejob_worker_running", {}, worker.running)
    concurrency = MetricSample("onejob_worker_concurrency", {}, worker.concurrency)
    return [
        MetricFamily("onejob_worker_running", "Jobs that this worker has claimed and not finished", "gauge", [running]),
        MetricFamily("onejob_worker_concurrency", "How many handlers this worker runs at once", "gauge", [concurrency]),
    ]
