"""What became of a job: wait for its end, get its result, read its log."""

import re
from datetime import timedelta

from msgspec import Raw

from onejob.core.invalid import Invalid
from onejob.core.roles import Act
from onejob.core.states import ENDED
from onejob.engine import PAGE_MAX
from onejob.tail import TooManyWatchers

from .answers import JSON, Answer, answer
from .events import COME_BACK_SECONDS
from .patience import attended
from .problems import RateLimited, Unauthorized
from .request import Request
from .routes import Parameter, Route
from .wire import OneJobOut, job_out
from .work_wire import WAIT_SECONDS_MAX, LogsOut

_SECONDS = re.compile(r"[0-9]{1,2}(?:[.][0-9]{1,3})?")
_NUMBER = re.compile(r"[0-9]{1,16}")


async def job(request: Request) -> Answer:
    wait = _wait(request.query("wait").get("wait", "0"))
    found = await request.ledger.job(request.path[0])
    if wait and found.state not in ENDED:
        await _ended(request, wait)
        found = await request.ledger.job(request.path[0])
    return answer(200, OneJobOut(request.id, job_out(found)))


async def result(request: Request) -> Answer:
    """As it was stored."""
    request.query()
    return Answer(200, await request.ledger.result_json(request.path[0]), (JSON,))


async def logs(request: Request) -> Answer:
    asked = request.query("offset", "limit")
    offset, limit = (
        _number(name, asked.get(name, usual)) for name, usual in (("offset", "0"), ("limit", "100"))
    )
    page = await request.ledger.log_lines(request.path[0], offset=offset, limit=limit)
    out = LogsOut(request.id, page.offset, list(page.lines), page.next, page.total, page.state)
    return answer(200, out)


async def _ended(request: Request, wait: float) -> None:
    """Returns when the job has ended, when time is up, or when nobody here or there can wait any longer."""
    try:
        await attended(request, request.ledger.wait(request.path[0], timedelta(seconds=wait)))
    except TooManyWatchers as error:
        raise RateLimited(str(error), COME_BACK_SECONDS) from error
    if not await request.allowed():
        raise Unauthorized("the credential is not valid any more; get another one")


def _wait(text: str) -> float:
    if not _SECONDS.fullmatch(text) or float(text) > WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return float(text)


def _number(what: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Invalid(what, f"{what} is a whole number; send one")
    return int(text)


_WAIT = Parameter(
    "wait",
    "wait for the end of the job, for so many seconds at most",
    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "multipleOf": 0.001},
)

ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}",
        job,
        Act.READ,
        "Look at a job, or wait for its end",
        None,
        OneJobOut,
        query=(_WAIT,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/result",
        result,
        Act.READ,
        "Get the result of a job, as its worker sent it",
        None,
        Raw,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/logs",
        logs,
        Act.READ,
        "Read the log lines of a job from an offset on; the newest thousand are kept",
        None,
        LogsOut,
        query=(
            Parameter(
                "offset",
                "how many lines to leave out",
                {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
            ),
            Parameter("limit", "how many, at most", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
        ),
        errors=("NOT_FOUND",),
    ),
)
