"""The one assertion that matters."""

from onejob.core.views import JobView
from onejob.errors import NotFound
from onejob.ledger import Ledger


async def assert_submitted_once(ledger: Ledger, key: str, *, scope: str, type: str | None = None) -> JobView:
    """The key made a job, and no other job of its type has that key; returns the job."""
    try:
        story = await ledger.explain(key, scope=scope)
    except NotFound:
        raise AssertionError(f"key {key!r} was never submitted in scope {scope!r}") from None
    assert story.job is not None, f"key {key!r} has no job: it is {story.status}"
    before: str | None = None
    same: list[str] = []
    while True:
        page = await ledger.jobs(type=type or story.job.type, before=before, limit=1000)
        same += [job.id for job in page if job.key == key and job.scope == story.job.scope]
        if page.next is None:
            break
        before = page.next
    assert same == [story.job.id], f"key {key!r} made {len(same)} jobs: {', '.join(same)}"
    return story.job
