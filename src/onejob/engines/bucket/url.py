"""The URLs of buckets: where the objects are, with which credentials, and how the engine uses them."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from msgspec import Struct

from onejob.addresses import is_loopback
from onejob.clock import Clock
from onejob.core.errors import Invalid
from onejob.engine import Durability
from onejob.settings import read_variables

from .objects import DateSource, HttpDates, LocalDates, LocalFolder, ObjectStore, ObstoreObjects

C = TypeVar("C", bound=StrEnum)

SCHEMES: Final = ("s3", "gs", "az", "file")
REQUEST_SECONDS: Final = 10
_CONNECT_SECONDS: Final = 3
_LARGE_SECONDS: Final = 600
_OPTIONS: Final = ("view", "replica", "allow_http", "durability")
# Parameter -> the variable that gives it where the URL does not. obstore itself finds roles and workload identities.
_S3: Final = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
_GS: Final = {"service_account_path": "GOOGLE_APPLICATION_CREDENTIALS"}
_AZ: Final = {"account_name": "AZURE_STORAGE_ACCOUNT_NAME", "account_key": "AZURE_STORAGE_ACCOUNT_KEY"}
_PARAMETERS: Final[Mapping[str, Mapping[str, str]]] = {"s3": _S3, "gs": _GS, "az": _AZ, "file": {}}
_REGION_DEFAULT: Final = "us-east-1"


class ViewMode(StrEnum):
    """When the readable objects of the view are written."""

    BEFORE = "before"  # what a submission creates is there before its reply
    SOON = "soon"  # behind the reply
    OFF = "off"


class BucketUrl(Struct, frozen=True, kw_only=True):
    scheme: str
    bucket: str
    prefix: str
    parameters: dict[str, str]
    view: ViewMode = ViewMode.BEFORE
    replica: str = ""  # the folder for local replicas; empty: the user's cache folder
    allow_http: bool = False
    declared: Durability | None = None  # what the owner of a server says that it keeps

    @property
    def display(self) -> str:
        """Without parameters: they may be credentials."""
        path = f"{self.bucket}/{self.prefix}" if self.bucket else self.prefix
        return f"{self.scheme}://{path}"

    @property
    def place(self) -> str:
        """A name for this bucket and prefix that fits a file name."""
        where = f"{self.display} {self.parameters.get('endpoint', '')} {self.parameters.get('account_name', '')}"
        return hashlib.sha256(where.encode()).hexdigest()[:16]

    @property
    def durability(self) -> Durability:
        """A cloud's own store keeps several copies. What a server behind an endpoint keeps is for its owner to say."""
        if self.scheme == "file":
            return Durability.PROCESS
        return self.declared or (Durability.DISK if "endpoint" in self.parameters else Durability.QUORUM)

    @property
    def durability_warning(self) -> str:
        if self.scheme == "file":
            return "a folder is for trials: nothing is synced; use a bucket for real work"
        if "endpoint" in self.parameters and self.declared is None:
            return (
                "how many copies the server behind this endpoint keeps, and whether it syncs them, cannot be seen from here; "
                "add durability=quorum or durability=process to the URL if you know"
            )
        return ""


def parse_bucket_url(url: str) -> BucketUrl:
    parts = urlsplit(url)
    scheme = parts.scheme
    known = _PARAMETERS[scheme]
    given: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known and name not in _OPTIONS:
            raise Invalid(
                "engine", f"{scheme}:// has no parameter {name!r}; known are {', '.join([*known, *_OPTIONS])}"
            )
        given[name] = value
    prefix = parts.path if scheme == "file" else parts.path.strip("/")
    if (
        parts.username
        or parts.password
        or (not parts.hostname if scheme != "file" else parts.netloc or prefix in ("", "/"))
    ):
        raise Invalid(
            "engine", f"write {scheme}://bucket/prefix or file:///folder; credentials are parameters or variables"
        )
    if scheme != "file" and any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise Invalid("engine", "the prefix has an empty part, `.` or `..`; name it without")
    environment = read_variables(known.values())
    parameters = {name: given.get(name) or environment.get(variable, "") for name, variable in known.items()}
    parsed = BucketUrl(
        scheme=scheme,
        bucket=parts.netloc,
        prefix=prefix,
        parameters={name: value for name, value in parameters.items() if value},
        view=_parse_choice("view", ViewMode, given.get("view", "before")),
        declared=_parse_choice("durability", Durability, given["durability"]) if "durability" in given else None,
        replica=given.get("replica", ""),
        allow_http=given.get("allow_http", "") in ("1", "true", "on", "yes"),
    )
    _check_transport(parsed)
    return parsed


def _parse_choice(name: str, choices: type[C], text: str) -> C:
    try:
        return choices(text)
    except ValueError:
        raise Invalid("engine", f"{name} is {text!r}; set it to {', '.join(choices)}") from None


def _check_transport(url: BucketUrl) -> None:
    """Credentials and inputs go over plain HTTP only to this machine, or where it is allowed."""
    endpoint = urlsplit(url.parameters.get("endpoint", "https://default"))
    if endpoint.scheme not in ("http", "https") or not endpoint.hostname:
        raise Invalid("engine", "the endpoint is not a URL; use https://HOST:PORT")
    if endpoint.scheme == "http" and not url.allow_http and not is_loopback(endpoint.hostname):
        raise Invalid(
            "engine",
            "the endpoint is plain http, which shows inputs to the network; use https, or add allow_http=true to the URL",
        )


def open_objects(url: BucketUrl, clock: Clock) -> ObjectStore:
    from obstore import store

    if url.scheme == "file":
        folder = LocalFolder(url.prefix)
        return ObstoreObjects(store.LocalStore(url.prefix), LocalDates(clock), folder=folder)
    quick, patient = (open_store(url, seconds) for seconds in (REQUEST_SECONDS, _LARGE_SECONDS))
    return ObstoreObjects(quick, _date_source(url), patient=patient)


def open_store(url: BucketUrl, seconds: int = REQUEST_SECONDS) -> Any:
    from obstore import store

    options: dict[str, Any] = {
        "prefix": url.prefix or None,
        "client_options": {
            "allow_http": url.parameters.get("endpoint", "").startswith("http://"),
            "timeout": timedelta(seconds=seconds),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        },
        "retry_config": {"max_retries": 0},
        **url.parameters,
    }
    if url.scheme == "s3":
        options.setdefault("region", _REGION_DEFAULT)
        return store.S3Store(url.bucket, **options)
    return store.GCSStore(url.bucket, **options) if url.scheme == "gs" else store.AzureStore(url.bucket, **options)


def _date_source(url: BucketUrl) -> DateSource:
    if url.scheme == "gs":
        return HttpDates("https://storage.googleapis.com")
    if url.scheme == "az":
        return HttpDates(f"https://{quote(url.parameters.get('account_name', ''))}.blob.core.windows.net")
    region = url.parameters.get("region", _REGION_DEFAULT)
    return HttpDates(url.parameters.get("endpoint") or f"https://s3.{quote(region)}.amazonaws.com")
