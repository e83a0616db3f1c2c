"""What callers see, one Struct per resource: the ledger returns it, HTTP sends it, the client reads it, the CLI prints it.

A client reads what a newer server sends: unknown members are ignored, and a member that is added later has a default. A value
that an enum does not have yet is text there (`client.decoding`); in the library an enum is an enum.

Two answers have another shape in the library: a receipt builds its job when somebody asks for it (`runtime.receipts`), and
quotas have exact amounts, which are numbers of units here (`runtime.quota_views`). The id of a request belongs to no resource;
the HTTP API writes it into the response.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")
UtcTimestamp = Annotated[datetime, Meta(tz=True)]


class Resource(Struct, frozen=True, rename="camel"):
    """A resource, or a part of one; its members are in camelCase in JSON."""


class Items(Generic[T]):
    """What iterates over the items of a page."""

    __slots__ = ()

    def _items(self) -> Sequence[T]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def __getitem__(self, index: int) -> T:
        return self._items()[index]
