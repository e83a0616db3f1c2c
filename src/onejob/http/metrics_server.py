"""A port on which a worker process shows its metrics and that it is alive: GET /metrics and GET /healthz, nothing else.

The metrics are those of this process. The gauges of the whole store are left to the service: if every worker reported
them, a sum over all targets would count each job many times.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from onejob.addresses import Address, parse_address
from onejob.ledger import Ledger
from onejob.server.connection import Connection, ConnectionContext, ConnectionLimits
from onejob.server.exchange import HttpExchange, RefusedRequest, Scope
from onejob.server.listener import HttpServer, address_of, bind_socket
from onejob.worker import Worker

from .metrics import METRICS_MEDIA_TYPE, MetricFamily, Metrics, MetricSample, render_metrics

LOOPBACK = "127.0.0.1"
LIMITS = ConnectionLimits(
    head_bytes_max=8192, head_seconds_max=5.0, body_seconds_max=5.0, idle_seconds_max=5.0, connections_max=16
)
_SERVICE_FAMILIES = ("onejob_http_", "onejob_preparations")  # their absence says that no service is there
_TEXT = b"text/plain; charset=utf-8"
_NOT_FOUND = (b"404 Not Found", b"there are /metrics and /healthz\n", _TEXT)


def parse_metrics_address(text: str) -> Address:
    """HOST:PORT, :PORT or PORT; without a host it is the loopback address."""
    return parse_address(text, setting="metrics", advice="HOST:PORT, or only a port, e.g. 9101", host_default=LOOPBACK)


@asynccontextmanager
async def serve_metrics(address: Address, ledger: Ledger, worker: Worker) -> AsyncIterator[str]:
    """Serve inside this context; gives the URL of the metrics."""
    page = MetricsPage(Metrics(ledger), worker)
    context = ConnectionContext(page, LIMITS, _render_refusal)
    server = HttpServer(context, MetricsConnection, drain_seconds_max=0.0, has_date=False)
    with bind_socket(*address) as listener:
        await server.start([listener])
        try:
            yield f"{address_of(listener).url()}/metrics"
        finally:
            await server.shut_down()
            server.abort_connections()


class MetricsConnection(Connection):
    def check_head(self, version: str) -> None:
        """Any client may scrape, also one that sends no Host."""


class MetricsPage:
    """The application: one request of a connection is answered."""

    def __init__(self, metrics: Metrics, worker: Worker) -> None:
        self._metrics = metrics
        self._worker = worker

    async def __call__(self, scope: Scope, receive: Any, exchange: HttpExchange) -> None:
        exchange.keep_alive = False
        exchange.write_encoded(_encode_response(*self._respond(scope["method"], scope["path"])))

    def _respond(self, method: str, path: str) -> tuple[bytes, bytes, bytes]:
        if path not in ("/metrics", "/healthz"):
            return _NOT_FOUND
        if method != "GET":
            return b"405 Method Not Allowed\r\nAllow: GET", b"send GET\n", _TEXT
        if path == "/healthz":
            return b"200 OK", b"ok\n", _TEXT
        families = [family for family in self._metrics.families() if not family.name.startswith(_SERVICE_FAMILIES)]
        return b"200 OK", render_metrics([*families, *worker_families(self._worker)]), METRICS_MEDIA_TYPE


def _encode_response(status: bytes, body: bytes, media_type: bytes) -> bytes:
    return (
        b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n"
        b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%b"
        % (status, media_type, len(body), body)
    )


def _render_refusal(request: RefusedRequest) -> bytes:
    """Bytes that are not a request are answered as an unknown path is; a head that is too large or too slow is not."""
    return _encode_response(*_NOT_FOUND) if request.status == 400 else b""


def worker_families(worker: Worker) -> list[MetricFamily]:
    running = MetricSample("onejob_worker_running", {}, worker.running)
    concurrency = MetricSample("onejob_worker_concurrency", {}, worker.concurrency)
    return [
        MetricFamily("onejob_worker_running", "Jobs that this worker has claimed and not finished", "gauge", [running]),
        MetricFamily("onejob_worker_concurrency", "How many handlers this worker runs at once", "gauge", [concurrency]),
    ]
