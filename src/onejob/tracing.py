"""OpenTelemetry traces of submissions and attempts (`onejob[otel]`); only the API package is imported, and only here.

- A submission is a span `send {type}` of the kind PRODUCER. If it was a duplicate, the span links to that of the
  submission which created the job.
- The first attempt is a span `process {type}` of the kind CONSUMER and a child of that submission: one trace from the
  request to the effect. Later attempts are traces of their own with a link, because a retry hours later must neither
  stretch a trace nor inherit its sampling.
- The context of the first submission travels as the reserved label `traceparent`, which is not part of the fingerprint.

No key, no input, no result and no message of an error becomes an attribute.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from msgspec import json
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import CarrierT, Setter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from onejob.core.facts import TRACEPARENT_LABEL, Job
from onejob.core.identity import NAME_CHARS_MAX, format_job_id
from onejob.core.replies import Outcome, SequenceOutcome
from onejob.errors import IdempotencyConflict, OnejobError, SubmissionRefused
from onejob.runtime.receipts import Receipt

LINKS_MAX = 100  # of one span
_PROPAGATOR = TraceContextTextMapPropagator()
_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}
_NO_TRACE = nullcontext()
_TRACEPARENT = b'"traceparent":"'
_NOTHING_RECORDED = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


class Tracing:
    """Creates the spans. Without a provider, the global one of OpenTelemetry is used."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("onejob", tracer_provider=provider)
        self._provider = provider
        self._is_recording = False

    @property
    def is_recording(self) -> bool:
        """False while no SDK is set up: every span would be thrown away. The global provider is set once, at any time."""
        if not self._is_recording:
            provider = self._provider or trace.get_tracer_provider()
            self._is_recording = not isinstance(provider, _NOTHING_RECORDED)
        return self._is_recording

    @contextmanager
    def trace_submission(self, type: str, count: int = 1) -> Iterator["SubmissionSpan"]:
        """The span of a call that submits one job, or several. The type is not checked yet, so it may be anything."""
        type = str(type)[:NAME_CHARS_MAX]
        attributes = _attributes("send", type)
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        with self._tracer.start_as_current_span(
            f"send {type}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,  # messages may contain the key
            set_status_on_exception=False,
        ) as span:
            try:
                yield SubmissionSpan(span)
            except BaseException as error:
                _set_failure(span, error)
                raise

    @contextmanager
    def trace_attempt(self, job: Job) -> Iterator["AttemptSpan"]:
        """The span of one attempt, in which the handler runs."""
        submission = parse_traceparent(_decode_traceparent(job.labels))
        parent, links = Context(), []
        if submission is not None and job.attempts <= 1:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(submission), parent)
        elif submission is not None:
            links.append(Link(submission))
        attributes = _attributes("process", job.type) | {
            "messaging.message.id": format_job_id(job.id),
            "onejob.attempt": job.attempts,
            "onejob.tenant": job.tenant,
        }
        with self._tracer.start_as_current_span(
            f"process {job.type}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield AttemptSpan(span)

    def continue_trace(self, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[None]:
        """Make the sender of a request the parent of the spans that are started inside."""
        carrier = {_HEADERS[name]: value.decode("latin-1") for name, value in headers if name in _HEADERS}
        return self._continue_trace_of(carrier) if "traceparent" in carrier else _NO_TRACE

    @contextmanager
    def _continue_trace_of(self, carrier: dict[str, str]) -> Iterator[None]:
        token = attach(_PROPAGATOR.extract(carrier))
        try:
            yield
        finally:
            detach(token)

    def inject(self, headers: dict[str, str]) -> None:
        """Add the context of the current span to the headers of a request."""
        _PROPAGATOR.inject(headers, setter=_LowerCase())

    def current_traceparent(self) -> str:
        return format_traceparent(trace.get_current_span().get_span_context())


class SubmissionSpan:
    def __init__(self, span: Span) -> None:
        self._span = span
        self._links = 0
        self.traceparent = format_traceparent(span.get_span_context())  # empty: there is no provider

    def set_receipt(self, receipt: Receipt) -> None:
        self._span.set_attribute("onejob.outcome", str(receipt.outcome))
        self._span.set_attribute("messaging.message.id", receipt.job_id)
        self._link_original(receipt)

    def set_receipts(self, verdicts: Sequence[Receipt | OnejobError]) -> None:
        """Of many submissions: how many there were of each outcome."""
        if len(verdicts) == 1:
            (only,) = verdicts
            return _set_failure(self._span, only) if isinstance(only, OnejobError) else self.set_receipt(only)
        counts: dict[str, int] = {}
        for verdict in verdicts:
            outcome = _outcome_of(verdict) if isinstance(verdict, OnejobError) else str(verdict.outcome)
            counts[outcome] = counts.get(outcome, 0) + 1
            if isinstance(verdict, Receipt):
                self._link_original(verdict)
        for outcome, count in counts.items():
            self._span.set_attribute(f"onejob.outcomes.{outcome}", count)
        return None

    def set_sequence_outcome(self, outcome: SequenceOutcome, original: Job | None = None) -> None:
        """`original`: the first job of a number that was committed before."""
        self._span.set_attribute("onejob.outcome", str(outcome))
        if original is not None:
            self._link(original)

    def _link_original(self, receipt: Receipt) -> None:
        if receipt.outcome is Outcome.REPLAYED and receipt.job_row is not None and self._links < LINKS_MAX:
            self._link(receipt.job_row)

    def _link(self, job: Job) -> None:
        original = _decode_traceparent(job.labels)
        context = parse_traceparent(original)
        if context is not None and original != self.traceparent:
            self._span.add_link(context)
            self._links += 1


class AttemptSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def set_outcome(self, outcome: str, *, is_error: bool) -> None:
        self._span.set_attribute("onejob.outcome", outcome)
        if is_error:
            self._span.set_status(Status(StatusCode.ERROR))


class _LowerCase(Setter[CarrierT]):
    """Header names in the case that the client uses."""

    def set(self, carrier: CarrierT, key: str, value: str) -> None:
        carrier[key.lower()] = value  # type: ignore[index]  # a dict of headers


def format_traceparent(context: SpanContext) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parse_traceparent(text: str) -> SpanContext | None:
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": text}, context=Context())).get_span_context()
    return context if context.is_valid else None


def _attributes(operation: str, type: str) -> dict[str, str | int]:
    return {
        "messaging.system": "onejob",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": type,
    }


def _set_failure(span: Span, error: BaseException) -> None:
    outcome = _outcome_of(error)
    span.set_attribute("onejob.outcome", outcome)
    span.set_attribute("error.type", type(error).__name__)
    if outcome == "failed":  # a conflict or a refusal is an answer
        span.set_status(Status(StatusCode.ERROR))


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, IdempotencyConflict):
        return str(Outcome.CONFLICT)
    return str(Outcome.REFUSED) if isinstance(error, SubmissionRefused) else "failed"


def _decode_traceparent(labels: bytes) -> str:
    """The trace context among the encoded labels of a job; empty: none."""
    if _TRACEPARENT not in labels:
        return ""
    return json.decode(labels, type=dict[str, str]).get(TRACEPARENT_LABEL, "")
