"""A response as it is stored in the receipt of its key: a version byte, then status, headers and body."""

from functools import partial

from msgspec import DecodeError, Struct, msgpack

from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.typed_json import encode_safely
from onejob.errors import Outdated

FORMAT_VERSION = b"\x01"
# The limit of a receipt; status and headers count too.
RECEIPT_BYTES_MAX = INPUT_BYTES_MAX

Headers = tuple[tuple[bytes, bytes], ...]


class StoredResponse(Struct, frozen=True, array_like=True):
    """A response to replay. Without a body it is a tombstone: the request was done, its response is not known."""

    status: int
    headers: Headers = ()
    body: bytes | None = None


_encode = partial(encode_safely, msgpack.Encoder())
_decode = msgpack.Decoder(StoredResponse).decode


def pack_response(response: StoredResponse) -> bytes:
    """The response as a receipt; a tombstone if it is too large."""
    data = FORMAT_VERSION + _encode(response)
    return data if len(data) <= RECEIPT_BYTES_MAX else FORMAT_VERSION + _encode(StoredResponse(response.status))


def unpack_response(receipt: bytes) -> StoredResponse:
    if receipt[:1] != FORMAT_VERSION:
        raise Outdated("this response was stored by a newer version of onejob; upgrade this one")
    try:
        return _decode(receipt[1:])
    except DecodeError as error:
        raise Outdated("this receipt is not a response, or of a newer version of onejob; upgrade this one") from error
