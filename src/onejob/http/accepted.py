"""The answer to a submission. It is the hottest of all, so what is said again and again is kept as it was encoded."""

from functools import lru_cache

from msgspec import json

from onejob.core.facts import Job
from onejob.core.ids import text_of
from onejob.core.moment import utc
from onejob.core.receipt import Outcome
from onejob.core.views import JobView, Receipt

from .answers import JSON, Answer, Header, header_lines
from .wire import IdempotencyOut, job_out, submit_out, warnings_out

KEPT_MAX = 4096

_REPLAYED = (b"idempotent-replayed", b"true")
_IS_REPLAYED = Outcome.REPLAYED  # looking up a member of an enum takes its time
_encode = json.Encoder().encode


def accepted(receipt: Receipt, request_id: str) -> Answer:
    """The job, the key's outcome and window; a replay says so in a header too."""
    head = receipt.head
    if head is None:  # a foreign job, of which only the id is known: no path here leads to it
        body = _encode(submit_out(receipt, request_id))
        return Answer(202, body, _headers("", receipt.outcome, receipt.expires_ms))
    encoded = _kept if receipt.outcome is _IS_REPLAYED else _rest
    rest, headers, lines = encoded(head, receipt.outcome, receipt.expires_ms)
    if receipt.warnings:
        rest = b'%b,"warnings":%b}' % (rest[:-1], _encode(warnings_out(receipt.warnings)))
    return Answer(202, b'{"requestId":"%b",%b' % (request_id.encode(), rest), headers, None, lines)


def _rest(head: Job, outcome: Outcome, expires_ms: int) -> tuple[bytes, tuple[Header, ...], bytes]:
    """Everything but the request id, which is fresh each time."""
    told = IdempotencyOut(head.key or None, head.scope, outcome, utc(expires_ms) if expires_ms else None)
    rest = b'"job":%b,"idempotency":%b}' % (_encode(job_out(JobView(head))), _encode(told))
    headers = _headers(text_of(head.id), outcome, expires_ms)
    return rest, headers, header_lines(headers)


# By the whole head: a job that changed in any way is encoded anew.
_kept = lru_cache(KEPT_MAX)(_rest)


def _headers(job_id: str, outcome: Outcome, expires_ms: int) -> tuple[Header, ...]:
    headers = [JSON, (b"location", b"/api/jobs/" + job_id.encode())] if job_id else [JSON]
    if outcome is _IS_REPLAYED:
        headers.append(_REPLAYED)
    if expires_ms:
        headers.append((b"idempotency-expires", _moment(expires_ms)))
    return tuple(headers)


@lru_cache(KEPT_MAX)
def _moment(ms: int) -> bytes:
    return utc(ms).isoformat().encode()
