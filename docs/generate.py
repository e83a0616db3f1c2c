"""Writes the pages that follow from the code: `make docs`. Only the list of modules is committed, and a test compares it."""

import ast
import enum
import inspect
import re
from argparse import Action, ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import msgspec

import onejob
from onejob import middleware, testing
from onejob import settings as environment
from onejob import transaction as in_transaction
from onejob.cli.arguments import TARGET_GROUP
from onejob.cli.exit_codes import EXIT_CODE_MEANINGS as EXIT_CODES
from onejob.cli.parser import build_parser
from onejob.codes import CODES, ErrorCode
from onejob.core.states import (
    ENDED_STATES,
    IMMUTABLE_STATES,
    JOB_MOVES,
    RECORD_MOVES,
    IdempotencyStatus,
    JobState,
    SlotState,
)
from onejob.http import config as service
from onejob.http.app import HttpApp
from onejob.http.metrics_server import _SERVICE_FAMILIES
from onejob.http.openapi import COMMON_ERROR_CODES, build_openapi
from onejob.ledger.admin import Admin
from onejob.middleware.fastapi import IdempotentRoute, settled_session
from onejob.middleware.flask import FlaskIdempotency
from onejob.sync import SyncLedger

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "onejob"
ANNOTATION_CHARS_MAX = 90


def states() -> str:
    """Every state and every legal move, as the tables in core/states.py have them."""
    lines = [
        "# States and moves",
        "",
        "Made from `src/onejob/core/states.py` by `make docs`. A move that is not here is refused.",
        "",
        "## Records",
        "",
        "| status | " + " | ".join(IdempotencyStatus) + " |",
        "|---" * (len(IdempotencyStatus) + 1) + "|",
    ]
    for status, record_moves in RECORD_MOVES.items():
        cells = [", ".join(m for m, to in record_moves.items() if to is other) for other in IdempotencyStatus]
        lines.append(f"| **{status}** | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Jobs",
        "",
        "| from | move | to |",
        "|---|---|---|",
    ]
    for state, moves in JOB_MOVES.items():
        lines += [f"| {state} | {move} | {to} |" for move, to in moves.items()]
    lines += [
        "",
        f"Ended (no slot, no worker): {_list(ENDED_STATES)}. Of these, {_list(IMMUTABLE_STATES)} never change again;",
        "a failed or lost job can be run again by an operator.",
        "",
        "## Reservations",
        "",
        f"Active, then {' or '.join(s for s in SlotState if s is not SlotState.ACTIVE)} for good. One that is past",
        "its deadline has expired, whatever it was, and counts nowhere.",
        "",
    ]
    return "\n".join(lines)


def _list(states: frozenset[JobState]) -> str:
    return ", ".join(state for state in JobState if state in states)


def settings() -> str:
    """Every setting, its variable, its default and its meaning."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/onejob/settings.py` and `src/onejob/http/config.py` by `make docs`. An invalid value stops",
        "the program at its start, and the message names it.",
        "",
        "## Keys",
        "",
        "How long the gate waits and remembers: `IdempotencyConfig`, for the library and the service.",
        "",
        *_settings(environment.IdempotencyConfig, environment.MEANINGS, environment.IDEMPOTENCY_PREFIX),
        "",
        "## The service",
        "",
        "`ServiceConfig`, for `onejob serve`: the command line overrides variables, variables override the file that",
        "`--config` names, and the file overrides the defaults. The file is TOML and uses the names below. In a variable,",
        "several values are separated by commas.",
        "",
        *_settings(service.ServiceConfig, service.MEANINGS, environment.SERVICE_PREFIX),
        "",
        "### Bearer tokens",
        "",
        "`JwtConfig`: only in the file, under `[jwt]`.",
        "",
        *_settings(service.JwtConfig, service.JWT_MEANINGS, None),
        "",
        "### Providers",
        "",
        "`ProviderConfig`: only in the file, under `[providers.NAME]` for each. See [cloud.md](cloud.md).",
        "",
        *_settings(service.ProviderConfig, service.PROVIDER_MEANINGS, None),
        "",
        "### Sites",
        "",
        "`SitesConfig` and `SiteConfig`: only in the file, under `[sites]`, and `[sites.ledgers.NAME]` for each of the other",
        "data centres. See [sites.md](sites.md).",
        "",
        *_settings(service.SitesConfig, service.SITES_MEANINGS, None),
        "",
        *_settings(service.SiteConfig, service.SITE_MEANINGS, None),
        "",
        "## The command line",
        "",
        "| variable | meaning |",
        "|---|---|",
    ]
    variables = {
        "engine": "ONEJOB_ENGINE",
        "url": "ONEJOB_URL",
        "api_key": "ONEJOB_API_KEY",
        "window": "ONEJOB_WINDOW",
        "job_retention": "ONEJOB_JOB_RETENTION",
        "gate_key": "ONEJOB_GATE_KEY",
        "tracing": "ONEJOB_TRACING",
        "color": "NO_COLOR",
    }
    lines += [f"| `{variable}` | {environment.MEANINGS[field]} |" for field, variable in variables.items()]
    return "\n".join([*lines, ""])


def _settings(kind: type[msgspec.Struct], meanings: Mapping[str, str], prefix: str | None) -> Iterator[str]:
    """A table of fields; without a prefix there are no variables."""
    heads = ["name", *(["variable"] if prefix else []), "default", "meaning"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for field in msgspec.structs.fields(kind):
        structured = field.name in environment.FILE_ONLY_FIELDS
        variable = "only in the file" if structured else f"`{prefix}{field.name.upper()}`"
        cells = [
            f"`{field.name}`",
            *([variable] if prefix else []),
            _value(field.default),
            meanings[field.name],
        ]
        yield f"| {' | '.join(cells)} |"


def _value(value: Any) -> str:
    match value:
        case None | () | "" | msgspec.NODEFAULT:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return ", ".join(f"`{one}`" for one in value)
        case float() if value.is_integer():
            return f"`{int(value)}`"
    return f"`{value}`"


def command() -> str:
    """Every command with its arguments, as the parser has them."""
    parser = build_parser()
    lines = [
        "# The command line",
        "",
        "Generated from `src/onejob/cli/commands/` by `make docs`; `onejob COMMAND --help` prints the same.",
        "",
        "The commands work directly on an engine, or against a server. They print text for people, with colours only on",
        "a terminal. With `--json` they print the response bodies of the HTTP API without the id of the request (`submit`",
        'adds `jobId`), and a failure prints `{"error": {"code", "message", "retryable", "details"}}` in addition to its',
        "line on standard error.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
    ]
    for made in _commands(parser):
        lines += _section(made)
    lines += [
        "",
        "## Target and output",
        "",
        "All commands but those that serve or run something take these; those that manage credentials, settings or stores work",
        "on an engine only.",
        "",
    ]
    lines += _arguments(_group(dict(_by_name(parser))["onejob submit"], TARGET_GROUP))
    return "\n".join([*lines, ""])


def errors() -> str:
    """Every error code, as the table in codes.py has it."""
    lines = [
        "# Error codes",
        "",
        "Made from `src/onejob/codes.py` by `make docs`. The `code` of a problem is the contract; titles and",
        "messages are for people.",
        "",
        "- **Client**: what `onejob.Client` does next. `fix`: the same bytes never succeed. `wait`: for `Retry-After`.",
        "- **Settles**: final even if an earlier response was lost: no attempt of this request (key and body) made a job.",
        "- **Retry-After**: expected with this code. `retryable` in the body is true exactly when the header is there.",
        "- **Exit code**: of the [command line](cli.md).",
        "",
        "The status of `CONFLICT` is the setting `mismatch_status`. The service does not send the last three:",
        "`KEY_MISSING` and `RESPONSE_NOT_RETAINED` come from the [middleware](middleware.md), and a lost slot is a",
        "`QUOTA_EXCEEDED` with `slotLost` among its details.",
        "",
        "| code | status | title | client | settles | Retry-After | exit code |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_error_row, CODES.values()), ""])


def _error_row(row: ErrorCode) -> str:
    marks = ["yes" if mark else "" for mark in (row.settles, row.retryable)]
    return f"| `{row.code}` | {row.status} | {row.title} | {row.next_action} | {' | '.join(marks)} | {row.exit_code} |"


def _section(made: ArgumentParser) -> Iterator[str]:
    example = (made.epilog or "").removeprefix("example:\n").strip()
    yield from ("", f"## {made.prog}", "", made.description or "", "", "```", example, "```")
    own = [action for group in made._action_groups if group.title != TARGET_GROUP for action in group._group_actions]
    arguments = list(_arguments(own))
    if len(arguments) > 2:
        yield from ("", *arguments)


def _commands(parser: ArgumentParser) -> list[ArgumentParser]:
    """The commands in their order; of one that has acts, these."""
    return [made for _, made in _by_name(parser) if not any(_acts(made))]


def _by_name(parser: ArgumentParser) -> Iterator[tuple[str, ArgumentParser]]:
    for made in _acts(parser):
        yield made.prog, made
        yield from _by_name(made)


def _acts(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    for action in parser._actions:
        if isinstance(action.choices, dict):
            yield from action.choices.values()


def _group(parser: ArgumentParser, title: str) -> list[Action]:
    return [action for group in parser._action_groups if group.title == title for action in group._group_actions]


def _arguments(actions: list[Action]) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in actions:
        if action.dest == "help":
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        word = " ".join(filter(None, [*action.option_strings[:1], value]))
        required = "; required" if action.required and action.option_strings else ""
        yield f"| `{word}` | {(action.help or '') % vars(action)}{required} |"


def module_map() -> str:
    """Every module of the package with the first line of its docstring, by folder."""
    head = [
        "# Modules",
        "",
        "Every module and its first line, made by `make docs`. How they fit together: [ARCHITECTURE.md](../ARCHITECTURE.md).",
    ]
    packages: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring, f"{path} has no docstring"
        name = path.relative_to(SOURCE).as_posix()
        first_line = docstring.splitlines()[0].replace("|", "\\|")
        packages.setdefault(Path(name).parent.as_posix(), []).append(f"| `{name}` | {first_line} |")
    parts = [
        f"## {'onejob/' if package == '.' else f'onejob/{package}/'}\n\n| module | |\n|---|---|\n"
        + "\n".join(rows)
        + "\n"
        for package, rows in packages.items()
    ]
    return "\n".join([*head, "", *parts])


def http_api() -> str:
    """Every path of the HTTP API, as its OpenAPI document has it."""
    app = HttpApp(testing.open_ledger())
    document = build_openapi(app.routes.all, service.ServiceConfig(auth=True, callbacks="public"))
    schemas = document["components"]["schemas"]
    lines = [
        "# The HTTP API",
        "",
        "Generated from the routing table by `make docs`. A running service describes itself at `/openapi.json`, and",
        "lets you try every path at `/docs`. An error is `application/problem+json` with one of the",
        "[codes](errors.md). Those that concern every path (a malformed request, a missing credential, an unavailable",
        "store) are not repeated here. Roles are those of [API keys](cli.md#onejob-apikey-create). A path with the",
        "header `Idempotency-Key` may be repeated with the same key. The members of the bodies are listed once,",
        "[below](#bodies).",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).extend(_operation(path, method, operation))
    for tag, rows in sorted(by_tag.items(), key=lambda one: (one[0] == "service", one[0])):
        lines += ["", f"## {tag}", *rows]
    lines += ["", "## Bodies"]
    for name, schema in sorted(schemas.items()):
        lines += _body(name, schema)
    return "\n".join([*lines, ""])


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (
        "",
        f"### {method.upper()} {path}",
        "",
        f"{operation['summary']}. {operation.get('description', '')}".strip(),
        "",
    )
    yield "| | | |"
    yield "|---|---|---|"
    for parameter in operation["parameters"]:
        if parameter["in"] == "header":
            yield f"| header | `{parameter['name']}` | |"
            continue
        required = "; required" if parameter.get("required") and parameter["in"] != "path" else ""
        yield f"| {parameter['in']} | `{parameter['name']}` | {_cell(parameter['description'])}{required} |"
    if body := operation.get("requestBody"):
        schema = body["content"]["application/json"]["schema"]
        yield f"| body | {_schema_type(schema)} | {'' if body['required'] else 'optional'} |"
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        shown = [_schema_type(one["schema"]) for kind, one in content.items() if kind != "application/problem+json"]
        codes = [code for code in re.findall(r"([A-Z_]{3,}): ", response["description"]) if code not in _COMMON_CODES]
        if shown or codes or status.startswith("2"):
            meaning = response["description"] if int(status) < 400 and response["description"] != "Success" else ""
            yield f"| {status} | {', '.join(shown) or ', '.join(f'`{code}`' for code in codes)} | {_cell(meaning)} |"


_COMMON_CODES = {
    *COMMON_ERROR_CODES, "UNAUTHORIZED", "FORBIDDEN", "LOGIN_THROTTLED", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
}  # fmt: skip


def _body(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if description := schema.get("description"):
        yield from (description, "")
    if "properties" not in schema:
        yield (
            _schema_type(schema)
            if "anyOf" in schema
            else f"One of {', '.join(f'`{one}`' for one in schema.get('enum', []))}."
        )
        return
    yield "| member | type | |"
    yield "|---|---|---|"
    required = schema.get("required", [])
    for member, one in schema["properties"].items():
        notes = [*(["required"] if member in required else []), *([one["description"]] if "description" in one else [])]
        yield f"| `{member}` | {_schema_type(one)} | {_cell('; '.join(notes))} |"


def _schema_type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": options}:
            return " or ".join(dict.fromkeys(map(_schema_type, options)))
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_schema_type(items)}"
        case {"type": "object", "additionalProperties": dict() as members} if members:
            return f"object of {_schema_type(members)}"
        case {"type": str(kind), "format": str(form)}:
            return f"{kind} ({form})"
        case {"type": str(kind)}:
            return kind
    return "any JSON"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def metrics() -> str:
    """Every metric: the families that the modules in http/ build, found in their source."""
    lines = [
        "# Metrics",
        "",
        "Generated from `src/onejob/http/` by `make docs`. [Monitoring](monitoring.md) says which of them to alert",
        "on. Counters belong to the process that did the work: sum them. *Gauges of the store* are the same from",
        "every server: take the maximum, never a sum.",
        "",
        "| metric | type | labels | meaning | shown by |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(row for _, row in sorted(_metric_rows())), ""])


_FAMILIES = {
    "CounterMetricFamily": "counter",
    "_counter_family": "counter",
    "GaugeMetricFamily": "gauge",
    "HistogramMetricFamily": "histogram",
    "InfoMetricFamily": "info",
}


def _metric_rows() -> Iterator[tuple[str, str]]:
    """The name of each family, and its row."""
    for path in sorted((SOURCE / "http").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        samples = [call for call in calls if _name(call) == "MetricSample" and isinstance(call.args[1], ast.Dict)]
        labels = {_constant(call, 0): call.args[1].keys for call in samples if isinstance(call.args[1], ast.Dict)}
        for call in calls:
            kind = _constant(call, 2) if _name(call) == "MetricFamily" else _FAMILIES.get(_name(call))
            name, text = _constant(call, 0), _constant(call, 1)
            if kind is None or name is None or text is None:
                continue
            shown = {"counter": f"{name}_total", "info": f"{name}_info"}.get(kind, name)
            found = [ast.literal_eval(key) for key in labels.get(shown, ()) if key is not None]
            words = ", ".join(f"`{label}`" for label in found or _label_names(call))
            yield name, f"| `{shown}` | {kind} | {words} | {_cell(text)} | {_shown_by(path.name, call, name)} |"


def _shown_by(module: str, call: ast.Call, name: str) -> str:
    if module == "metrics.py" and _name(call) == "MetricFamily":
        return "services, as a gauge of the store"
    if module == "metrics.py":
        return "services" if name.startswith(_SERVICE_FAMILIES) else "services and workers"
    return {"metrics_server.py": "workers, with `--metrics`", "stats.py": "services, with `--workers`"}[module]


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _constant(call: ast.Call, index: int) -> str | None:
    found = call.args[index] if len(call.args) > index else None
    return found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else None


def _label_names(call: ast.Call) -> list[str]:
    given = [word.value for word in call.keywords if word.arg == "labels"]
    if _name(call) == "_counter_family":
        given = [call.args[2]]
    if _name(call) == "InfoMetricFamily" and isinstance(call.args[2], ast.Dict):
        given = [ast.Tuple([key for key in call.args[2].keys if key is not None])]
    names: Any = ast.literal_eval(given[0]) if given else ()
    return [names] if isinstance(names, str) else list(names)


def python_api() -> str:
    """The public Python API: signatures and docstrings of what can be imported."""
    lines = [
        "# The Python API",
        "",
        "Generated from signatures and docstrings by `make docs`. Everything here is imported from `onejob`, unless a",
        "heading names another module. Methods of `Ledger` and `AsyncClient` are awaited. Without an event loop,",
        "`onejob.sync.open(url)` and `onejob.Client` have the same methods without `await`. Durations are",
        "`timedelta`s, or seconds where a number is allowed. What goes wrong is raised: [errors](#errors).",
    ]
    for title, text, members in API_PARTS:
        lines += ["", f"## {title}", "", text]
        for name, member in members:
            lines += _member(name, member)
    covered = {name for _, _, members in API_PARTS for name, _ in members}
    rest = [(name, getattr(onejob, name)) for name in onejob.__all__ if name not in covered | {"AsyncClient"}]
    values = [(name, one) for name, one in rest if not _is_exception(one) and not inspect.ismodule(one)]
    lines += ["", "## Values", "", "What the methods return and accept."]
    for name, one in values:
        lines += _member(name, one)
    lines += [
        "",
        "## Errors",
        "",
        "All are `onejob.OnejobError`s, except those that a handler raises: `Retry`, `Fatal` and its two kinds.",
        "",
    ]
    lines += ["| exception | is a | meaning |", "|---|---|---|"]
    exceptions = [(name, one) for name, one in rest if _is_exception(one)]
    lines += [f"| `{name}` | `{one.__bases__[0].__name__}` | {_cell(_docstring(one))} |" for name, one in exceptions]
    return "\n".join([*lines, ""])


API_PARTS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (
        "Opening a ledger",
        (
            "`async with onejob.open(url) as queue: …`, or `queue = await onejob.open(url)` and `await queue.aclose()`. "
            "`onejob.sync.open` takes the same arguments: `with onejob.sync.open(url) as queue: …`."
        ),
        [("open", onejob.open)],
    ),
    (
        "The ledger",
        "How to use it: [workers](workers.md), [quotas](quotas.md), [sequences](sequences.md), [schedules](schedules.md).",
        [("Ledger", onejob.Ledger), ("Admin", Admin)],
    ),
    (
        "The client",
        (
            "For callers over HTTP: `pip install '../onejob[client]'`, [how to use it](client.md). "
            "`AsyncClient` has the same methods, awaited."
        ),
        [("Client", onejob.Client), ("RetryPolicy", onejob.RetryPolicy)],
    ),
    (
        "Running jobs",
        "[How to](workers.md), and [steps](steps.md).",
        [("App", onejob.App), ("Context", onejob.Context), ("Worker", onejob.Worker)],
    ),
    (
        "In your own transaction: onejob.transaction",
        "[How to](transactions.md). `AsyncCommands` has the methods of `SyncCommands`, awaited.",
        [("InTransaction", in_transaction.InTransaction), ("SyncCommands", in_transaction.SyncCommands)],
    ),
    (
        "Requests and functions: onejob.middleware",
        (
            "[How to](middleware.md). `IdempotentRoute` and `settled_session` are in `onejob.middleware.fastapi`, "
            "`FlaskIdempotency` in `onejob.middleware.flask`. [Django](django.md) is configured by its settings."
        ),
        [
            ("IdempotencyMiddleware", middleware.IdempotencyMiddleware),
            ("WsgiIdempotencyMiddleware", middleware.WsgiIdempotencyMiddleware),
            ("IdempotentRoute", IdempotentRoute),
            ("settled_session", settled_session),
            ("FlaskIdempotency", FlaskIdempotency),
            ("idempotent", middleware.idempotent),
            ("Rule", middleware.Rule),
            ("Need", middleware.Need),
        ],
    ),
    ("Tests: onejob.testing", "[How to](testing.md).", [(name, getattr(testing, name)) for name in testing.__all__]),
]


def _is_exception(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, BaseException)


def _member(name: str, one: Any) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if inspect.isclass(one) and issubclass(one, enum.Enum):
        if documented := _docstring(one):
            yield from (documented, "")
        yield " · ".join(f"`{value.value}`" for value in one)
        return
    value = one if inspect.isclass(one) and issubclass(one, msgspec.Struct) else None
    if value is None and name not in ("Ledger", "Admin"):
        yield from ("```pyi", _signature(name, one), "```", "")
    yield _docstring(one)
    if value is not None:
        yield from _fields(value)
    if inspect.isclass(one):
        yield from _methods(one)


def _fields(one: type[msgspec.Struct]) -> Iterator[str]:
    yield from ("", "| field | type | default |", "|---|---|---|")
    for field in msgspec.structs.fields(one):
        if not field.name.startswith("_"):
            default = "" if field.required else "…" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"
            yield f"| `{field.name}` | {_cell(f'`{_annotation(field.type)}`')} | {_cell(default)} |"


def _methods(one: type) -> Iterator[str]:
    """The public methods and properties: the own ones first, then those of each base, with its name as a heading."""
    seen: set[str] = set()
    for base in one.__mro__:
        if base.__module__.split(".")[0] != "onejob":
            continue
        found = {name: member for name, member in vars(base).items() if name not in seen and _is_public(one, name)}
        seen |= set(found)
        lines = [line for name, member in found.items() for line in _method(one.__name__, name, member)]
        if lines and base.__name__.endswith("Operations"):
            title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", base.__name__.removesuffix("Operations")).capitalize()
            yield from ("", f"**{title}**")
        yield from lines


def _is_public(one: type, name: str) -> bool:
    """Of the ledger, what callers without an event loop have as well; the rest is for the service."""
    if one is onejob.Ledger:
        return name in {"aclose"} | set(vars(SyncLedger)) and not name.startswith("_")
    return not name.startswith("_")


def _method(owner: str, name: str, member: Any) -> Iterator[str]:
    target = getattr(member, "__func__", member)
    if isinstance(member, property) and member.fget is not None:
        text = _docstring(member) or f"`{_annotation(member.fget.__annotations__.get('return', ''))}`"
        yield from ("", f"#### {owner}.{name}", "", text)
    elif inspect.isfunction(target):
        yield from ("", f"#### {owner}.{name}", "", "```pyi", _signature(name, target), "```")
        if documented := _docstring(target):
            yield from ("", documented)


def _signature(name: str, one: Callable[..., Any]) -> str:
    signature = inspect.signature(one)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts += _parameter(parameter)
    returned = _annotation(signature.return_annotation)
    end = f") -> {returned}" if returned and not inspect.isclass(one) else ")"
    line = f"{name}({', '.join(parts)}{end}"
    return line if len(line) <= 110 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), end])


def _parameter(parameter: inspect.Parameter) -> list[str]:
    annotation = _annotation(parameter.annotation)
    if parameter.kind is parameter.VAR_KEYWORD:
        options = _typed_dict(parameter.annotation)
        return [f"{name}: {_annotation(one)} = …" for name, one in options.items()] or [f"**{parameter.name}"]
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return [f"{star}{parameter.name}{f': {annotation}' if annotation else ''}{default}"]


def _typed_dict(annotation: Any) -> dict[str, Any]:
    """The options and their types, where `**options` has an `Unpack[TypedDict]`."""
    arguments = getattr(annotation, "__args__", ())
    return get_type_hints(arguments[0]) if arguments and is_typeddict(arguments[0]) else {}


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value.value)
    text = repr(value).removeprefix("datetime.")
    return text if len(text) <= 40 and "<" not in text and "object at" not in text else "…"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\bForwardRef\('([^']*)'.*?\)", r"\1", text)
    text = re.sub(r"(?<![\w.])(?:\w+\.)+(?=\w)", "", text.replace("~", ""))
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text.replace("Annotated[datetime, Meta(tz=True)]", "datetime"))
    return text if len(text) <= ANNOTATION_CHARS_MAX else text.partition("[")[0]


def _docstring(one: Any) -> str:
    return " ".join((inspect.getdoc(one) or "").split()) if "__doc__" in dir(one) and _own_docstring(one) else ""


def _own_docstring(one: Any) -> bool:
    """Not the docstring that a class inherits from a library."""
    return not inspect.isclass(one) or vars(one).get("__doc__") not in (None, enum.StrEnum.__doc__)


# The site and `make docs` make these; they are not in the repository.
REFERENCE = {
    "states.md": states,
    "settings.md": settings,
    "cli.md": command,
    "errors.md": errors,
    "http-api.md": http_api,
    "metrics.md": metrics,
    "api.md": python_api,
}
PAGES = {**REFERENCE, "modules.md": module_map}

if __name__ == "__main__":
    for name, render in PAGES.items():
        (HERE / name).write_text(render(), encoding="utf-8")
