"""A job's story: the first 8 and the last 24 events are kept, the rest are counted."""

import re

from msgspec import Struct, json

from .facts import U64, Attachment, AttachmentKind, Job
from .step import Trim

FIRST_EVENTS_MAX = 8
LAST_EVENTS_MAX = 24
_DETAIL_CHARS_MAX = 500
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


class Event(Struct, frozen=True, gc=False, omit_defaults=True):
    at: int
    what: str
    actor: str
    detail: str = ""


def record_event(job: Job, event: Event) -> tuple[tuple[Attachment, ...], tuple[Trim, ...]]:
    """The rows that add an event to a job whose count is still the old one."""
    index = job.events
    short = Event(event.at, event.what, event.actor, to_storable_text(event.detail[:_DETAIL_CHARS_MAX]))
    adds = (Attachment(job.id, AttachmentKind.EVENT, U64(index), json.encode(short)),)
    leaving = index - LAST_EVENTS_MAX
    cuts = (Trim(job.id, AttachmentKind.EVENT, leaving),) if leaving >= FIRST_EVENTS_MAX else ()
    return adds, cuts


def to_storable_text(text: str) -> str:
    """What a program or a person says of a job, as every store can keep it.

    Names and keys with a NUL are refused, and JSON is stored as bytes; but an attempt that failed has failed,
    whatever its error contains: what some store cannot hold as text is told as U+FFFD, on every one.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def first_event(job: Job) -> Event:
    """Implied by the head: nothing is written for it."""
    return Event(job.created_at, "submitted", job.actor)
