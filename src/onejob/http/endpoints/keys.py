"""Idempotency keys over HTTP: read the history of one, list and forget keys; and purge a tenant."""

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.http.problems import problem
from onejob.http.request import Request
from onejob.http.responses import Response, problem_response, resource_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.types import CURSOR, SCOPE
from onejob.resources.keys import KeyForgotten, KeyHistory, Keys, PurgeResult

from .jobs import LIMIT, parse_limit


async def get_key(request: Request) -> Response:
    scope, user = _parse_scope_and_user(request)
    history = await request.ledger.explain(request.path_params[0], scope=scope, user=user)
    return resource_response(200, history, request.id)


async def list_keys(request: Request) -> Response:
    query = request.query("scope", "user", "cursor", "limit")
    page = await request.ledger.keys(
        scope=query.get("scope"),
        user=query.get("user"),
        cursor=query.get("cursor"),
        limit=parse_limit(query.get("limit", "100")),
    )
    return resource_response(200, Keys(page, page.next), request.id)


async def forget(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    request.key()
    scope, user = _parse_scope_and_user(request)
    await request.require_no_body()
    usable_after = await request.ledger.forget(request.path_params[0], scope=scope, user=user)
    return resource_response(200, KeyForgotten(usable_after), request.id)


async def purge(request: Request) -> Response:
    """Purge the caller's tenant; about other tenants the response tells nothing, not even whether they exist."""
    request.key()
    request.query()
    await request.require_no_body()
    if request.path_params[0] != request.credential.caller.tenant:
        return problem_response(problem("FORBIDDEN", "you may erase only your own tenant; send its name"), request.id)
    return resource_response(200, await request.ledger.admin.purge(), request.id)


def _parse_scope_and_user(request: Request) -> tuple[str, str | None]:
    query = request.query("scope", "user")
    scope = query.get("scope")
    if scope is None:
        raise Invalid("scope", "the scope is missing; send ?scope= with the job type, or the scope of the submission")
    return scope, query.get("user")


_SCOPE = Parameter("scope", "the job type, unless the submission named another", SCOPE, required=True)

_USER = Parameter("user", "the owner of the key, for operators, where each user has its own keys")

ROUTES = (
    Route(
        "GET",
        "/api/keys",
        list_keys,
        Permission.READ,
        "List keys in the order of their scopes and names; a page may be short, continue while there is a `next`",
        None,
        Keys,
        query=(
            Parameter("scope", "only keys of this scope", SCOPE),
            Parameter("user", "only keys that this user used first"),
            Parameter("cursor", "`next` of the previous page", CURSOR),
            LIMIT,
        ),
    ),
    Route(
        "GET",
        "/api/keys/{key}",
        get_key,
        Permission.READ,
        "Get the history of a key: its first user, its hits and conflicts, its job",
        None,
        KeyHistory,
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
        KeyForgotten,
        query=(_SCOPE, _USER),
        takes_key=True,
        errors=("NOT_FOUND", "IN_PROGRESS"),
    ),
    Route(
        "DELETE",
        "/api/tenants/{tenant}",
        purge,
        Permission.ADMINISTER,
        "Erase all data of your tenant; revoke its credentials first",
        None,
        PurgeResult,
        takes_key=True,
        errors=("FORBIDDEN",),
    ),
)
