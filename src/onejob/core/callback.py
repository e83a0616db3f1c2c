"""Callback jobs: the webhook call to a submitter's URL when its job has ended.

A callback is a job of its own, stored as preparing in the step that creates its job and made ready in the step that
ends it. So it is as durable as both, and is leased, retried and retained like every other job; the service runs it.
"""

from urllib.parse import urlsplit

from msgspec import Struct, json

from .errors import Invalid
from .facts import U64, Attachment, AttachmentKind, Job, next_version
from .identity import CALLBACK_TYPE
from .states import JobState, Move, state_after

CALLBACK_ATTEMPTS_MAX = 20  # about half a day of backoff
CALLBACK_URL_CHARS_MAX = 2000
CALLBACK_PORTS = (80, 443)  # where only public addresses are allowed


class CallbackInput(Struct, frozen=True):
    url: str
    job_id: bytes


def callback_job_id(job_id: bytes) -> bytes:
    """Computed from the id of the job, so that a command that ends the job can name its callback."""
    return job_id[:-1] + bytes((job_id[-1] ^ 0xFF,))


def checked_callback_url(url: str) -> str:
    """The URL, if its form is allowed. Whether its address may be reached is checked when it is called."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError):
        parts, is_http = urlsplit(""), None
    if not is_http or len(url) > CALLBACK_URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(
            "callback", f"a callback is an http or https URL of at most {CALLBACK_URL_CHARS_MAX} characters; correct it"
        )
    if parts.username is not None or parts.fragment:
        raise Invalid("callback", "a callback has no password and no fragment; put a secret into its path")
    return url


def has_public_port(url: str) -> bool:
    """True if the URL leads to the usual port of a web server. Other ports reach services that do not expect a request."""
    try:
        return urlsplit(url).port in (None, *CALLBACK_PORTS)
    except ValueError:
        return True  # not a URL: the form is checked elsewhere


def callback_job(job: Job, url: str, now: int) -> tuple[Job, Attachment]:
    """The callback of a new job: not claimable yet, not counted by quotas, and never due for maintenance."""
    id = callback_job_id(job.id)
    callback = Job(
        id,
        job.tenant,
        CALLBACK_TYPE,
        JobState.PREPARING,
        CALLBACK_TYPE,
        "",
        job.actor,
        job.user,
        now,
        now,
        0,
        attempts_max=CALLBACK_ATTEMPTS_MAX,
    )
    return callback, Attachment(id, AttachmentKind.INPUT, U64(0), json.encode(CallbackInput(url, job.id)))


def release_callback_job(callback: Job | None, state: JobState, now: int) -> tuple[Job, ...]:
    """The callback of a job that has ended in `state`, made ready to run. A lost job has not ended for its submitter."""
    if callback is None or callback.type != CALLBACK_TYPE or callback.state is not JobState.PREPARING:
        return ()
    if state is JobState.LOST:
        return ()
    return (next_version(callback, now, state=state_after(callback.state, Move.COMMIT)),)
