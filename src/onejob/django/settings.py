"""The setting `ONEJOB` of a Django project, checked: the store, the owner of keys, and the options of the middleware."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string
from msgspec import Struct

from onejob.errors import OnejobError
from onejob.middleware.rules import DEFAULT_RULES, IdempotencyRules, Need, Rule

# Names in the setting -> option names of every middleware.
_OPTIONS = {
    "LEASE": "lease",
    "HEADERS": "headers",
    "BODY_BYTES_MAX": "body_bytes_max",
    "ANSWER_BYTES_MAX": "answer_bytes_max",
    "MISMATCH_STATUS": "mismatch_status",
    "VERDICTS": "verdicts",
}
_TLS_PARAMETERS = ("sslmode", "sslcert", "sslkey", "sslrootcert")
SCHEMA_DEFAULT = "onejob"  # apart from the tables of the project
NAMES = frozenset({"LEDGER", "DATABASE", "SCOPE", "RULES", "APP", *_OPTIONS})


class ProjectSettings(Struct, frozen=True):
    """`ONEJOB` as it is used."""

    ledger: str  # a URL; empty: that of the database
    database: str  # the alias of the database that has the ledger; empty: it is not one of Django's
    rules: IdempotencyRules
    app: str  # `module:name` of the onejob.App, for the worker

    def ledger_url(self) -> str:
        """The URL of the ledger; built when it is needed, because tests rename databases."""
        return self.ledger or database_url(self.database)


@lru_cache(1)
def project_settings() -> ProjectSettings:
    """Read the setting once. Raises ImproperlyConfigured, naming the member and what to write."""
    given = getattr(settings, "ONEJOB", None)
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured('ONEJOB is not set; set ONEJOB = {"LEDGER": "postgresql://…"}')
    unknown = sorted(map(str, set(given) - NAMES))
    if unknown:
        raise ImproperlyConfigured(f"ONEJOB has no member {', '.join(unknown)}; choose from {', '.join(sorted(NAMES))}")
    ledger, database = given.get("LEDGER", ""), given.get("DATABASE", "")
    if not ledger and not database:
        raise ImproperlyConfigured(
            "ONEJOB names no store; set LEDGER to a URL, or DATABASE to the alias of a PostgreSQL database"
        )
    if database and database not in connections.settings:
        raise ImproperlyConfigured(f"ONEJOB['DATABASE'] is {database!r}, which is not in DATABASES; name one that is")
    try:
        rules = _build_rules(given)
    except (OnejobError, ImportError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"ONEJOB: {error}") from error
    return ProjectSettings(ledger, database, rules, given.get("APP", ""))


def _build_rules(given: Mapping[str, Any]) -> IdempotencyRules:
    options = {option: given[name] for name, option in _OPTIONS.items() if name in given}
    if isinstance(options.get("lease"), int | float):
        options["lease"] = timedelta(seconds=options["lease"])
    scope = given.get("SCOPE", authenticated_user)
    return IdempotencyRules(
        scope=import_string(scope) if isinstance(scope, str) else scope,
        rules=_build_rule_list(given.get("RULES", DEFAULT_RULES)),
        **options,
    )


def _build_rule_list(rules: Iterable[Rule | str | Iterable[Any]]) -> tuple[Rule, ...]:
    """Rules may be written as `Rule`s, strings, or lists such as ("POST /payments/**", "required")."""
    built = []
    for rule in rules:
        if isinstance(rule, str):
            rule = Rule(rule)
        elif not isinstance(rule, Rule):
            where, need, *window = tuple(rule)
            rule = Rule(where, Need(need), *window)
        built.append(rule)
    return tuple(built)


def authenticated_user(request: Any) -> str | None:
    """The default owner of a key: the user who is logged in. Nobody else may use one."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or user.pk is None:
        return None
    return f"user:{user.pk}"


def database_url(alias: str) -> str:
    """The URL of a PostgreSQL database that Django knows."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"ONEJOB['DATABASE'] is {alias!r}, which is {connection.vendor}; "
            "a ledger can be in a PostgreSQL database only: set LEDGER to the URL of a store of its own"
        )
    params = {name: str(value) for name, value in connection.get_connection_params().items() if value}
    login = quote(params.get("user", ""), safe="")
    if "password" in params:
        login += f":{quote(params['password'], safe='')}"
    # The host is in the query, because it may be the folder of a Unix socket.
    query = urlencode({name: params[name] for name in ("host", "port", *_TLS_PARAMETERS) if name in params})
    query += f"&schema={SCHEMA_DEFAULT}"
    return f"postgresql://{login + '@' if login else ''}/{quote(params.get('dbname', ''), safe='')}?{query}"
