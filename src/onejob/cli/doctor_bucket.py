"""Doctor checks of a bucket: its readable objects, which are repaired, and what is left of purged tenants."""

import asyncio
from typing import TYPE_CHECKING

from onejob.core.timestamps import to_utc
from onejob.errors import OnejobError

from .findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from onejob.engines.bucket import BucketEngine
    from onejob.engines.bucket.snapshots import Erasure
    from onejob.engines.bucket.view import ViewRepair


def check_bucket(url: str) -> list[Finding]:
    try:
        return asyncio.run(_check(url))
    except OnejobError as error:
        return [fail("view", str(error))]


async def _check(url: str) -> list[Finding]:
    from onejob.engines.bucket import BucketEngine  # late: it needs an extra

    engine = await BucketEngine.open(url)
    try:
        return [await _repair_view(engine), erasure_finding(await engine.examine_erasure())]
    finally:
        await engine.aclose()


async def _repair_view(engine: "BucketEngine") -> Finding:
    """The readable objects of a bucket are made again from its log, which alone decides."""
    if not engine.has_view:
        return ok("view", "off: the bucket has no readable objects")
    return view_finding(await engine.repair_view())


def view_finding(repair: "ViewRepair") -> Finding:
    if not (repair.missing or repair.changed or repair.left_over):
        return ok("view", f"all {repair.objects} readable objects are as the log says")
    return warn(
        "view",
        f"of {repair.objects} readable objects {repair.missing} were missing and {repair.changed} changed; "
        f"{repair.left_over} more were left over",
        "they are right again; no answer depended on them, but see who writes to this bucket",
    )


def erasure_finding(erasure: "Erasure | None") -> Finding:
    if erasure is None:
        return ok("erasure", "nothing is left of purged tenants")
    return warn(
        "erasure",
        f"{erasure.remaining} entries and snapshots are older than the purge of {to_utc(erasure.requested_at):%F %T} UTC",
        f"a running process deletes them from {to_utc(erasure.gone_at):%F %T} UTC on; old versions are for the bucket's owner",
    )
