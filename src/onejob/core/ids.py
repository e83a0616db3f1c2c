"""Job ids as text and bytes; drawing them is the business of onejob.ids."""

import re
from typing import Final

from onejob.core.invalid import Invalid

ID_BYTES: Final = 16

UUID_CHARS: Final = 36
UUID_PATTERN: Final = (
    "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # as a pattern; other languages read it too
)

_UUID_REGEX = re.compile(UUID_PATTERN)


def format_job_id(job_id: bytes) -> str:
    """Write an id in its dashed, lower-case form."""
    assert len(job_id) == ID_BYTES
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job_id(text: str) -> bytes:
    """Read an id in its dashed form, in any case."""
    if not isinstance(text, str) or not _UUID_REGEX.fullmatch(text):
        raise Invalid("job id", "a job id has the form 8-4-4-4-12 hex characters; send it as it was received")
    return bytes.fromhex(text.replace("-", ""))
