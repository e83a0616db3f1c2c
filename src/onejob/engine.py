"""The Engine protocol (the seam between the rules and the stores), its metadata, and the closed list of queries.

An engine is a place where a decision happens atomically and durably; it knows no rules. Every engine has every
method, nothing probes an engine for what it can do, and wrapping one changes no answer. What the methods promise is
proved for every engine by `onejob.conformance`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from .core.command import Command
from .core.errors import Invalid
from .core.facts import Attachment, AttachmentKind, Fact, Job, Kind
from .core.maintenance import MaintenanceItem
from .core.replies import AnyReply
from .core.states import JobState

T = TypeVar("T")
OnTimeout = Callable[[Exception], None]
OnSettled = Callable[[bytes], None]  # called with the id of a record

PAGE_MAX = 1000
BATCH_MAX = 1024


class Durability(StrEnum):
    """What an acknowledged answer survives."""

    PROCESS = "process"
    DISK = "disk"
    QUORUM = "quorum"


class GateSettings(Struct, frozen=True, kw_only=True):
    """What a manager prescribes to its gates, beside the settings that are stored in the ledger."""

    fingerprint_version: int = 1
    pending_ttl_seconds: float = 60.0
    rejected_ttl_seconds: float = 60.0
    rate_per_second: float | None = None
    rate_burst: int = 100


class ManagerInfo(Struct, frozen=True, kw_only=True):
    """A manager behind an engine, as it was last seen."""

    url: str
    state: str  # "reached", "unreachable" or "refused"
    version: int = 0  # of the wire; 0: it has not said hello
    reason: str = ""  # why it is not reached


class LedgerOwner(Struct, frozen=True, kw_only=True):
    """The process that owns the ledger of an engine, as it last described itself. It also runs the maintenance."""

    prescribed: GateSettings
    settings: bytes = b""  # of the ledger, for processes that may not read them there
    managers: tuple[ManagerInfo, ...] = ()


class EngineInfo(Struct, frozen=True, kw_only=True):
    """The metadata of an engine, as plain data. The five fields from `write_lanes` on are hints: answers are the same
    without them.
    """

    name: str
    ledger_id: str  # random, made with the store: engines on one store have the same, and another store has another
    durability: Durability
    durability_warning: str = ""  # one line: what the declared durability does not cover; empty: nothing
    generation: int = 0  # how many commits the store had after the last one here; 0: it does not count them
    write_lanes: int = 1  # batches of writes that may be in flight at once; it may change with the load
    update_lanes: int = 0  # more batches, for commands that create nothing; 0: they share the write lanes
    batch_max: int = BATCH_MAX
    lane_batch_min: int = 4  # what waits is divided between free lanes, but into batches no smaller than this
    synchronous_reads: bool = False  # `read_now` usually answers
    owner: LedgerOwner | None = None  # None: this process
    window_ms: int = 86_400_000  # how long a key is remembered if nobody says otherwise
    erasure_ms: int = 0  # how long a purge takes to remove the bytes of purged facts from the store's own history


class Engine(Protocol):
    """Two failures only: `Unavailable` (certainly not done) and `Unknown` (may be done: execute it again)."""

    @property
    def info(self) -> EngineInfo: ...

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        """All or nothing per command; replies are returned only once durable, in the order of the commands.

        A caller that gives `on_timeout` stays to the end and is not cancelled. If its own callers should stop waiting
        earlier, the engine calls `on_timeout` once with the error for them, and goes on.
        """

    async def scan(self, query: "Query[T]", /) -> "Page[T]":
        """One bounded page; never the basis of a decision."""

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        """Return when every write of this tenant (or user) that had begun has committed or failed; None: of all tenants.

        Setting a limit relies on it: a submission that was decided before the limit is then visible to `scan`.
        """

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        """The replies to point reads, without waiting; None: they cannot be had now, so `execute` them."""

    def subscribe(self, on_settled: OnSettled, /) -> None:
        """Call back with records that are settled elsewhere. It may do nothing: it only shortens polling."""

    async def aclose(self) -> None: ...


class EngineBase:
    """Default implementations that do nothing, for the two methods that most engines do not need."""

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        return None

    def subscribe(self, on_settled: OnSettled, /) -> None:
        return None


class Query(
    Struct,
    Generic[T],
    frozen=True,
    kw_only=True,
    tag=True,
    tag_field="is",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One of a closed list of queries; a page is bounded, and never the basis of a decision."""

    limit: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_MAX:
            raise Invalid("limit", f"a page has 1 to {PAGE_MAX} items; ask for the next page for more")


class Page(Struct, Generic[T], frozen=True):
    items: Sequence[T]
    more: bool
    scanned_to: bytes = b""  # cursor of a page that came back short; else the last item is the cursor


class ListJobs(Query[Job], frozen=True, kw_only=True):
    """A tenant's jobs, newest first.

    With a filter, a page may come back short or empty although there is more: an engine need not examine every job
    of a tenant for one page. `Page.scanned_to` then says how far it went. A job whose id was drawn by a clock that is
    more than ten minutes wrong may be missing from a list by time.
    """

    tenant: str
    state: JobState | None = None
    type: str | None = None
    user: str | None = None
    usage_id: bytes = b""  # only jobs that are counted in this usage
    label: bytes = b""  # only jobs with this label, spelled as one member of a JSON object: `"name":"value"`
    created_from: int = 0
    created_to: int = 0  # 0: no bound
    before: bytes = b""  # cursor: a job id


class JobCount(Struct, frozen=True):
    type: str
    state: JobState
    count: int


class CountJobs(Query[JobCount], frozen=True, kw_only=True):
    """How many jobs of each type and state there are, of one tenant or of all; the largest numbers first.

    It reads one index entry per job, so it is for a process that counts now and then, never for a caller's request.
    """

    tenant: str | None = None


class ReadyCount(Struct, frozen=True):
    type: str
    count: int
    oldest_at: int  # since when the oldest of them is ready, by its `run_at` or the time in its id


class CountReadyJobs(Query[ReadyCount], frozen=True, kw_only=True):
    """How many jobs of each type wait for a worker and since when, of one tenant or of all; the largest first.

    Jobs that are claimed but not started are included. It reads one index entry per waiting job.
    """

    tenant: str | None = None


class CountKeys(Query[int], frozen=True, kw_only=True):
    """How many keys are stored, of one tenant or of all: one number.

    Expired keys count until maintenance deletes them. It reads one index entry per key, so it is for a process that
    counts now and then, never for a caller's request.
    """

    tenant: str | None = None


class LiveKeyCount(Struct, frozen=True):
    count: int = 0
    last_until: int = 0  # when the last of them ends


class CountLiveKeys(Query[LiveKeyCount], frozen=True, kw_only=True):
    """How many records of all tenants are live (`core.facts.is_live`), and until when. It reads every record.

    The ticks of schedules are left out: their identities do not depend on the settings of the ledger.
    """


class CountCommits(Query[int], frozen=True, kw_only=True):
    """How many commits the store has now, by whichever process: one number, or none where a store does not count them.

    It never falls, unless acknowledged commits are missing.
    """


class ListFacts(Query[Fact], frozen=True, kw_only=True):
    """All facts of one kind, of a tenant or (None) of all, ordered by id."""

    tenant: str | None
    kind: Kind
    after: bytes = b""


class ListAttachments(Query[Attachment], frozen=True, kw_only=True):
    """The attachments of one kind of a job, ordered by index."""

    tenant: str
    job_id: bytes
    kind: AttachmentKind
    start: int = 0


class ListDueFacts(Query[MaintenanceItem], frozen=True, kw_only=True):
    """Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`."""

    kind: Kind
    after: tuple[int, bytes] = (0, b"")  # cursor: the sort key of the last one


class ListReadyJobs(Query[Job], frozen=True, kw_only=True):
    """Jobs of some types that could be claimed, most urgent first.

    For one tenant it costs what the page has, however long the backlog; for all tenants an engine may scan all of it.
    """

    types: tuple[str, ...]
    tenant: str | None = None


class Backlog(Struct, frozen=True):
    """A tenant that has waiting jobs, those included that are claimed but not started."""

    tenant: str
    wait_ms: int  # until the first of them may run; 0: now


class ListBacklogs(Query[Backlog], frozen=True, kw_only=True):
    """The tenants with waiting jobs of some types, by name. It costs what it returns, however long the backlogs."""

    types: tuple[str, ...]
    tenant: str | None = None  # only this one
    after: str = ""  # cursor: a tenant


class ListInputs(Query[Attachment], frozen=True, kw_only=True):
    """The inputs of some jobs of any tenants, ordered by job id. For the process itself, never for a caller."""

    job_ids: tuple[bytes, ...]


class ListLeasedJobs(Query[Job], frozen=True, kw_only=True):
    """Jobs under a live lease of one holder, so that a claim whose reply was lost finds what it took."""

    tenant: str
    holder: bytes
