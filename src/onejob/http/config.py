"""The settings of the service, checked once: from a TOML file, ONEJOB_* variables and the command line."""

from typing import Final, Literal

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.engines import is_multi_process
from onejob.ledger.opening import URL_DEFAULT

# What may stand around an input: every other member at its longest, however it is escaped.
ENVELOPE_BYTES_MAX: Final = 8192
WORKERS_MAX: Final = 256
BODY_BYTES_MAX: Final = INPUT_BYTES_MAX + ENVELOPE_BYTES_MAX

# What docs/settings.md says of each.
JWT_MEANINGS: Final = {
    "algorithms": "what may sign a token; nothing else is taken, whatever its header says",
    "secret": "the shared secret of HS256, HS384 or HS512",
    "public_key_file": "a file with the public key, in PEM form, of the other algorithms",
    "issuer": "if set, `iss` must be this",
    "audience": "if set, `aud` must be or contain this",
    "tenant_claim": "the claim that names the tenant; a token without it is refused",
    "roles_claim": "the claim that lists the roles",
}
PROVIDER_MEANINGS: Final = {
    "prepare": "what is done before a job of this provider may run, as `module:function`; nothing unless set",
}
MEANINGS: Final = {
    "engine": "where decisions happen",
    "host": "the address to listen on; without authentication only a loopback one",
    "port": "the port to listen on; 0 lets the system choose",
    "workers": "how many processes share the port; `auto`: one for each core that may be used. With more than one, one "
    "more watches over them: it starts a worker again when it dies, and `/metrics` and `/api/stats` tell the sums of "
    "all. The engine must be one that processes share",
    "auth": "whether callers must show an API key or a token; without it everybody on the machine may do everything",
    "jwt": "how bearer tokens are checked; without it only API keys are taken",
    "mismatch_status": "the status of a key used again for another body: 409, or the 422 of the IETF draft",
    "key_owner": "who shares keys and sees jobs: all users of a tenant, or each `user` has its own",
    "rate_per_second": "how many new submissions of one credential are admitted each second, counted by all "
    "workers together; unlimited unless set. Several services on one store count each for itself",
    "rate_burst": "how many may come at once before that rate holds",
    "cors_origins": "the origins whose pages may call the service; none unless named",
    "body_bytes_max": "the largest body, a larger one is answered with 413; by default an input of 1 MiB and what "
    "stands around it",
    "body_seconds_max": "how long a body may take to arrive",
    "head_bytes_max": "the largest head of a request: its line and its headers",
    "head_seconds_max": "how long a head may take to arrive",
    "idle_seconds_max": "how long a connection may stay open without a request",
    "drain_seconds_max": "how long what is in flight may take after the service was told to stop",
    "metrics_open": "whether `/metrics` needs no credential; if not, it is for administrators",
    "log_requests": "which requests get a log line: all, those that failed (a status from 400), or none",
    "providers": "what is known of the providers of cloud jobs, by name",
    "providers_closed": "whether only the providers named there are taken",
    "preparation_wait_seconds": "how long a cloud submission waits for its preparation before it is told `uploading`",
    "preparation_seconds_max": "how long a preparation may take; one that takes longer has failed",
    "preparations_max": "how many preparations this server does at once",
    "callbacks": "whether submissions may name a URL that is told when the job has ended: none, those with a public "
    "address, or any",
    "log_format": "how log lines are written: for people, or one JSON object each",
}


class JwtConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How bearer tokens are checked. Either a shared secret or a public key, never both."""

    algorithms: tuple[str, ...] = ("RS256",)
    secret: str | None = None
    public_key_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"


class ProviderConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where jobs of the cloud contract go."""

    prepare: str | None = None  # module:function


class ServiceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engine: str = URL_DEFAULT
    host: str = "127.0.0.1"
    port: int = 8001
    workers: int | Literal["auto"] = 1
    auth: bool = False  # without it: loopback only, and everybody there may do everything
    jwt: JwtConfig | None = None
    mismatch_status: Literal[409, 422] = 409
    key_owner: Literal["tenant", "user"] = "tenant"
    rate_per_second: float | None = None  # new submissions of one credential; None: unlimited
    rate_burst: int = 100
    cors_origins: tuple[str, ...] = ()
    body_bytes_max: int = BODY_BYTES_MAX
    body_seconds_max: float = 30.0
    head_bytes_max: int = 16_384
    head_seconds_max: float = 10.0
    idle_seconds_max: float = 75.0
    drain_seconds_max: float = 20.0  # on SIGTERM: how long what is in flight may take
    metrics_open: bool = True
    log_requests: Literal["all", "failed", "none"] = "failed"
    providers: dict[str, ProviderConfig] = {}
    providers_closed: bool = False
    preparation_wait_seconds: float = 110.0  # the clients of the contract wait for 120
    preparation_seconds_max: float = 6 * 3600.0
    preparations_max: int = 100
    callbacks: Literal["none", "public", "any"] = "none"
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        if self.jwt is not None and not self.auth:
            raise Invalid("jwt", "jwt is configured but auth is off; set auth = true")
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
        ):
            if not 1 <= getattr(self, name) <= most:
                raise Invalid(name, f"{name} is a whole number from 1 to {most}; choose one")
        if self.rate_per_second is not None and not 0 < self.rate_per_second <= 1e9:
            raise Invalid("rate_per_second", "rate_per_second is a number above 0; choose one, or leave it out")
        if self.workers != "auto" and not 1 <= self.workers <= WORKERS_MAX:
            raise Invalid("workers", f"workers is a number from 1 to {WORKERS_MAX}, or auto; choose one")
        if self.workers not in (1, "auto") and not is_multi_process(self.engine):
            raise Invalid(
                "workers",
                f"{self.engine} lives in one process; leave workers at 1, or choose an engine that processes share, "
                "as sqlite:///onejob.db",
            )
        if not 0 <= self.port <= 65_535:
            raise Invalid("port", "port is a number from 0 to 65535; choose one")
