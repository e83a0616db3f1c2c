"""Idempotency keys over HTTP: read the history of one, list and forget keys; and purge a tenant."""

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
    history = await request.ledger.explain(request.path_params[0], scope=scope, user=user)
    return json_response(200, key_out(history, request.id))


async def list_keys(request: Request) -> Response:
    query = request.query("scope", "user", "cursor", "limit")
    page = await request.ledger.keys(
        scope=query.get("scope"),
        user=query.get("user"),
        cursor=query.get("cursor"),
        limit=parse_limit(query.get("limit", "100")),
    )
    return json_response(200, KeysOut(request.id, [key_summary_out(history) for history in page], page.next))


async def forget(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    request.key()
    scope, user = _parse_scope_and_user(request)
    await request.require_no_body()
    usable_after = await request.ledger.forget(request.path_params[0], scope=scope, user=user)
    return json_response(200, KeyForgottenOut(request.id, usable_after))


async def purge(request: Request) -> Response:
    """Purge the caller's tenant; about other tenants the response tells nothing, not even whether they exist."""
    request.key()
    request.query()
    await request.require_no_body()
    if request.path_params[0] != request.credential.caller.tenant:
        return problem_response(problem("FORBIDDEN", "you may erase only your own tenant; send its name"), request.id)
    purged = await request.ledger.purge()
    return json_response(200, TenantPurgedOut(request.id, purged.erased, purged.gone_at))


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
        KeysOut,
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
        "Erase all data of your tenant; revoke its credentials first",
        None,
        TenantPurgedOut,
        takes_key=True,
        errors=("FORBIDDEN",),
    ),
)
