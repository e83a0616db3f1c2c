"""Idempotency keys: their validation, and the structured form `client_id:sequence:nonce`."""

import re
from typing import Final, Self, final

from msgspec import Struct
from msgspec.structs import force_setattr

from .errors import Invalid
from .identity import UUID_CHARS, UUID_PATTERN, plain_str

KEY_CHARS_MAX: Final = 255
SEQUENCE_MAX: Final = 2**64 - 1
NONCE_CHARS: Final = 16
NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"

_UUID = re.compile(UUID_PATTERN)
# Category Cc is exactly these two ranges in every version of Unicode; a lone surrogate has no UTF-8 form.
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SEQUENCE = re.compile(r"[1-9][0-9]{0,19}")
_NONCE = re.compile(rf"[0-9a-fA-F]{{{NONCE_CHARS}}}")


def checked_key(key: "KeyLike") -> str:
    """The key as it is compared: byte for byte, but a UUID in lower case."""
    text = str(key) if isinstance(key, IdempotencyKey) else key
    if type(text) is not str:
        text = plain_str(text)
    if not isinstance(text, str) or not 0 < len(text) <= KEY_CHARS_MAX:
        raise Invalid("key", f"a key is a string of 1 to {KEY_CHARS_MAX} characters; send one of that length")
    # Nearly every key is printable ASCII: two C calls spare it the regular expression.
    if not (text.isascii() and text.isprintable()) and _FORBIDDEN_CHARACTERS.search(text):
        raise Invalid("key", "the key has a control character or a lone surrogate; send it without")
    if len(text) == UUID_CHARS and _UUID.fullmatch(text):
        if text == NIL_UUID:
            raise Invalid(
                "key", "the key is the nil UUID, which a broken generator makes for every request; repair that"
            )
        return text.lower()
    return text


@final
class IdempotencyKey(Struct, frozen=True):
    """A key in its structured form, `client_id:sequence:nonce`."""

    client_id: str
    sequence: int
    nonce: str

    def __post_init__(self) -> None:
        if not isinstance(self.client_id, str) or not self.client_id:
            raise Invalid("key", "the client id of a key is empty; name the client")
        # A bool is an int to isinstance, and True would pass for sequence 1.
        if type(self.sequence) is not int or not 1 <= self.sequence <= SEQUENCE_MAX:
            raise Invalid("key", "the sequence of a key is a whole number from 1 to 2^64-1; count from 1")
        if not isinstance(self.nonce, str) or not _NONCE.fullmatch(self.nonce):
            raise Invalid("key", f"the nonce of a key is {NONCE_CHARS} hex characters; draw 8 random bytes")
        force_setattr(self, "nonce", self.nonce.lower())
        checked_key(str(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse from the right, because client ids may contain colons."""
        parts = checked_key(text).rsplit(":", 2)
        if len(parts) != 3:
            raise Invalid("key", "the key is not client_id:sequence:nonce; send all three parts")
        client_id, sequence, nonce = parts
        # One spelling for each number: 07, +7 or digits of another script would be a second key.
        if not _SEQUENCE.fullmatch(sequence):
            raise Invalid("key", "the sequence of the key is not a plain decimal number; write it as 42")
        return cls(client_id, int(sequence), nonce)

    def __str__(self) -> str:
        return f"{self.client_id}:{self.sequence}:{self.nonce}"


KeyLike = str | IdempotencyKey  # wherever a caller names a key
