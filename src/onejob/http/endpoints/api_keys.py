"""API keys over HTTP, for administrators: list, create, rotate, revoke. The text of a key is in one response, and never again."""

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from onejob.core.credentials import ROTATION_OVERLAP_MS_MAX, Permission, Role, may_grant
from onejob.core.errors import Invalid
from onejob.core.identity import NAME_CHARS_MAX, api_key_user
from onejob.errors import NotAllowed
from onejob.http.request import Request
from onejob.http.responses import Response, json_response
from onejob.http.routing import Route
from onejob.http.schemas.types import NAME, Name, OptionalRequestBody, RequestBody, ResponseBody
from onejob.ledger.api_keys import OVERLAP_DEFAULT, ApiKeys, ApiKeyView, NewKey

API_KEY_NAME_CHARS_MAX = NAME_CHARS_MAX - len(api_key_user(""))
OVERLAP_SECONDS_MAX = ROTATION_OVERLAP_MS_MAX // 1000


class CreateApiKeyBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, Meta(extra_json_schema=NAME | {"maxLength": API_KEY_NAME_CHARS_MAX})]
    roles: Annotated[list[Role], Meta(extra_json_schema={"minItems": 1, "maxItems": len(Role)})]
    user: Name | None = None  # the user that its jobs count for; null: one of its own


class RotateApiKeyBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    overlap_seconds: Annotated[
        float,
        Meta(
            description="How long the old text stays valid.",
            extra_json_schema={"minimum": 0, "maximum": OVERLAP_SECONDS_MAX},
        ),
    ] = OVERLAP_DEFAULT.total_seconds()


class ApiKeyListOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    api_keys: list[ApiKeyView]


class ApiKeyOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    api_key: ApiKeyView


class NewApiKeyOut(ApiKeyOut, frozen=True, rename="camel"):
    text: str  # the key itself, which cannot be read again


async def list_api_keys(request: Request) -> Response:
    request.query()
    return json_response(200, ApiKeyListOut(request.id, [*await ApiKeys(request.ledger).list()]))


async def create_api_key(request: Request) -> Response:
    """Not repeatable: what a lost response has created is in the list, to be revoked."""
    request.query()
    body = await request.decode_body(CreateApiKeyBody)
    if not 1 <= len(body.name) <= API_KEY_NAME_CHARS_MAX or not 1 <= len(body.roles) <= len(Role):
        message = f"an API key has a name of 1 to {API_KEY_NAME_CHARS_MAX} characters and at least one role; send both"
        raise Invalid("name", message)
    if not may_grant(request.credential.roles, body.roles):
        raise NotAllowed(
            "your credential does not have all that these roles allow, and the role metrics shows all tenants; choose "
            "others, or ask the operator of the service for `onejob apikey create NAME --role metrics`"
        )
    if body.user == "":
        raise Invalid("user", "a user has a name; send it, or leave it out for a user of the key's own")
    return _new_key_response(
        request, 201, await ApiKeys(request.ledger).create(body.name, roles=body.roles, user=body.user or "")
    )


async def rotate_api_key(request: Request) -> Response:
    request.query()
    body = await request.decode_body(RotateApiKeyBody)
    if not 0 <= body.overlap_seconds <= OVERLAP_SECONDS_MAX:
        raise Invalid("overlapSeconds", f"overlapSeconds is a number from 0 to {OVERLAP_SECONDS_MAX}; choose one")
    overlap = timedelta(milliseconds=round(body.overlap_seconds * 1000))
    return _new_key_response(
        request, 200, await ApiKeys(request.ledger).rotate(request.path_params[0], overlap=overlap)
    )


async def revoke_api_key(request: Request) -> Response:
    """Idempotent by nature: an Idempotency-Key header is accepted and changes nothing."""
    request.key()
    request.query()
    await request.require_no_body()
    return json_response(200, ApiKeyOut(request.id, await ApiKeys(request.ledger).revoke(request.path_params[0])))


def _new_key_response(request: Request, status: int, made: NewKey) -> Response:
    return json_response(status, NewApiKeyOut(request.id, made.key, made.text))


ROUTES = (
    Route(
        "GET",
        "/api/api-keys",
        list_api_keys,
        Permission.ADMINISTER,
        "List the API keys of the tenant, also revoked ones, without their texts",
        None,
        ApiKeyListOut,
    ),
    Route(
        "POST",
        "/api/api-keys",
        create_api_key,
        Permission.ADMINISTER,
        "Create an API key; its text is in this response only",
        CreateApiKeyBody,
        NewApiKeyOut,
        201,
    ),
    Route(
        "POST",
        "/api/api-keys/{key_id}/rotate",
        rotate_api_key,
        Permission.ADMINISTER,
        "Give an API key a new text; the old one stays valid for the overlap",
        RotateApiKeyBody,
        NewApiKeyOut,
        errors=("NOT_FOUND",),
    ),
    Route(
        "POST",
        "/api/api-keys/{key_id}/revoke",
        revoke_api_key,
        Permission.ADMINISTER,
        "Make an API key invalid for good, with the sessions made from it",
        None,
        ApiKeyOut,
        takes_key=True,
        errors=("NOT_FOUND",),
    ),
)
