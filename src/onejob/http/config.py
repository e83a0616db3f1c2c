"""The settings of the service, checked once: from a TOML file, ONEJOB_* variables and the command line."""

from typing import Literal

from msgspec import Struct

from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.invalid import Invalid
from onejob.opening import URL_DEFAULT


class JwtConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How bearer tokens are checked. Either a shared secret or a public key, never both."""

    algorithms: tuple[str, ...] = ("RS256",)
    secret: str | None = None
    public_key_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"


class ServiceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engine: str = URL_DEFAULT
    host: str = "127.0.0.1"
    port: int = 8001
    auth: bool = False  # without it: loopback only, and everybody there may do everything
    jwt: JwtConfig | None = None
    mismatch_status: Literal[409, 422] = 409
    key_owner: Literal["tenant", "user"] = "tenant"
    rate_per_second: float | None = None  # new submissions of one credential; None: unlimited
    rate_burst: int = 100
    cors_origins: tuple[str, ...] = ()
    body_bytes_max: int = INPUT_BYTES_MAX
    body_seconds_max: float = 30.0
    head_bytes_max: int = 16_384
    head_seconds_max: float = 10.0
    idle_seconds_max: float = 75.0
    drain_seconds_max: float = 20.0  # on SIGTERM: how long what is in flight may take
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        if self.jwt is not None and not self.auth:
            raise Invalid("jwt", "jwt is configured but auth is off; set auth = true")
        for name in ("body_seconds_max", "head_seconds_max", "idle_seconds_max", "drain_seconds_max"):
            if not 0 < getattr(self, name) <= 3600:
                raise Invalid(name, f"{name} is a number of seconds above 0 up to 3600; choose one")
        for name, most in (
            ("body_bytes_max", INPUT_BYTES_MAX),
            ("head_bytes_max", 1 << 20),
            ("rate_burst", 10**9),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise Invalid(name, f"{name} is a whole number from 1 to {most}; choose one")
        if self.rate_per_second is not None and not 0 < self.rate_per_second <= 1e9:
            raise Invalid(
                "rate_per_second", "rate_per_second is a number above 0; choose one, or leave it out"
            )
        if not 0 <= self.port <= 65_535:
            raise Invalid("port", "port is a number from 0 to 65535; choose one")
