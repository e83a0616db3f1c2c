"""Many replies that come one by one, each of which may be a failure of its own."""

import asyncio
from collections.abc import Sequence

from onejob.core.receipt import AnyReply
from onejob.engine import Unavailable, Unknown


async def collect_results(replies: Sequence["asyncio.Future[AnyReply]"]) -> list[AnyReply | BaseException]:
    """Every reply or its failure; cheaper than gather, and a cancelled caller leaves none unlooked at."""
    results: list[AnyReply | BaseException] = []
    try:
        for reply in replies:
            try:
                results.append(await reply)
            except Exception as error:  # noqa: BLE001 - it is the result
                results.append(error)
    finally:
        for reply in replies[len(results) :]:
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # seen, though there is nobody left to tell
    return results


def replies_or_raise(results: Sequence[AnyReply | BaseException]) -> list[AnyReply]:
    """The replies; or, where one failed, the one failure that is true of all of them together."""
    failures = [result for result in results if isinstance(result, BaseException)]
    if not failures:
        return list(results)  # type: ignore[arg-type]  # none of them is a failure
    if len(failures) == len(results):
        # One that may be done makes the whole uncertain, whatever the first one says.
        raise next((failure for failure in failures if not isinstance(failure, Unavailable)), failures[0])
    raise Unknown("part of the batch failed; repeat all of it with the same keys") from failures[0]
