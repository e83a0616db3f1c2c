"""Notices: what a submitter's URL is told when its job has ended.

A notice is a job of its own, made in the step that makes its job and let go in the step that ends it. So it is as
durable as both, and is leased, tried again and kept like every other job; the service runs it.
"""

from urllib.parse import urlsplit

from msgspec import Struct, json

from .errors import Invalid
from .facts import U64, Attachment, AttachmentKind, Job, next_version
from .identity import CALLBACK_TYPE
from .states import JobState, Move, state_after

CALLBACK_ATTEMPTS_MAX = 20  # by the back-off, about half a day
CALLBACK_URL_CHARS_MAX = 2000


class CallbackInput(Struct, frozen=True):
    """The input of a notice."""

    url: str
    job_id: bytes


def callback_job_id(job_id: bytes) -> bytes:
    """The other name of a job: whoever ends it knows where its notice would be."""
    return job_id[:-1] + bytes((job_id[-1] ^ 0xFF,))


def checked_callback_url(url: str) -> str:
    """Where a notice may go at all; whether its address may be reached is found out when it does."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError):
        parts, fine = urlsplit(""), None
    if not fine or len(url) > CALLBACK_URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(
            "callback",
            f"a callback is an http or https URL of at most {CALLBACK_URL_CHARS_MAX} characters; mend it",
        )
    if parts.username is not None or parts.fragment:
        raise Invalid("callback", "a callback has no password and no fragment; put a secret into its path")
    return url


def callback_job(job: Job, url: str, now: int) -> tuple[Job, Attachment]:
    """The notice of a new job: held back, counted nowhere, and not to be swept before its time."""
    id = callback_job_id(job.id)
    made = Job(
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
    return made, Attachment(id, AttachmentKind.INPUT, U64(0), json.encode(CallbackInput(url, job.id)))


def release_callback_job(callback: Job | None, state: JobState, now: int) -> tuple[Job, ...]:
    """The notice of a job that ended like this, ready to be run. One that is lost has not come to its end."""
    held = callback is not None and callback.type == CALLBACK_TYPE and callback.state is JobState.PREPARING
    if callback is None or not held or state is JobState.LOST:
        return ()
    return (next_version(callback, now, state=state_after(callback.state, Move.COMMIT)),)
