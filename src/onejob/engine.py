"""The one seam. An engine is a place where a decision happens atomically and durably; it knows no rules."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .core.command import Command
from .core.errors import Invalid
from .core.facts import Attachment, AttachmentKind, Fact, Job, Kind
from .core.maintenance import MaintenanceItem
from .core.replies import AnyReply
from .core.states import JobState
from .errors import StoreRefused, Unavailable, Unknown

__all__ = [
    "Backlog",
    "Carrying",
    "Crowded",
    "Durability",
    "Engine",
    "ListAttachments",
    "ListBacklogs",
    "ListDueFacts",
    "ListFacts",
    "ListInputs",
    "ListJobs",
    "ListLeasedJobs",
    "ListReadyJobs",
    "Near",
    "Paced",
    "Page",
    "Qualified",
    "Query",
    "StoreRefused",
    "Telling",
    "Unavailable",
    "Unknown",
    "get_durability_warning",
]

T = TypeVar("T")
PAGE_MAX = 1000


class Durability(StrEnum):
    """What an answer survives."""

    PROCESS = "process"
    DISK = "disk"
    QUORUM = "quorum"


class Query(Struct, Generic[T], frozen=True, kw_only=True, tag=True, tag_field="is"):
    """One of a closed list of questions; a page is bounded, and never the basis of a decision."""

    limit: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_MAX:
            raise Invalid("limit", f"a page has 1 to {PAGE_MAX} items; ask for the next page for more")


class ListJobs(Query[Job], frozen=True, kw_only=True):
    """A tenant's jobs, newest first.

    With a filter, a page may come back short or empty although there is more: an engine need not look at
    every job of a tenant for one page. It then says in `Page.seen` how far it looked.
    """

    tenant: str
    state: JobState | None = None
    type: str | None = None
    user: str | None = None
    usage_id: bytes = b""  # only jobs that bear the mark of this tally
    before: bytes = b""  # cursor: a job id


class ListFacts(Query[Fact], frozen=True, kw_only=True):
    """All facts of one kind and tenant, in the order of their identities."""

    tenant: str
    kind: Kind
    after: bytes = b""


class ListAttachments(Query[Attachment], frozen=True, kw_only=True):
    """What stands beside a job."""

    tenant: str
    job_id: bytes
    kind: AttachmentKind
    start: int = 0


class ListDueFacts(Query[MaintenanceItem], frozen=True, kw_only=True):
    """Facts of any tenant that upkeep should look at, in the order of `core.upkeep.due_place`."""

    kind: Kind
    after: tuple[int, bytes] = (0, b"")  # cursor: the place of the last one


class ListReadyJobs(Query[Job], frozen=True, kw_only=True):
    """Jobs of some types that could be claimed, most urgent first.

    Of one tenant it costs what the page has, however much waits; of all tenants an engine may look at all that waits.
    """

    types: tuple[str, ...]
    tenant: str | None = None


class Backlog(Struct, frozen=True):
    """That a tenant has jobs that wait; whoever has claimed one without starting it leaves it among them."""

    tenant: str
    wait_ms: int  # until the first of them may run; 0: it may


class ListBacklogs(Query[Backlog], frozen=True, kw_only=True):
    """The tenants that have waiting jobs of some types, by name. It costs what it finds, however much they have."""

    types: tuple[str, ...]
    tenant: str | None = None  # only this one
    after: str = ""  # cursor: a tenant


class ListInputs(Query[Attachment], frozen=True, kw_only=True):
    """The inputs of some jobs of any tenants, in the order of the jobs' ids. For the process, never for a caller."""

    job_ids: tuple[bytes, ...]


class ListLeasedJobs(Query[Job], frozen=True, kw_only=True):
    """Jobs that a holder has under a lease that lives: what a claim whose answer was lost had won."""

    tenant: str
    holder: bytes


class Page(Struct, Generic[T], frozen=True):
    items: Sequence[T]
    more: bool
    scanned_to: bytes = b""  # cursor of a page that came back short; else its last item is where to go on


class Engine(Protocol):
    """Two failures only: `Unavailable` (certainly not done) and `Unknown` (may be done: execute it again)."""

    @property
    def durability(self) -> Durability: ...

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        """All or nothing per command; replies are returned only once durable, in the order of the commands."""

    async def scan(self, query: Query[T], /) -> Page[T]: ...

    async def aclose(self) -> None: ...


# What an engine may say of itself besides. None of it changes an answer, and nobody may rely on it.


@runtime_checkable
class Paced(Protocol):
    """How it likes to be fed; unless it says so, one large batch at a time."""

    @property
    def write_lanes(self) -> int: ...  # batches that may be under way at once

    @property
    def batch_max(self) -> int: ...

    @property
    def update_lanes(self) -> int: ...  # batches besides, for commands that make nothing; 0: all go together


@runtime_checkable
class Carrying(Protocol):
    """It executes in the task of whoever calls, who stays to the end whatever happens.

    When that takes too long for those who wait, it says once what to tell them, and goes on.
    """

    def execute_with_timeout(
        self, commands: Sequence[Command[Any]], on_timeout: Callable[[Exception], None], /
    ) -> Awaitable[Sequence[AnyReply]]: ...


@runtime_checkable
class Crowded(Protocol):
    """Others write to its store at the same time, and what they have seen may be older than what is committed."""

    async def barrier(self) -> None:
        """Return when whoever was writing has ended: who writes now sees all that was committed before."""


@runtime_checkable
class Near(Protocol):
    """It can answer point reads at once, without waiting for anything."""

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None: ...  # None: not now


@runtime_checkable
class Telling(Protocol):
    """It hears of records that others settle, which only shortens waiting: polling stays the truth."""

    def subscribe(self, on_settled: Callable[[bytes], None], /) -> None: ...


@runtime_checkable
class Qualified(Protocol):
    """Its durability does not cover everything."""

    @property
    def durability_warning(self) -> str: ...  # one line for whoever runs it; empty: nothing is left out


def get_durability_warning(engine: Engine) -> str:
    return engine.durability_warning if isinstance(engine, Qualified) else ""
