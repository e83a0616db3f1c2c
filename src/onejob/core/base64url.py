"""Base64 for names and paths, without its padding (RFC 4648, section 5)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """The bytes; ValueError where a text cannot be any. Several texts may mean the same bytes."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
