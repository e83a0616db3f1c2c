"""The OpenAPI 3.1 document, made from the routing table so that it cannot drift from the code."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeGuard

from msgspec import json

from onejob.codes import CODES, HTTP_API_CODES
from onejob.core.credentials import Permission, roles_with
from onejob.core.key import KEY_CHARS_MAX
from onejob.resources import Resource

from .config import ServiceConfig
from .metrics import VERSION
from .request import Request
from .responses import REQUEST_ID_BEFORE, Response, raw_response
from .routing import Route
from .schemas.policy import status_of
from .schemas.types import API_KEY_ID, CLIENT_ID, JOB_ID, KEY, NAME, RESERVATION_ID, ProblemOut, Schema

REF_TEMPLATE = "#/components/schemas/{name}"
DESCRIPTION = (
    "One logical submission makes one job. Send one Idempotency-Key per intended job, the same on every retry: "
    "a retry is answered with the same job, another body under the same key with a conflict."
)
# Every path may answer with these.
COMMON_ERROR_CODES = ("BAD_REQUEST", "VALIDATION_ERROR", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE")

_BARE_KEY_PATTERN = rf"[!#-+\--:<-~]{{1,{KEY_CHARS_MAX}}}"
_QUOTED_KEY_PATTERN = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{KEY_CHARS_MAX}}}"'
_KEY_HEADER_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Your name for this one submission, the same on every retry; in quotes or bare. "
    "Where the body names it too, it is the same there.",
    "schema": {"type": "string", "pattern": f"^(?:{_BARE_KEY_PATTERN}|{_QUOTED_KEY_PATTERN})$"},
}
_PLACEHOLDERS: dict[str, tuple[str, Schema]] = {
    "id": ("The id of a job", JOB_ID),
    "key": ("The key, percent-encoded", KEY),
    "client_id": ("The id of a client, percent-encoded", CLIENT_ID),
    "tenant": ("The name of a tenant", NAME),
    "user": ("The name of a user", NAME),
    "reservation": ("The id of a reservation", RESERVATION_ID),
    "schedule": ("The name of a schedule", NAME),
    "key_id": ("The id of an API key", API_KEY_ID),
}
_HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The id of this request in the log", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "Seconds; present exactly when the same request may be sent again",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Location": {"description": "The path of the job", "schema": {"type": "string"}},
    "Idempotent-Replayed": {
        "description": "Present exactly when an earlier request created the job",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Idempotency-Expires": {
        "description": "Until then the key is answered with this job",
        "schema": {"type": "string", "format": "date-time"},
    },
}
# The body of a response that has no Struct: one event of a stream.
_SCHEMA_BY_MEDIA_TYPE: dict[str, Schema] = {
    "text/event-stream": {
        "type": "object",
        "properties": {word: {"type": "string"} for word in ("id", "event", "data")},
    }
}
# Generated clients have these names. Any other resource has the name of its class, with `Out` at its end.
_COMPONENT_NAMES = {
    "BatchResponse": "BatchOut",
    "BatchVerdict": "VerdictOut",
    "BegunStepResult": "BegunStepOut",
    "CallbackView": "CallbackJobOut",
    "ErrorBody": "ErrorOut",
    "JobHistory": "JobDetailsOut",
    "KeyHistory": "KeyOut",
    "KeyOutcome": "IdempotencyOut",
    "LimitWarning": "WarningOut",
    "LogPage": "LogsOut",
    "BulkResult": "BulkOut",
    "PurgeResult": "TenantPurgedOut",
    "QuotaResponse": "QuotaOut",
    "TenantQuotaResponse": "TenantQuotaOut",
    "UsageResponse": "UsageOut",
    "SearchResult": "SearchOut",
    "SequenceReceipt": "SequenceOut",
    "SequencedClient": "ClientOut",
    "SitesOfJob": "SitesOut",
    "SlotReservation": "ReservationOut",
    "SlotReservations": "ReservationsOut",
    "StepsOfJob": "StepsOut",
    "SubmitResponse": "SubmitOut",
}
# Their docstrings speak to callers of the library.
_WITHOUT_DESCRIPTION = {
    "ClientStateOut", "JobOut", "JobsOut", "KeySummaryOut", "KeysOut", "LogsOut", "ReservationOut",
    "SequenceOut", "StepOut", "TenantPurgedOut", "WorkerOut",
}  # fmt: skip
_LIMIT_KEYWORDS = {"minimum", "maximum", "minLength", "maxLength", "not"}
_SERVICE_PATHS = {"stats", "idempotency-policy"}
_SECURITY_SCHEMES: Schema = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def with_openapi_route(routes: tuple[Route, ...], config: ServiceConfig) -> tuple[Route, ...]:
    """The routes and one more, which serves the OpenAPI document of all of them."""

    @cache
    def document() -> bytes:
        return json.encode(build_openapi(table, config))

    async def openapi_json(request: Request) -> Response:
        return raw_response(200, document(), b"application/json")

    summary = "Describe every path of this server"
    table = (*routes, Route("GET", "/openapi.json", openapi_json, None, summary, None, dict[str, Any]))
    return table


def build_openapi(routes: Iterable[Route], config: ServiceConfig) -> Schema:
    routes = tuple(route for route in routes if not route.is_page)
    schemas, components = _build_schemas(routes, config)
    paths: Schema = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, config)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onejob",
            "version": VERSION,
            "summary": "You had one job.",
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "headers": _HEADERS, "securitySchemes": _SECURITY_SCHEMES},
    }


def _build_schemas(routes: tuple[Route, ...], config: ServiceConfig) -> tuple[dict[Any, Schema], Schema]:
    """The schema of every body type, and the named components that the schemas refer to."""
    pairs = ((route.body_type, route.response_type) for route in routes)
    types = [*dict.fromkeys(body_type for pair in pairs for body_type in pair if body_type is not None), ProblemOut]
    schemas, components = _schema_components(types)
    for response_type in {route.response_type for route in routes if _is_resource(route.response_type)}:
        _add_request_id(components[_component_name(response_type.__name__)], REQUEST_ID_BEFORE.get(response_type))
    components["ErrorOut"]["properties"]["code"]["enum"] = list(HTTP_API_CODES)
    if config.callbacks == "none" and "SubmitBody" in components:
        del components["SubmitBody"]["properties"]["callback"]
        del components["CallbackBody"]
    if config.sites is None and "SubmitBody" in components:
        del components["SubmitBody"]["properties"]["sites"]
    _split_batch_item_schema(components)
    _split_sequence_schema(components)
    return dict(zip(types, schemas, strict=True)), components


class _ComponentRef(str):
    """The template of a reference; components have other names than the Structs of resources."""

    __slots__ = ()

    def format(self, *args: object, **names: object) -> str:
        return super().format(name=_component_name(str(names["name"])))


def _schema_components(types: list[Any]) -> tuple[tuple[Schema, ...], Schema]:
    found = json.schema_components(types, ref_template=_ComponentRef(REF_TEMPLATE))
    schemas, by_class_name = json.decode(json.encode(found))  # because the default of a sequence is a tuple
    components = {}
    for class_name, schema in by_class_name.items():
        name = _component_name(class_name)
        left_out = {"description"} if name in _WITHOUT_DESCRIPTION else set[str]()
        components[name] = {word: value for word, value in schema.items() if word not in left_out} | {"title": name}
    return schemas, components


def _component_name(class_name: str) -> str:
    if class_name in _COMPONENT_NAMES:
        return _COMPONENT_NAMES[class_name]
    return f"{class_name.removesuffix('View')}Out" if class_name in _resource_names() else class_name


@cache
def _resource_names() -> frozenset[str]:
    names, classes = set[str](), Resource.__subclasses__()
    while classes:
        found = classes.pop()
        names.add(found.__name__)
        classes += found.__subclasses__()
    return frozenset(names)


def _is_resource(response_type: Any) -> TypeGuard[type[Resource]]:
    return isinstance(response_type, type) and issubclass(response_type, Resource)


def _add_request_id(schema: Schema, before: str | None) -> None:
    """The id of the request, which is in every response but belongs to no resource."""
    properties, required = [*schema["properties"].items()], schema["required"]
    names = [name for name, _ in properties]
    properties.insert(0 if before is None else names.index(before), ("requestId", {"type": "string"}))
    required.insert(0 if before is None else required.index(before), "requestId")
    schema["properties"] = dict(properties)


def _split_batch_item_schema(components: Schema) -> None:
    """A single submission has its key in the header, an item of a batch in its body."""
    single = components.get("SubmitBody")
    if single is None or "BatchBody" not in components:
        return
    # An invalid value fails its item only; an invalid type fails the whole batch.
    components["BatchItem"] = _without_limits(single)
    components["BatchBody"]["properties"]["jobs"]["items"] = {"$ref": REF_TEMPLATE.format(name="BatchItem")}
    properties = {name: schema for name, schema in single["properties"].items() if name != "idempotencyKey"}
    components["SubmitBody"] = single | {"properties": properties}


def _split_sequence_schema(components: Schema) -> None:
    """A sequence number has one job or several. Its key is in the body or in the header, so neither can be required."""
    both = components.get("SequenceBody")
    if both is None:
        return
    required = both["required"]
    key = both["properties"]["idempotencyKey"] | {"description": "Required, unless the header Idempotency-Key has it."}
    properties = both["properties"] | {"idempotencyKey": key}
    shared = {*required, "idempotencyKey", "idempotencyTtlSeconds"}
    single = {name: schema for name, schema in properties.items() if name != "jobs"}
    batch = {name: schema for name, schema in properties.items() if name in {*shared, "jobs"}}
    for name, properties, added in (("SequenceOfOne", single, "type"), ("SequenceOfMany", batch, "jobs")):
        components[name] = both | {"title": name, "properties": properties, "required": [*required, added]}
    names = ("SequenceOfOne", "SequenceOfMany")
    components["SequenceBody"] = {"anyOf": [{"$ref": REF_TEMPLATE.format(name=name)} for name in names]}


def _without_limits(schema: Any) -> Any:
    if isinstance(schema, dict):
        # The pattern of a timestamp belongs to its format; that of a plain string is a limit.
        limits = _LIMIT_KEYWORDS if "format" in schema else {*_LIMIT_KEYWORDS, "pattern"}
        return {keyword: _without_limits(value) for keyword, value in schema.items() if keyword not in limits}
    return [_without_limits(value) for value in schema] if isinstance(schema, list) else schema


def _operation(route: Route, schemas: dict[Any, Schema], config: ServiceConfig) -> Schema:
    operation: Schema = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route.path)],
        "parameters": list(_parameters(route)),
        "responses": _responses(route, schemas, config),
    }
    if route.permission is not None:
        operation["description"] = _required_roles(route.permission)
        if config.auth:
            operation["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    if route.body_type is not None:
        operation["requestBody"] = {
            "required": not getattr(route.body_type, "is_optional", False),
            "content": {"application/json": {"schema": schemas[route.body_type]}},
        }
    return operation


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path) or ["page"]
    return route.method.lower() + "".join(word[0].upper() + word[1:] for word in words)


def _tag(path: str) -> str:
    first, _, rest = path.lstrip("/").partition("/")
    word = rest.partition("/")[0] if first == "api" else ""
    return word if word and word not in _SERVICE_PATHS else "service"


def _required_roles(permission: Permission) -> str:
    return f"Needs the permission to {permission}. Roles: {', '.join(roles_with(permission))}."


def _parameters(route: Route) -> Iterator[Schema]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        description, schema = _PLACEHOLDERS.get(name, (name, {"type": "string", "minLength": 1}))
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
    for parameter in route.query:
        yield {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "description": parameter.description,
            "schema": parameter.schema,
        }
    if route.takes_key:
        yield _KEY_HEADER_PARAMETER


def _responses(route: Route, schemas: dict[Any, Schema], config: ServiceConfig) -> Schema:
    success: Schema = {"description": "Success", "headers": _header_refs("X-Request-Id")}
    if route.status != 204:
        schema = (
            _SCHEMA_BY_MEDIA_TYPE.get(route.media_type, {"type": "string"})
            if route.response_type is None
            else schemas[route.response_type]
        )
        success["content"] = {route.media_type: {"schema": schema}}
    responses = {str(route.status): success}
    if route.media_type == "text/event-stream":
        responses["204"] = {"description": "With Last-Event-ID: there are no more events"}
    if any(parameter.name == "dryRun" for parameter in route.query):
        responses["200"] = success | {"description": "Dry run: what would happen; nothing was changed"}
    if route.permission is Permission.SUBMIT and route.status == 202:
        headers = _header_refs("X-Request-Id", "Location", "Idempotent-Replayed", "Idempotency-Expires")
        responses[str(route.status)] = success | {"headers": headers}
    if route.replay_status is not None:
        first = responses[str(route.status)]
        responses[str(route.replay_status)] = first | {"description": "It was done before, and is not done again"}
    for status, codes in _error_codes_by_status(route, config).items():
        retry_after = ["Retry-After"] if any(CODES[code].retryable for code in codes) else []
        responses[str(status)] = {
            "description": "; ".join(f"{code}: {CODES[code].title}" for code in codes),
            "headers": _header_refs("X-Request-Id", *retry_after),
            "content": {"application/problem+json": {"schema": schemas[ProblemOut]}},
        }
    return responses


def _error_codes_by_status(route: Route, config: ServiceConfig) -> dict[int, list[str]]:
    codes = [*COMMON_ERROR_CODES, *route.errors]
    if route.permission is not None:
        codes += ["UNAUTHORIZED", "FORBIDDEN", "LOGIN_THROTTLED"] if config.auth else ["UNAUTHORIZED"]
    if route.method != "GET":
        codes += ["PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"]
    if route.permission is Permission.SUBMIT and config.rate_per_second is not None:
        codes.append("RATE_LIMITED")
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(status_of(code, config), []).append(code)
    return dict(sorted(by_status.items()))


def _header_refs(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
