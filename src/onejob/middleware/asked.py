"""What a request asks for, as one digest, and whose it is."""

import asyncio
from hashlib import sha256

from onejob.core.actor import UNFIT
from onejob.core.fingerprint import canonical
from onejob.core.identity import NAME_CHARS_MAX
from onejob.core.invalid import Invalid
from onejob.intake import WorkedOut

PREFIX = "http:"
HASHED = "sha256:"
BESIDE_BYTES = 64 << 10


def scope_name(given: str, prefix: str = PREFIX) -> str:
    """The scope of a key, apart from those of jobs; a long one is hashed, and none can pose as such a hash."""
    fits = len(prefix) + len(given) <= NAME_CHARS_MAX and not UNFIT.search(given)
    if fits and not given.startswith(HASHED):
        return prefix + given
    return prefix + HASHED + sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


async def printed(method: str, path: str, query: bytes, kind: bytes, body: bytes) -> WorkedOut:
    """Method, path, query and body, in the form that is fingerprinted; a large body is worked out beside the loop."""
    if len(body) > BESIDE_BYTES:
        form = await asyncio.to_thread(_form, kind, body)
    else:
        form = _form(kind, body)
    parts = (method.encode(), path.encode("utf-8", "surrogatepass"), query, *form)
    # Each with its length before it, so that no two requests are the same row of bytes.
    whole = sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return WorkedOut(b"null", b'"%b"' % whole.hexdigest().encode())


def _form(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The media type and the one form of a body: JSON that can be told apart is canonical, anything else as sent."""
    media = kind.partition(b";")[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        return media, body
    try:
        return b"json", canonical(body)
    except Invalid:
        return media, body
