"""What became of a job: wait for its end, get its result, read its log."""

import re
from datetime import timedelta

from msgspec import Raw

from onejob.core.invalid import Invalid
from onejob.core.roles import Permission
from onejob.core.states import ENDED_STATES
from onejob.engine import PAGE_MAX
from onejob.tail import TooManyWatchers

from .answers import JSON_CONTENT_TYPE, Response, json_response
from .events import RETRY_AFTER_SECONDS
from .patience import wait_unless_disconnected
from .problems import RateLimited, Unauthorized
from .request import Request
from .routes import Parameter, Route
from .wire import SingleJobOut, job_out
from .work_wire import WAIT_SECONDS_MAX, LogsOut

_SECONDS_PATTERN = re.compile(r"[0-9]{1,2}(?:[.][0-9]{1,3})?")
_INTEGER_PATTERN = re.compile(r"[0-9]{1,16}")


async def get_job(request: Request) -> Response:
    wait = _parse_wait(request.query("wait").get("wait", "0"))
    found = await request.ledger.job(request.path_params[0])
    if wait and found.state not in ENDED_STATES:
        await _wait_for_end(request, wait)
        found = await request.ledger.job(request.path_params[0])
    return json_response(200, SingleJobOut(request.id, job_out(found)))


async def get_result(request: Request) -> Response:
    """As it was stored."""
    request.query()
    return Response(200, await request.ledger.result_json(request.path_params[0]), (JSON_CONTENT_TYPE,))


async def get_logs(request: Request) -> Response:
    asked = request.query("offset", "limit")
    offset, limit = (
        _parse_integer(name, asked.get(name, usual)) for name, usual in (("offset", "0"), ("limit", "100"))
    )
    page = await request.ledger.log_lines(request.path_params[0], offset=offset, limit=limit)
    out = LogsOut(request.id, page.offset, list(page.lines), page.next, page.total, page.state)
    return json_response(200, out)


async def _wait_for_end(request: Request, wait: float) -> None:
    """Returns when the job has ended, when time is up, or when nobody here or there can wait any longer."""
    try:
        await wait_unless_disconnected(
            request, request.ledger.wait(request.path_params[0], timedelta(seconds=wait))
        )
    except TooManyWatchers as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if not await request.still_authorized():
        raise Unauthorized("the credential is not valid any more; get another one")


def _parse_wait(text: str) -> float:
    if not _SECONDS_PATTERN.fullmatch(text) or float(text) > WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return float(text)


def _parse_integer(what: str, text: str) -> int:
    if not _INTEGER_PATTERN.fullmatch(text):
        raise Invalid(what, f"{what} is a whole number; send one")
    return int(text)


_WAIT_PARAMETER = Parameter(
    "wait",
    "wait for the end of the job, for so many seconds at most",
    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "multipleOf": 0.001},
)

RESULT_ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}",
        get_job,
        Permission.READ,
        "Look at a job, or wait for its end",
        None,
        SingleJobOut,
        query=(_WAIT_PARAMETER,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/result",
        get_result,
        Permission.READ,
        "Get the result of a job, as its worker sent it",
        None,
        Raw,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/logs",
        get_logs,
        Permission.READ,
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
