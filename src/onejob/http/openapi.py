"""The description of the service: OpenAPI 3.1, made from the table of routes, so that it cannot drift from them."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from msgspec import json

from onejob.core.key import KEY_CHARS_MAX
from onejob.core.roles import ALLOWED, Act

from .answers import Answer, text
from .config import ServiceConfig
from .idempotency_policy import status_of
from .metrics import VERSION
from .problems import TITLES
from .request import Request
from .routes import Route
from .shapes import CLIENT_ID, JOB_ID, KEY, NAME, RESERVATION, Schema
from .wire import ProblemOut

REF = "#/components/schemas/{name}"
ABOUT = (
    "One logical submission makes one job. Send one Idempotency-Key per intended job, the same on every retry: "
    "a repetition is answered with the same job, another body under the same key with a conflict."
)
# Whatever is asked for, these may be the answer.
EVERYWHERE = ("BAD_REQUEST", "VALIDATION_ERROR", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE")
RETRYABLE = {"IN_PROGRESS", "RATE_LIMITED", "SERVICE_UNAVAILABLE"}

_BARE = rf"[!#-+\--:<-~]{{1,{KEY_CHARS_MAX}}}"
_QUOTED = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{KEY_CHARS_MAX}}}"'
_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Your name for this one submission, the same on every retry; in quotes or bare. "
    "Where the body names it too, it is the same there.",
    "schema": {"type": "string", "pattern": f"^(?:{_BARE}|{_QUOTED})$"},
}
_PLACEHOLDERS: dict[str, tuple[str, Schema]] = {
    "id": ("The id of a job", JOB_ID),
    "key": ("The key, percent-encoded", KEY),
    "client_id": ("The id of a client, percent-encoded", CLIENT_ID),
    "tenant": ("The name of a tenant", NAME),
    "user": ("The name of a user", NAME),
    "reservation": ("The id of a reservation", RESERVATION),
}
_HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The name of this request in the log", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "Seconds; there exactly when the same request may be sent again",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Location": {"description": "The path of the job", "schema": {"type": "string"}},
    "Idempotent-Replayed": {
        "description": "There exactly when the job was there before",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Idempotency-Expires": {
        "description": "Until then the key is answered with this job",
        "schema": {"type": "string", "format": "date-time"},
    },
}
# What the body of an answer is made of, where no Struct says it: one of the events of a stream.
_TOLD: dict[str, Schema] = {
    "text/event-stream": {
        "type": "object",
        "properties": {word: {"type": "string"} for word in ("id", "event", "data")},
    }
}
_LIMITS = {"minimum", "maximum", "minLength", "maxLength", "not"}
_OF_THE_SERVICE = {"stats", "idempotency-policy"}
_SECURITY: Schema = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def described(routes: tuple[Route, ...], config: ServiceConfig) -> tuple[Route, ...]:
    """The routes, and one more that describes them all, itself included."""

    @cache
    def document() -> bytes:
        return json.encode(openapi(table, config))

    async def openapi_json(request: Request) -> Answer:
        return text(200, document(), b"application/json")

    summary = "Describe every path of this server"
    table = (*routes, Route("GET", "/openapi.json", openapi_json, None, summary, None, dict[str, Any]))
    return table


def openapi(routes: Iterable[Route], config: ServiceConfig) -> Schema:
    routes = tuple(routes)
    schemas, components = _schemas(routes, config)
    paths: Schema = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, config)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onejob",
            "version": VERSION,
            "summary": "You had one job.",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "headers": _HEADERS, "securitySchemes": _SECURITY},
    }


def _schemas(routes: tuple[Route, ...], config: ServiceConfig) -> tuple[dict[Any, Schema], Schema]:
    """The schema of everything that travels, and the named ones that they refer to."""
    kinds = list({kind: None for route in routes for kind in (route.takes, route.gives) if kind is not None})
    found, components = json.schema_components([*kinds, ProblemOut], ref_template=REF)
    components["ErrorOut"]["properties"]["code"]["enum"] = list(TITLES)
    if config.callbacks == "none" and "SubmitBody" in components:
        del components["SubmitBody"]["properties"]["callback"]
        del components["CallbackBody"]
    _tell_items_apart(components)
    _tell_numbers_apart(components)
    return dict(zip([*kinds, ProblemOut], found, strict=True)), components


def _tell_items_apart(components: Schema) -> None:
    """Alone, a submission has its key in the header; in a batch it has it in itself."""
    alone = components.get("SubmitBody")
    if alone is None or "BatchBody" not in components:
        return
    # A value that cannot be taken is the verdict of that item; only its shape is a matter of the whole batch.
    components["BatchItem"] = _unbounded(alone)
    components["BatchBody"]["properties"]["jobs"]["items"] = {"$ref": REF.format(name="BatchItem")}
    shown = {name: schema for name, schema in alone["properties"].items() if name != "idempotencyKey"}
    components["SubmitBody"] = alone | {"properties": shown}


def _tell_numbers_apart(components: Schema) -> None:
    """A number brings one job or a batch, and has its key in itself: the header is for whoever prefers it."""
    both = components.get("SequenceBody")
    if both is None:
        return
    required = [*both["required"], "idempotencyKey"]
    shared = {*required, "idempotencyTtlSeconds"}
    one = {name: schema for name, schema in both["properties"].items() if name != "jobs"}
    batch = {name: schema for name, schema in both["properties"].items() if name in {*shared, "jobs"}}
    for name, properties, added in (("SequenceOfOne", one, "type"), ("SequenceOfMany", batch, "jobs")):
        components[name] = both | {"title": name, "properties": properties, "required": [*required, added]}
    names = ("SequenceOfOne", "SequenceOfMany")
    components["SequenceBody"] = {"anyOf": [{"$ref": REF.format(name=name)} for name in names]}


def _unbounded(schema: Any) -> Any:
    if isinstance(schema, dict):
        # The pattern of a moment is its shape; that of a text is a limit.
        limits = _LIMITS if "format" in schema else {*_LIMITS, "pattern"}
        return {word: _unbounded(value) for word, value in schema.items() if word not in limits}
    return [_unbounded(value) for value in schema] if isinstance(schema, list) else schema


def _operation(route: Route, schemas: dict[Any, Schema], config: ServiceConfig) -> Schema:
    made: Schema = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route.path)],
        "parameters": list(_parameters(route)),
        "responses": _responses(route, schemas, config),
    }
    if route.act is not None:
        made["description"] = _needs(route.act)
        if config.auth:
            made["security"] = [{name: []} for name in _SECURITY]
    if route.takes is not None:
        made["requestBody"] = {
            "required": not getattr(route.takes, "may_be_left_out", False),
            "content": {"application/json": {"schema": schemas[route.takes]}},
        }
    return made


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path) or ["page"]
    return route.method.lower() + "".join(word[0].upper() + word[1:] for word in words)


def _tag(path: str) -> str:
    first, _, rest = path.lstrip("/").partition("/")
    word = rest.partition("/")[0] if first == "api" else ""
    return word if word and word not in _OF_THE_SERVICE else "service"


def _needs(act: Act) -> str:
    roles = [role for role, acts in ALLOWED.items() if act in acts]
    return f"For whoever may {act}: {', '.join(roles)}."


def _parameters(route: Route) -> Iterator[Schema]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        description, schema = _PLACEHOLDERS.get(name, (name, {"type": "string", "minLength": 1}))
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
    for asked in route.query:
        yield {
            "name": asked.name,
            "in": "query",
            "required": asked.required,
            "description": asked.text,
            "schema": asked.schema,
        }
    if route.takes_key:
        yield _KEY_HEADER


def _responses(route: Route, schemas: dict[Any, Schema], config: ServiceConfig) -> Schema:
    fine: Schema = {"description": "Done", "headers": _headers("X-Request-Id")}
    if route.status != 204:
        schema = _TOLD.get(route.media, {"type": "string"}) if route.gives is None else schemas[route.gives]
        fine["content"] = {route.media: {"schema": schema}}
    responses = {str(route.status): fine}
    if route.media == "text/event-stream":
        responses["204"] = {"description": "With Last-Event-ID: nothing is left to tell"}
    if any(asked.name == "dryRun" for asked in route.query):
        responses["200"] = fine | {"description": "What would happen; nothing did"}
    if route.act is Act.SUBMIT and route.status == 202:
        told = _headers("X-Request-Id", "Location", "Idempotent-Replayed", "Idempotency-Expires")
        responses[str(route.status)] = fine | {"headers": told}
    if route.again is not None:
        done = responses[str(route.status)]
        responses[str(route.again)] = done | {"description": "It was done before, and is not done again"}
    for status, codes in _failures(route, config).items():
        waits = ["Retry-After"] if RETRYABLE.intersection(codes) else []
        responses[str(status)] = {
            "description": "; ".join(f"{code}: {TITLES[code][1]}" for code in codes),
            "headers": _headers("X-Request-Id", *waits),
            "content": {"application/problem+json": {"schema": schemas[ProblemOut]}},
        }
    return responses


def _failures(route: Route, config: ServiceConfig) -> dict[int, list[str]]:
    """What may go wrong, by status."""
    codes = [*EVERYWHERE, *route.errors]
    if route.act is not None:
        codes += ["UNAUTHORIZED", "FORBIDDEN"] if config.auth else ["UNAUTHORIZED"]
    if route.method != "GET":
        codes.append("PAYLOAD_TOO_LARGE")
    if route.act is Act.SUBMIT and config.rate_per_second is not None:
        codes.append("RATE_LIMITED")
    found: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        found.setdefault(status_of(code, config), []).append(code)
    return dict(sorted(found.items()))


def _headers(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
