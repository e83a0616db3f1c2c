"""Traces: a duplicate links to its original, the first attempt continues the trace, later ones link to it."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

import onejob
from onejob import sync
from onejob.clock import FakeClock
from onejob.core.submit import LABELS_BYTES_MAX
from onejob.errors import IdempotencyConflict, Invalid
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.parse import Submission
from onejob.tracing import Tracing, format_traceparent
from onejob.worker import JobLogFilter, add_job_context, current_job
from tests.support.app_server import serve_app
from tests.support.job_rows import load_job_row

SECRET = "s3cret-of-a-customer"
REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REMOTE_TRACE = 0x0AF7651916CD43DD8448EB211C80319C


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def traced(clock: FakeClock, spans: Spans) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open("memory://", clock=clock, sweep=False, tracing=spans.tracing) as ledger:
        yield ledger


def context_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_a_duplicate_links_to_the_submission_that_created_the_job(traced: onejob.Ledger, spans: Spans) -> None:
    receipts = [await traced.submit("charge", {"card": SECRET}, idempotency_key=SECRET) for _ in range(2)]
    with pytest.raises(IdempotencyConflict):
        await traced.submit("charge", {"card": "another"}, idempotency_key=SECRET)
    first, second, third = spans.named("send charge")
    assert {span.kind for span in (first, second, third)} == {SpanKind.PRODUCER}
    assert [dict(span.attributes or {})["onejob.outcome"] for span in (first, second, third)] == [
        "created", "replayed", "conflict",
    ]  # fmt: skip
    assert not first.links
    assert links_of(second) == [context_of(first)]
    assert context_of(second)[0] != context_of(first)[0]
    assert dict(second.attributes or {})["messaging.message.id"] == receipts[0].job_id
    assert third.status.status_code is StatusCode.UNSET  # a conflict is an answer
    for span in (first, second, third):
        assert SECRET not in span.to_json()


async def test_the_first_attempt_continues_the_trace_and_the_second_links_to_it(
    traced: onejob.Ledger, spans: Spans, clock: FakeClock
) -> None:
    app = onejob.App()
    seen: list[str] = []

    @app.job("charge", max_attempts=2)
    async def charge(order: str, ctx: onejob.Context) -> None:
        seen.append(spans.tracing.current_traceparent())
        if ctx.attempt == 1:
            raise onejob.Retry(SECRET, after=0)

    made = await traced.submit("charge", "o-1", idempotency_key="k", max_attempts=2)
    async with app.background_worker(traced), asyncio.timeout(20):
        while (await traced.job(made.job_id)).state != "success":
            clock.advance(0.01)
            await asyncio.sleep(0.01)
    (sent,), (first, second) = spans.named("send charge"), spans.named("process charge")
    assert {span.kind for span in (first, second)} == {SpanKind.CONSUMER}
    assert first.parent is not None
    assert (first.parent.trace_id, first.parent.span_id) == context_of(sent)
    assert first.status.status_code is StatusCode.ERROR
    assert not first.links
    assert second.parent is None
    assert context_of(second)[0] != context_of(sent)[0]
    assert links_of(second) == [context_of(sent)]
    assert second.status.status_code is StatusCode.UNSET
    assert [dict(span.attributes or {})["onejob.attempt"] for span in (first, second)] == [1, 2]
    assert seen == [format_traceparent(span.get_span_context()) for span in (first, second)]  # type: ignore[arg-type]
    assert all(SECRET not in span.to_json() for span in (sent, first, second))


async def test_the_context_is_kept_outside_of_the_labels_and_the_fingerprint(traced: onejob.Ledger) -> None:
    made = await traced.submit("t", 1, idempotency_key="k", labels={"customer": "7"})
    assert made.job is not None
    assert dict(made.job.labels) == {"customer": "7"}
    assert made.job_row is not None
    assert b"traceparent" in made.job_row.labels
    again = await traced.submit("t", 1, idempotency_key="k", labels={"customer": "8"})
    assert not again.created
    with pytest.raises(Invalid, match="reserved"):
        await traced.submit("t", 1, labels={"traceparent": REMOTE})
    full = {"l": "x" * (LABELS_BYTES_MAX - len(json.dumps({"l": ""}, separators=(",", ":"))))}
    filled = await traced.submit("t", 1, labels=full)  # there is no room: the job is made without a context
    assert filled.job is not None
    assert dict(filled.job.labels) == full
    assert filled.job_row is not None
    assert b"traceparent" not in filled.job_row.labels
    wide = await traced.submit("ä" * 100, 1, scope="€" * 100, idempotency_key="ü" * 255, labels={"l": "x" * 350})
    assert wide.job_row is not None
    assert b"traceparent" not in wide.job_row.labels  # there would be room in the labels, and none in the job row


async def test_what_is_refused_without_tracing_is_refused_with_it(traced: onejob.Ledger) -> None:
    wrong = Submission(type=["t"], input=1)  # type: ignore[arg-type]  # a wrong type
    (verdict,) = await traced.submit_many([wrong])
    assert isinstance(verdict, Invalid)
    with pytest.raises(Invalid):
        await traced.submit("x" * 1000)


async def test_submissions_in_a_list_share_a_span(traced: onejob.Ledger, spans: Spans) -> None:
    await traced.submit("t", 1, idempotency_key="a")
    await traced.submit_many([Submission(type="t", input=1, idempotency_key=key) for key in "abc"])
    (single, batch) = spans.named("send t")
    attributes = dict(batch.attributes or {})
    assert attributes["messaging.batch.message_count"] == 3
    assert (attributes["onejob.outcomes.created"], attributes["onejob.outcomes.replayed"]) == (2, 1)
    assert links_of(batch) == [context_of(single)]


async def test_a_number_of_a_sequence_is_traced(traced: onejob.Ledger, spans: Spans) -> None:
    for _ in range(2):
        await traced.submit_sequence("c", 1, "c:1:0123456789abcdef", "t", 1, scope="s")
    first, second = spans.named("send t")
    assert links_of(second) == [context_of(first)]


async def test_a_held_key_keeps_the_context_of_who_reserved_it(traced: onejob.Ledger, spans: Spans) -> None:
    with spans.provider.get_tracer("caller").start_as_current_span("request") as caller:
        held = await traced.check_or_reserve("t", 1, idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    row = await load_job_row(traced, held.job_id)
    assert format_traceparent(caller.get_span_context()).encode() in row.labels


@pytest.mark.parametrize("limited", [False, True])
async def test_the_service_continues_the_trace_of_a_request(traced: onejob.Ledger, spans: Spans, limited: bool) -> None:
    config = ServiceConfig(rate_per_second=100.0 if limited else None)
    async with serve_app(HttpApp(traced, config=config)) as client:
        for header in (b"traceparent: " + REMOTE.encode(), b"traceparent: nonsense", b"x-other: 1"):
            answer = await client.post("/api/jobs", {"type": "t", "input": 1}, b"idempotency-key: k", header)
            assert answer.status == 202
            assert answer.body["job"]["labels"] == {}
    first, *others = spans.named("send t")
    assert context_of(first)[0] == REMOTE_TRACE
    assert first.parent is not None
    assert all(span.parent is None for span in others)
    assert all(links_of(span) == [context_of(first)] for span in others)


async def test_a_client_sends_the_context_of_its_caller(traced: onejob.Ledger, spans: Spans) -> None:
    async with serve_app(HttpApp(traced)) as server:
        client = onejob.AsyncClient(f"http://127.0.0.1:{server.port}", tracing=spans.tracing)
        async with client:
            with spans.provider.get_tracer("caller").start_as_current_span("request") as caller:
                await client.submit("t", 1)
    (sent,) = spans.named("send t")
    assert sent.parent is not None
    assert sent.parent.span_id == caller.get_span_context().span_id


async def test_without_an_sdk_no_span_is_made_and_the_context_of_the_caller_is_passed_on(clock: FakeClock) -> None:
    for tracing in (Tracing(), Tracing(NoOpTracerProvider())):
        assert not tracing.is_recording
        async with onejob.open("memory://", clock=clock, sweep=False, tracing=tracing) as ledger:
            async with serve_app(HttpApp(ledger)) as client:
                for key, header in (("a", b"traceparent: " + REMOTE.encode()), ("b", b"x-other: 1")):
                    body = {"type": "t", "input": 1, "idempotencyKey": key}
                    answers = [await client.post("/api/jobs", body, header) for _ in range(2)]
                    assert [answer.status for answer in answers] == [202, 202]
                    row = await load_job_row(ledger, answers[0].body["job"]["id"])
                    assert (REMOTE.encode() in row.labels) == (key == "a")
            (many,) = await ledger.submit_many([Submission(type="t", input=1, idempotency_key="a")])
            assert isinstance(many, onejob.Receipt)
            assert not many.created


def test_a_blocking_caller_is_the_parent(spans: Spans, tmp_path: Path) -> None:
    with (
        sync.open(f"sqlite:///{tmp_path / 'jobs.db'}", tracing=spans.tracing) as queue,
        spans.provider.get_tracer("caller").start_as_current_span("request") as caller,
    ):
        queue.submit("t", 1)
    (sent,) = spans.named("send t")
    assert sent.parent is not None
    assert sent.parent.span_id == caller.get_span_context().span_id


def test_nothing_is_imported_unless_tracing_is_on() -> None:
    program = (
        "import asyncio, sys, onejob\n"
        "import onejob.http.serve, onejob.worker, onejob.client.client\n"
        "async def main():\n"
        "    async with onejob.open('memory://') as queue:\n"
        "        await queue.submit('t', 1, idempotency_key='k')\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_log_lines_of_handlers_name_their_job(traced: onejob.Ledger, caplog: pytest.LogCaptureFixture) -> None:
    app = onejob.App()
    events: list[object] = []

    def keep(_: object, __: str, event: MutableMapping[str, object]) -> str:
        events.append(event)
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[add_job_context, keep])

    @app.job("charge")
    async def charge(order: str) -> None:
        logging.getLogger("shop").warning("charging")
        logger.info("charged", attempt="mine")

    @app.job("mail")
    def mail(order: str) -> None:  # in a thread
        logging.getLogger("shop").warning("mailing")

    caplog.handler.addFilter(JobLogFilter())
    ids = {type: (await traced.submit(type, SECRET, idempotency_key=SECRET)).job_id for type in ("charge", "mail")}
    async with app.background_worker(traced), asyncio.timeout(20):
        for job_id in ids.values():
            while (await traced.job(job_id)).state != "success":
                await asyncio.sleep(0.02)
    logging.getLogger("shop").warning("idle")
    found = {record.message: record.__dict__ for record in caplog.records if record.name == "shop"}
    for message, type in (("charging", "charge"), ("mailing", "mail")):
        line = found[message]
        assert (line["job_id"], line["attempt"], line["job_type"], line["tenant"]) == (ids[type], 1, type, "default")
        assert SECRET not in str(line)
    assert found["idle"]["job_id"] == "-"
    assert events == [
        {"event": "charged", "attempt": "mine", "job_id": ids["charge"], "job_type": "charge", "tenant": "default"}
    ]
    assert current_job() is None
