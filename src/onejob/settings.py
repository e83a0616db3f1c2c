"""Settings from the environment, which only this module reads, and from the configuration file."""

import os
import re
import stat
from collections.abc import Iterable, Mapping, Set
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec import Struct

from .core.errors import Invalid
from .core.timestamps import parse_duration

if TYPE_CHECKING:
    from onejob.http.config import ServiceConfig

IDEMPOTENCY_PREFIX: Final = "IDEMPOTENCY_"
SERVICE_PREFIX: Final = "ONEJOB_"
_SECRET_ENDINGS: Final = ("_API_KEY", "_GATE_KEY", "_SECRET", "_TOKEN", "_PASSWORD")
CLI_ONLY_VARIABLES: Final = frozenset({"ONEJOB_API_KEY", "ONEJOB_URL", "ONEJOB_GATE_KEY"})
FILE_ONLY_FIELDS: Final = ("jwt", "providers", "sites", "windows")  # tables, which no variable can hold
SIMILARITY_MIN: Final = 0.7  # an unknown name this similar to a known one is a misspelling
# CI system -> the variable that shows its presence, and the variables that form a key, in this order.
CI_SYSTEMS: Final = {
    "github": ("GITHUB_ACTIONS", ("GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_WORKFLOW", "GITHUB_JOB")),
    "gitlab": ("GITLAB_CI", ("CI_PROJECT_PATH", "CI_COMMIT_SHA", "CI_JOB_NAME")),
    "jenkins": ("JENKINS_URL", ("JOB_NAME", "GIT_COMMIT")),
}
SECONDS_MIN: Final = 0.001
SECONDS_MAX: Final = 365 * 86_400
ENTRIES_MAX: Final = 10_000_000
_COUNT_FIELDS: Final = ("max_entries", "max_waiters")

# The texts of docs/settings.md.
MEANINGS: Final = {
    "pending_ttl_seconds": "how long a key is held between reserving and settling it, unless its holder renews",
    "committed_ttl_seconds": "how long the gate remembers a settled receipt; the store remembers for the window",
    "rejected_ttl_seconds": "how long a final rejection is answered again",
    "max_entries": "how many settled receipts the gate remembers; the least recently used is evicted",
    "cleanup_interval_seconds": "how often maintenance runs",
    "wait_for_pending": "whether a duplicate waits while its key is held; if not, it is answered `in_progress` at once",
    "pending_wait_timeout": "how many seconds a duplicate waits before it is answered `in_progress`",
    "max_waiters": "how many duplicates wait in a process at once, for held keys and for submissions in flight; one more is "
    "answered `in_progress` at once, or asks the store for itself",
    "engine": "the engine that a command uses when neither `--engine` nor `--url` is given",
    "url": "the server that a command works against when neither `--engine` nor `--url` is given; it takes precedence over "
    "`ONEJOB_ENGINE`. A command without `--url`, such as `worker` and `apikey`, works on an engine and does not use it",
    "api_key": "the API key that a command sends to the server when `--api-key` is not given",
    "window": "the window of a key that a command submits on an engine without `--ttl`, and that of the server if it is not "
    "24h, after which no command retries",
    "job_retention": "how long a job is kept that a command or a worker ends on an engine; 7d unless set",
    "gate_key": "the credential that a gate, a worker or a command sends to managers (`http://…` as the engine)",
    "tracing": "whether a worker traces the attempts of its jobs with OpenTelemetry (`onejob[otel]`)",
    "color": "if set to anything, no colours are written to the terminal",
}

_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]{1,20}")
_BOOLEANS = {
    "true": True, "1": True, "yes": True, "on": True,
    "false": False, "0": False, "no": False, "off": False,
}  # fmt: skip


class IdempotencyConfig(Struct, frozen=True, kw_only=True):
    """How long the gate waits and remembers, and how much."""

    pending_ttl_seconds: float = 60.0
    committed_ttl_seconds: float = 300.0
    rejected_ttl_seconds: float = 60.0
    max_entries: int = 100_000
    cleanup_interval_seconds: float = 10.0
    wait_for_pending: bool = True
    pending_wait_timeout: float = 30.0
    max_waiters: int = 20_000

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            _check(field, field, getattr(self, field))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the IDEMPOTENCY_ variables; an invalid value raises Invalid with the variable's name."""
        source = os.environ if environ is None else environ
        _reject_misspelled(
            source, IDEMPOTENCY_PREFIX, {IDEMPOTENCY_PREFIX + field.upper() for field in cls.__struct_fields__}
        )
        values: dict[str, float | bool] = {}
        for field in cls.__struct_fields__:
            variable = IDEMPOTENCY_PREFIX + field.upper()
            if variable in source:
                values[field] = _check(field, variable, _parse_value(field, source[variable]))
        return cls(**values)  # type: ignore[arg-type]  # _check has matched every value with its field


class CliSettings(Struct, frozen=True, kw_only=True):
    """Defaults of the command line that come from the environment."""

    engine: str | None = None
    url: str | None = None
    api_key: str | None = None
    window: timedelta | None = None
    job_retention: timedelta | None = None
    tracing: bool = False
    color: bool = True

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the ONEJOB_ variables of these names. A set NO_COLOR or a dumb terminal turns colours off."""
        source = os.environ if environ is None else environ
        service = {SERVICE_PREFIX + field.upper() for field in _service_fields()}
        _reject_misspelled(source, SERVICE_PREFIX, service | CLI_ONLY_VARIABLES)
        return cls(
            engine=source.get("ONEJOB_ENGINE") or None,
            url=source.get("ONEJOB_URL") or None,
            api_key=source.get("ONEJOB_API_KEY") or None,
            window=_read_duration(source, "ONEJOB_WINDOW"),
            job_retention=_read_duration(source, "ONEJOB_JOB_RETENTION"),
            tracing=_convert(
                "ONEJOB_TRACING", _parse_env_text(source.get("ONEJOB_TRACING", ""), bool) or False, bool, strict=True
            ),
            color=not source.get("NO_COLOR") and source.get("TERM") != "dumb",
        )


def read_gate_key(environ: Mapping[str, str] | None = None) -> str:
    """ONEJOB_GATE_KEY: the credential of a gate for its managers; empty if it is not set."""
    return (os.environ if environ is None else environ).get("ONEJOB_GATE_KEY", "")


def read_variables(names: Iterable[str]) -> dict[str, str]:
    """These variables of the environment, as far as they are set."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def environment_for_programs() -> dict[str, str]:
    """The environment for programs that are not part of onejob: without our API key, gate key and passwords.

    Of a URL with a password its scheme is left, so that a program that uses it fails and does not take another store.
    """
    from onejob.engines import has_password  # late: an engine's gate imports this module

    environment = {}
    for name, value in os.environ.items():
        if not name.startswith(SERVICE_PREFIX):
            environment[name] = value
        elif "://" in value and has_password(value):
            environment[name] = value.partition("://")[0] + "://…"
        elif not name.endswith(_SECRET_ENDINGS):
            environment[name] = value
    return environment


def cache_folder() -> Path:
    """Where this user keeps files that can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "onejob"


class CiEnvironment(Struct, frozen=True, kw_only=True):
    """The variables of a CI system that are the same when the same commit is run again."""

    system: str = ""  # empty: none of CI_SYSTEMS
    parts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    annotates: bool = False
    output: str | None = None  # a file for name=value lines, which later steps read

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the variables of the first CI system that is present. Run numbers are left out: they change."""
        source = os.environ if environ is None else environ
        github = {"annotates": source.get("GITHUB_ACTIONS") == "true", "output": source.get("GITHUB_OUTPUT") or None}
        for system, (marker, names) in CI_SYSTEMS.items():
            if source.get(marker) not in (None, "", "false"):
                missing = tuple(name for name in names if not source.get(name))
                parts = tuple(source.get(name, "") for name in names)
                return cls(system=system, parts=parts, missing=missing, **github)  # type: ignore[arg-type]  # see above
        return cls(**github)  # type: ignore[arg-type]  # see above


def server_environment() -> dict[str, str]:
    """This environment without the settings of a service: for a server process that is given all of them otherwise."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(SERVICE_PREFIX) or _is_ignored_variable(name, value)
    }


def load_service_config(
    path: str | None = None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> "ServiceConfig":
    """Load the settings of the service: a TOML file, then ONEJOB_ variables, then the command line; the last wins."""
    from onejob.http.config import ServiceConfig  # late: it imports the ledger, which imports this module

    types = _service_fields()
    names: dict[str, str] = {}  # field -> the name under which it was set, for error messages
    values: dict[str, Any] = {}
    for field, value in (_read_toml(path) if path else {}).items():
        names[field] = f"{field} in {path}"
        if field not in types:
            raise Invalid(field, _unknown_setting_message(names[field], types, field))
        values[field] = _convert(names[field], value, types.get(field), strict=True)
    for variable, text in (os.environ if environ is None else environ).items():
        field = variable.removeprefix(SERVICE_PREFIX).lower()
        if variable.startswith(SERVICE_PREFIX) and not _is_ignored_variable(variable, text):
            names[field] = variable
            kind = None if field in FILE_ONLY_FIELDS else types.get(field)
            if kind is None:
                known = [SERVICE_PREFIX + name.upper() for name in types if name not in FILE_ONLY_FIELDS]
                raise Invalid(variable, _unknown_setting_message(variable, known))
            values[field] = _convert(variable, _parse_env_text(text, kind), kind, strict=False)
    for field, value in (overrides or {}).items():
        if value is not None:
            names[field], values[field] = f"--{field.replace('_', '-')}", value
    try:
        return ServiceConfig(**values)
    except Invalid as error:
        raise Invalid(error.what, f"{names.get(error.what, error.what)}: {error}") from None


def exposed_secrets(path: str) -> list[str]:
    """The settings of a configuration file that are secret, if other users of this machine may read the file."""
    from onejob.engines import has_password  # late: an engine's gate imports this module

    if not Path(path).stat().st_mode & stat.S_IROTH:
        return []
    table = _read_toml(path)
    jwt, engine = table.get("jwt"), str(table.get("engine", ""))
    secrets = ["jwt.secret"] if isinstance(jwt, dict) and jwt.get("secret") else []
    sites = table.get("sites")
    ledgers = sites.get("ledgers", {}) if isinstance(sites, dict) else {}
    for name, site in ledgers.items() if isinstance(ledgers, dict) else ():
        if isinstance(site, dict) and (site.get("gate_key") or "@" in str(site.get("managers"))):
            secrets.append(f"sites.ledgers.{name}.gate_key")
    return secrets + (["engine with a password"] if engine and has_password(engine) else [])


def _read_duration(source: Mapping[str, str], variable: str) -> timedelta | None:
    text = source.get(variable)
    try:
        return parse_duration(variable, text) if text else None
    except Invalid as error:
        raise Invalid(variable, f"{variable}: {error}") from None


def _service_fields() -> dict[str, Any]:
    from onejob.http.config import ServiceConfig

    return {field.name: field.type for field in msgspec.structs.fields(ServiceConfig)}


def _unknown_setting_message(shown: str, known: Iterable[str], name: str | None = None) -> str:
    near = _nearest(shown if name is None else name, known)
    act = f"did you mean {near}?" if near else "remove it, or correct its name"
    return f"{shown} is not a setting of the service; {act}"


def _reject_misspelled(source: Mapping[str, str], prefix: str, known: Set[str]) -> None:
    """Refuse names similar to a setting. Other names with the prefix may belong to another program."""
    for variable in source:
        if not variable.startswith(prefix) or variable in known or _is_ignored_variable(variable, source[variable]):
            continue
        if near := _nearest(variable, known):
            raise Invalid(variable, f"{variable} is not a setting; did you mean {near}? Otherwise rename it")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    # Compared without the common prefix, which would make all names similar.
    known_by_suffix = {_strip_prefix(variable): variable for variable in known}
    matches = get_close_matches(_strip_prefix(name), list(known_by_suffix), n=1, cutoff=SIMILARITY_MIN)
    return known_by_suffix[matches[0]] if matches else None


def _strip_prefix(name: str) -> str:
    return name.removeprefix(SERVICE_PREFIX).removeprefix(IDEMPOTENCY_PREFIX).lower()


def _is_ignored_variable(variable: str, text: str) -> bool:
    """True for variables of the command line, and for those that Kubernetes sets for a Service named onejob."""
    if variable in CLI_ONLY_VARIABLES or variable.startswith(("ONEJOB_SERVICE_", "ONEJOB_PORT_")):
        return True
    return variable == "ONEJOB_PORT" and text.startswith(("tcp://", "udp://"))


def _read_toml(path: str) -> dict[str, Any]:
    try:
        table: dict[str, Any] = msgspec.toml.decode(Path(path).read_bytes())
    except OSError as error:
        raise Invalid("config", f"{path} cannot be read ({error.strerror}); name a readable file") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise Invalid("config", f"{path} is not TOML ({error}); correct it") from error
    return table


def _parse_env_text(text: str, kind: Any) -> object:
    text = text.strip()
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    if kind == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _convert(name: str, value: object, kind: Any, *, strict: bool) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise Invalid(name, f"{name} is invalid ({error}); correct it") from None


def _parse_value(field: str, text: str) -> object:
    """Convert a text to the field's type; text of another form is returned unchanged, and `_check` refuses it."""
    text = text.strip()
    if field == "wait_for_pending":
        return _BOOLEANS.get(text.lower(), text)
    if field in _COUNT_FIELDS:
        return int(text) if _WHOLE.fullmatch(text) else text
    # float() alone would accept nan, inf, 1_000 and the digits of other scripts.
    return float(text) if _DECIMAL.fullmatch(text) else text


def _check(field: str, name: str, value: object) -> float | bool:
    """Return the value if it is valid for the field; otherwise raise Invalid under the name it was set by."""
    if field == "wait_for_pending":
        if isinstance(value, bool):
            return value
        raise Invalid(name, f"{name} is {value!r}; set it to true or false")
    if field in _COUNT_FIELDS:
        if type(value) is int and 1 <= value <= ENTRIES_MAX:
            return value
        raise Invalid(name, f"{name} is {value!r}; set it to a whole number from 1 to {ENTRIES_MAX}")
    # A wait of zero makes sense; every other time must be positive.
    allows_zero = field == "pending_wait_timeout"
    # NaN and infinity fail the comparison, and a bool is not of either type.
    if type(value) is float or type(value) is int:  # noqa: SIM102 - mypy narrows the type first
        if SECONDS_MIN <= value <= SECONDS_MAX or (allows_zero and value == 0):
            return value
    least = "from 0" if allows_zero else f"from {SECONDS_MIN}"
    raise Invalid(name, f"{name} is {value!r}; set it to a number of seconds {least} up to {SECONDS_MAX}")
