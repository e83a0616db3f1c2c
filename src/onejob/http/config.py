"""The settings of the service: defaults, checks, and descriptions for docs/settings.md."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, Literal, TypedDict

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.sites import NO_SITES, Sites
from onejob.core.timestamps import parse_duration, to_duration_ms
from onejob.engines import is_multi_process
from onejob.engines.remote.url import is_managers_url, parse_managers_url
from onejob.ledger import URL_DEFAULT
from onejob.ledger.parse import parse_default_windows, parse_retention_ms, said_settings
from onejob.runtime.key_limit import checked_live_keys_max

# What a body may have besides the input: every other member at its longest, escaped in any way.
ENVELOPE_BYTES_MAX: Final = 8192
WORKERS_MAX: Final = 256
BODY_BYTES_MAX: Final = INPUT_BYTES_MAX + ENVELOPE_BYTES_MAX

_SHELL_URL = re.compile(r"https?://[A-Za-z0-9.:/_\[\]-]{1,200}")  # it is pasted into a shell

CallbackScope = Literal["none", "public", "any"]

# The descriptions in docs/settings.md.
JWT_MEANINGS: Final = {
    "algorithms": "the accepted signature algorithms; the header of a token cannot choose another one",
    "secret": "the shared secret of HS256, HS384 or HS512",
    "public_key_file": "a PEM file with the public key, for the other algorithms",
    "issuer": "if set, `iss` must be this",
    "audience": "if set, `aud` must be or contain this",
    "tenant_claim": "the claim that names the tenant; a token without it is refused",
    "roles_claim": "the claim that lists the roles",
}
PROVIDER_MEANINGS: Final = {
    "prepare": "the function to call before a job of this provider may run, e.g. `shop.uploads:prepare`; none unless set"
}
SITES_MEANINGS: Final = {
    "here": "the name of this data centre",
    "delivery": "how long a submission is sent to a site that does not answer; afterwards it is `unknown` there. Keys of "
    "submissions to sites are kept for at least twice as long",
    "ledgers": "the other data centres, by name",
}
SITE_MEANINGS: Final = {
    "managers": "the managers of that ledger, e.g. `https://m1:8002,m2:8002`, with the files for TLS where needed",
    "gate_key": "the credential for them, made there by `onejob gatekey create NAME --site --for-tenant TENANT`; never printed",
    "gate_key_file": "the same, in a file of its own",
    "url": "the address of the service there, e.g. `https://jobs.fra.example`; only shown, in a command that cancels a job there",
}
MEANINGS: Final = {
    "engine": "the URL of the store",
    "host": "the address to listen on; without authentication it must be a loopback address",
    "port": "the port to listen on; 0 lets the system choose",
    "workers": "how many processes share the port; `auto`: one for each available core. With more than one, a supervisor "
    "process restarts workers that exit, and `/metrics` and `/api/stats` show the sums of all. The engine must support "
    "several processes",
    "auth": "whether requests need an API key or a token; without it every client on the machine may do everything",
    "tls_cert": "a PEM file with the certificate and its chain, to serve HTTPS; plain HTTP unless set",
    "tls_key": "a PEM file with the private key of the certificate, without a password",
    "trusted_proxies": "the addresses or networks of reverse proxies whose `X-Forwarded-For` names the client; none unless set",
    "failed_logins_per_minute": "how many requests with an invalid credential one address (IPv6: one /64 network) may send "
    "each minute before they are answered with 429; counted in each process. A valid credential is never refused",
    "jwt": "how bearer tokens are verified; without it only API keys are accepted",
    "mismatch_status": "the status of a key used again for another body: 409, or the 422 of the IETF draft",
    "key_owner": "who shares keys and sees jobs: all users of a `tenant`, or each `user` has its own. The ledger stores it: "
    "a service that says nothing takes it from there, and one that says otherwise does not start (`onejob settings`)",
    "window": "how long a key returns its job if its submission does not say, from `1s` to `365d`; empty: `24h`, and `30d` on a "
    "bucket. The ledger stores it: a service that says nothing takes it from there, and one that says otherwise does not start "
    "(`onejob settings`)",
    "windows": "the same for single job types, as a table of names and windows",
    "job_retention": "how long a job is kept after its end, up to `3650d`, and never deleted before its record; a change "
    "applies to jobs that end afterwards",
    "live_keys_max": "how many keys a tenant may have whose windows are not over; a new key of a tenant that has about as many "
    "is refused with 429 (`QUOTA_EXCEEDED`), a known one is answered as ever. Maintenance counts, so the limit is "
    "exceeded by what half a minute brings. Unlimited unless set; every process that submits has its own",
    "rate_per_second": "how many new submissions of one credential are admitted each second, counted over all "
    "workers; unlimited unless set. Several services on one store count separately",
    "rate_burst": "how many may come at once before the rate applies",
    "cors_origins": "the origins whose pages may call the service; none unless set",
    "body_bytes_max": "the largest body, a larger one is answered with 413; by default an input of 1 MiB and the members "
    "around it",
    "body_seconds_max": "how long a body may take to arrive",
    "head_bytes_max": "the largest head of a request: request line and headers",
    "head_seconds_max": "how long a head may take to arrive",
    "idle_seconds_max": "how long a connection may stay open without a request",
    "drain_seconds_max": "how long requests in flight may take after the shutdown signal",
    "credential_max_age_seconds": "how long an API key that was valid is accepted while the store cannot be reached, so that "
    "what this process remembers is still answered; nothing is created meanwhile. 0: not at all",
    "metrics_open": "whether `/metrics` needs no credential; if not and `auth` is on, it needs the role `metrics` or `admin`",
    "log_requests": "which requests get a log line: all, those that failed (a status from 400), or none",
    "providers": "the providers of cloud jobs, by name",
    "providers_closed": "whether only these providers are accepted",
    "preparation_wait_seconds": "how long a cloud submission waits for its preparation before the response is `uploading`",
    "preparation_seconds_max": "how long a preparation may take before it fails",
    "preparations_max": "how many preparations run at once in this server",
    "callbacks": "whether a submission may name a URL to be called when the job has ended: none, only public "
    "addresses and the ports 80 and 443, or any",
    "hide_payloads": "whether the inputs of jobs and the messages of exceptions, which may repeat them, are hidden from "
    "operators too; workers get the inputs of the jobs that they run in any case",
    "tracing": "whether submissions are traced with OpenTelemetry (`onejob[otel]`), and the trace context of requests and jobs "
    "is kept; a program that sets up OpenTelemetry must start the service, e.g. `opentelemetry-instrument`",
    "sites": "the data centres that a submission may target; none unless set",
    "log_format": "the format of log lines: text, or one JSON object per line",
}


class LedgerOptions(TypedDict):
    """Those arguments of `onejob.open` that the service has settings for."""

    key_owner: str | None
    window: timedelta | None
    windows: dict[str, timedelta]
    retention: timedelta
    live_keys_max: int | None
    sites: Sites


def parse_networks(addresses: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of the setting `trusted_proxies`."""
    try:
        return tuple(map(ip_network, addresses))
    except ValueError as error:
        message = f"trusted_proxies are addresses or networks such as 10.0.0.0/8 ({error}); correct them"
        raise Invalid("trusted_proxies", message) from error


class JwtConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How bearer tokens are verified: by a shared secret or by a public key, never both."""

    algorithms: tuple[str, ...] = ("RS256",)
    secret: str | None = None
    public_key_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"


class ProviderConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider of cloud jobs."""

    prepare: str | None = None  # module:function


class SiteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ledger of another data centre."""

    managers: str
    gate_key: str | None = None
    gate_key_file: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if not is_managers_url(self.managers):
            raise Invalid("sites", "a site is named by its managers, e.g. https://m1:8002,m2:8002; write them")
        parse_managers_url(self.managers)
        if self.gate_key is not None and self.gate_key_file is not None:
            raise Invalid("sites", "a site has a gate_key or a gate_key_file; give one of them")
        if self.url is not None and not _SHELL_URL.fullmatch(self.url):
            raise Invalid(
                "sites", "the url of a site is that of its service, e.g. https://jobs.fra.example; correct it"
            )

    def read_gate_key(self) -> str:
        """Read again for every connection, so that a rotated one is found."""
        if self.gate_key_file is not None:
            return Path(self.gate_key_file).read_text().strip()
        return self.gate_key or ""

    def __repr__(self) -> str:
        return "SiteConfig(...)"  # it has a credential


class SitesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This data centre and the others."""

    here: str
    delivery: str = "3d"
    ledgers: dict[str, SiteConfig] = {}

    def to_sites(self) -> Sites:
        delivery_ms = to_duration_ms("sites", parse_duration("sites", self.delivery))
        urls = {name: site.url for name, site in self.ledgers.items() if site.url}
        return Sites(here=self.here, others=tuple(self.ledgers), delivery_ms=delivery_ms, urls=urls)


class ServiceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engine: str = URL_DEFAULT
    host: str = "127.0.0.1"
    port: int = 8001
    workers: int | Literal["auto"] = 1
    auth: bool = False  # without it: loopback only, and every client has every role
    tls_cert: str | None = None
    tls_key: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    failed_logins_per_minute: int = 60
    jwt: JwtConfig | None = None
    mismatch_status: Literal[409, 422] = 409
    key_owner: Literal["tenant", "user"] | None = None  # None: as the ledger says
    window: str = ""  # empty: the engine's own
    windows: dict[str, str] = {}  # by job type
    job_retention: str = "7d"
    live_keys_max: int | None = None  # of one tenant; None: unlimited
    rate_per_second: float | None = None  # new submissions of one credential; None: unlimited
    rate_burst: int = 100
    cors_origins: tuple[str, ...] = ()
    body_bytes_max: int = BODY_BYTES_MAX
    body_seconds_max: float = 30.0
    head_bytes_max: int = 16_384
    head_seconds_max: float = 10.0
    idle_seconds_max: float = 75.0
    drain_seconds_max: float = 20.0  # on SIGTERM: how long requests in flight may take
    credential_max_age_seconds: float = 0.0  # 0: an API key is read from the store for every request
    metrics_open: bool = False
    log_requests: Literal["all", "failed", "none"] = "failed"
    providers: dict[str, ProviderConfig] = {}
    providers_closed: bool = False
    preparation_wait_seconds: float = 110.0  # the clients of the cloud contract wait for 120
    preparation_seconds_max: float = 6 * 3600.0
    preparations_max: int = 100
    callbacks: CallbackScope = "none"
    hide_payloads: bool = False
    tracing: bool = False
    sites: SitesConfig | None = None
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        if self.jwt is not None and not self.auth:
            raise Invalid("jwt", "jwt is configured but auth is off; set auth = true")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Invalid("tls_cert", "tls_cert and tls_key belong together; set both, or neither")
        parse_networks(self.trusted_proxies)
        self.ledger_options()
        for name in ("body_seconds_max", "head_seconds_max", "idle_seconds_max", "drain_seconds_max"):
            if not 0 < getattr(self, name) <= 3600:
                raise Invalid(name, f"{name} is a number of seconds above 0 up to 3600; choose one")
        for name, longest in (("preparation_wait_seconds", 3600), ("preparation_seconds_max", 30 * 86_400)):
            if not 0 < getattr(self, name) <= longest:
                raise Invalid(name, f"{name} is a number of seconds above 0 up to {longest}; choose one")
        for name, most in (
            ("preparations_max", 10_000),
            ("body_bytes_max", BODY_BYTES_MAX),
            ("head_bytes_max", 1 << 20),
            ("rate_burst", 10**9),
            ("failed_logins_per_minute", 10**9),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise Invalid(name, f"{name} is a whole number from 1 to {most}; choose one")
        if not 0 <= self.credential_max_age_seconds <= 86_400:
            message = "credential_max_age_seconds is a number of seconds from 0 to 86400; choose one"
            raise Invalid("credential_max_age_seconds", message)
        if self.rate_per_second is not None and not 0 < self.rate_per_second <= 1e9:
            raise Invalid("rate_per_second", "rate_per_second is a number above 0; choose one, or leave it out")
        if self.workers != "auto" and not 1 <= self.workers <= WORKERS_MAX:
            raise Invalid("workers", f"workers is a number from 1 to {WORKERS_MAX}, or auto; choose one")
        if self.workers not in (1, "auto") and not is_multi_process(self.engine):
            raise Invalid(
                "workers",
                f"{self.engine} supports one process only; leave workers at 1, or choose an engine that several "
                "processes can share, e.g. sqlite:///onejob.db",
            )
        if not 0 <= self.port <= 65_535:
            raise Invalid("port", "port is a number from 0 to 65535; choose one")

    def ledger_options(self) -> LedgerOptions:
        """The arguments of `onejob.open` that these settings stand for; raises Invalid for a wrong one."""
        window = parse_duration("window", self.window) if self.window else None
        retention = parse_duration("job_retention", self.job_retention)
        windows = {type: parse_duration("windows", text) for type, text in self.windows.items()}
        parse_default_windows(window, windows)
        parse_retention_ms("job_retention", retention)
        live_keys_max = checked_live_keys_max(self.live_keys_max)
        sites = NO_SITES if self.sites is None else self.sites.to_sites()
        return LedgerOptions(
            key_owner=self.key_owner,
            window=window,
            windows=windows,
            retention=retention,
            live_keys_max=live_keys_max,
            sites=sites,
        )

    def said_settings(self) -> dict[str, object]:
        """The settings of the ledger that this configuration names."""
        return said_settings(self.key_owner, parse_duration("window", self.window) if self.window else None)
