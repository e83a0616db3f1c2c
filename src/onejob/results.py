"""What a job left behind: its result and its log lines."""

from msgspec import Struct

from .core.facts import AttachmentKind, Job
from .core.invalid import Invalid
from .core.states import JobState
from .engine import PAGE_MAX, Engine, ListAttachments

OFFSET_MAX = 2**53 - 1


class LogPage(Struct, frozen=True):
    """Log lines from an offset on. Older ones than the newest thousand are not kept."""

    offset: int  # of the first line here
    lines: tuple[str, ...]
    total: int  # how many there were
    state: JobState

    @property
    def next(self) -> int:
        return self.offset + len(self.lines)


async def load_result(engine: Engine, job: Job) -> bytes:
    """The JSON that a job ended with; empty where there is none."""
    query = ListAttachments(
        tenant=job.tenant, job_id=job.id, kind=AttachmentKind.RESULT, start=job.token, limit=1
    )
    page = await engine.scan(query)
    return page.items[0].data if page.items else b""


async def load_log_page(engine: Engine, job: Job, *, offset: int, limit: int) -> LogPage:
    if not 0 <= offset <= OFFSET_MAX or not 1 <= limit <= PAGE_MAX:
        raise Invalid("offset", f"offset counts lines from 0, and a page has 1 to {PAGE_MAX}; choose others")
    query = ListAttachments(
        tenant=job.tenant, job_id=job.id, kind=AttachmentKind.LOG, start=offset, limit=limit
    )
    items = (await engine.scan(query)).items if job.logs > offset else ()
    first = items[0].index if items else max(offset, job.logs)
    lines = tuple(item.data.decode() for item in items)
    return LogPage(first, lines, max(job.logs, first + len(lines)), job.state)
