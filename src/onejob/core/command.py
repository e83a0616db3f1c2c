"""What every command carries: it is data, so it can travel and be stored."""

from typing import ClassVar

from msgspec import Struct

from .facts import FORMAT


class CommandData(Struct, frozen=True, gc=False, kw_only=True, tag=True, tag_field="is"):
    writes: ClassVar[bool] = True
    creates: ClassVar[bool] = False  # whether what it is about is most often not there yet

    tenant: str
    format: int = FORMAT

    @property
    def payload_bytes(self) -> int:
        return 0
