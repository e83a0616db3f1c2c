"""What is kept of an answer, as the receipt of its key: a version, then status, headers and body."""

from msgspec import DecodeError, Struct, msgpack

from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.errors import Outdated

FORMAT_VERSION = b"\x01"
# A receipt has no more; what stands around the body takes some of it.
RECEIPT_BYTES_MAX = INPUT_BYTES_MAX

Headers = tuple[tuple[bytes, bytes], ...]


class StoredResponse(Struct, frozen=True, array_like=True):
    """An answer that is given again. Without a body it is a tombstone: it was done, and that is all we know."""

    status: int
    headers: Headers = ()
    body: bytes | None = None


_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(StoredResponse).decode


def pack_response(response: StoredResponse) -> bytes:
    """An answer as a receipt; one that is too large leaves a tombstone."""
    data = FORMAT_VERSION + _encode(response)
    return data if len(data) <= RECEIPT_BYTES_MAX else FORMAT_VERSION + _encode(StoredResponse(response.status))


def unpack_response(receipt: bytes) -> StoredResponse:
    if receipt[:1] != FORMAT_VERSION:
        raise Outdated("this answer was kept by a newer program; upgrade this one")
    try:
        return _decode(receipt[1:])
    except DecodeError as error:
        raise Outdated("this answer was not kept by the middleware, or by a newer one; upgrade") from error
