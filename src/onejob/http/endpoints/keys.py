"""Keys over HTTP: tell their story, list them, forget them; and erase all that a tenant has."""

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.http.problems import problem
from onejob.http.request import Request
from onejob.http.responses import Response, json_response, problem_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.jobs import KeyForgottenOut, KeyOut, KeysOut, TenantPurgedOut, key_out, key_summary_out
from onejob.http.schemas.types import CURSOR, SCOPE

from .jobs import LIMIT, parse_limit


async def get_key(request: Request) -> Response:
    scope, user = _parse_scope_and_user(request)
    story = await request.ledger.explain(request.path_params[0], scope=scope, user=user)
    return json_response(200, key_out(story, request.id))


async def list_keys(request: Request) -> Response:
    asked = request.query("scope", "user", "cursor", "limit")
    page = await request.ledger.keys(
        scope=asked.get("scope"),
        user=asked.get("user"),
        cursor=asked.get("cursor"),
        limit=parse_limit(asked.get("limit", "100")),
    )
    return json_response(200, KeysOut(request.id, [key_summary_out(story) for story in page.histories], page.next))


async def forget(request: Request) -> Response:
    """Idempotent by itself: a key in the header is accepted and changes nothing."""
    request.key()
    scope, user = _parse_scope_and_user(request)
    await request.require_no_body()
    usable_after = await request.ledger.forget(request.path_params[0], scope=scope, user=user)
    return json_response(200, KeyForgottenOut(request.id, usable_after))


async def purge(request: Request) -> Response:
    """Only the own tenant; about another nothing is told, not even whether it exists."""
    request.key()
    request.query()
    await request.require_no_body()
    if request.path_params[0] != request.credential.caller.tenant:
        return problem_response(problem("FORBIDDEN", "you may erase your own tenant only"), request.id)
    return json_response(200, TenantPurgedOut(request.id, await request.ledger.purge()))


def _parse_scope_and_user(request: Request) -> tuple[str, str | None]:
    """The scope of a key, and its user where that is somebody else."""
    asked = request.query("scope", "user")
    scope = asked.get("scope")
    if scope is None:
        raise Invalid("scope", "say in which scope: ?scope= the job type, unless the submission named another")
    return scope, asked.get("user")


_SCOPE = Parameter("scope", "the job type, unless the submission named another", SCOPE, required=True)

_USER = Parameter("user", "whose key, for operators, where each user has its own; else it is the same for all")

ROUTES = (
    Route(
        "GET",
        "/api/keys",
        list_keys,
        Permission.READ,
        "List keys in the order of their scopes and names; a page may be short, go on while there is a next",
        None,
        KeysOut,
        query=(
            Parameter("scope", "only keys of this scope", SCOPE),
            Parameter("user", "only keys that this user was the first to use"),
            Parameter("cursor", "`next` of the page before", CURSOR),
            LIMIT,
        ),
    ),
    Route(
        "GET",
        "/api/keys/{key}",
        get_key,
        Permission.READ,
        "Tell the story of a key: who used it first, how often it was met again, its job",
        None,
        KeyOut,
        query=(_SCOPE, _USER),
        errors=("NOT_FOUND",),
    ),
    Route(
        "DELETE",
        "/api/keys/{key}",
        forget,
        Permission.FORGET,
        "Let a key expire early; its job stays",
        None,
        KeyForgottenOut,
        query=(_SCOPE, _USER),
        takes_key=True,
        errors=("NOT_FOUND", "IN_PROGRESS"),
    ),
    Route(
        "DELETE",
        "/api/tenants/{tenant}",
        purge,
        Permission.ADMINISTER,
        "Erase everything that the own tenant has; revoke its credentials first",
        None,
        TenantPurgedOut,
        takes_key=True,
        errors=("FORBIDDEN",),
    ),
)
