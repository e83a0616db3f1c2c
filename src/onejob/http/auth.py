"""Authentication: API keys and bearer tokens (JWT), checked for every request.

An API key is read from the store for each request, so a revocation by any process holds for the next request; only
what follows from it is cached. Whatever is wrong with a credential, the response is the same 401: a difference would
help an attacker to guess.

`Authenticator` is the plain way: it reads the key before the request is handled. `OptimisticAuth` is its fast path
for submissions. `FailedLogins` throttles addresses that send invalid credentials; valid ones are accepted from there too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.addresses import network_of, parse_ip
from onejob.clock import SystemClock
from onejob.core.credentials import API_KEY_PREFIX, Permission, Role, has_permission, is_unchanged
from onejob.core.errors import Invalid
from onejob.core.fingerprint import check_strict_json
from onejob.core.identity import Actor, api_key_user, checked_name, checked_token_user
from onejob.errors import Reason, SubmissionRefused, Unavailable, Unknown
from onejob.ledger import Ledger
from onejob.ledger.api_keys import ApiKeys, VerifiedKey
from onejob.ledger.base import runtime_of
from onejob.ledger.service import ServiceLedger
from onejob.ledger.sessions import Sessions
from onejob.runtime.callers import Caller
from onejob.runtime.rate_limit import RateLimiter

from .config import JwtConfig, ServiceConfig, parse_networks
from .problems import LoginThrottled, Unauthorized
from .request import Credential, Request, Scope
from .responses import Header, Response
from .routing import Route
from .session_cookies import read_cookie

TOKEN_CHARS_MAX = 8192
CACHED_CREDENTIALS_MAX = 1024
KEY_FILE_BYTES_MAX = 65_536
THROTTLED_ADDRESSES_MAX = 10_000
RSA_BITS_MIN = 2048
NUMERIC_DATE_MAX = 253_402_300_800  # the year 10000
# A shared secret has at least the bytes of the digest (RFC 7518, 3.2).
SECRET_BYTES_MIN = {"HS256": 32, "HS384": 48, "HS512": 64}
PUBLIC_KEY_ALGORITHMS = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)) | {
    "EdDSA"
}

_ROLE_BY_NAME = {role.value: role for role in Role}

# The credential of a request; raises Unauthorized if there is none that is valid.
Authenticate = Callable[[Scope], Awaitable[Credential]]


class CachedCredential(NamedTuple):
    """A credential that was valid lately, and the API key that it must be checked by."""

    key: VerifiedKey
    credential: Credential


class Authenticator:
    """Reads `Authorization: Bearer …` or `X-Api-Key: …`."""

    def __init__(self, ledger: Ledger, config: ServiceConfig) -> None:
        self._keys = ApiKeys(ledger)
        self.sessions = Sessions(ledger)
        self._jwt_verifier = JwtVerifier(config.jwt) if config.jwt is not None else None
        self._bind = runtime_of(ledger).bind
        self._read_now = runtime_of(ledger).gate.read_now
        self._failed_logins = FailedLogins(config, SystemClock().monotonic)
        self._once_valid: set[bytes] = set()  # digests of credentials that were, and may be no longer
        self._cache: dict[bytes, CachedCredential] = {}  # by a digest of the header: no secret stays in memory
        self._found_this_iteration: dict[Header, Credential] = {}
        self.max_age_seconds = config.credential_max_age_seconds
        self._valid_at: dict[bytes, float] = {}  # when a cached credential was last read from the store
        self._monotonic = SystemClock().monotonic

    @property
    def reads_are_synchronous(self) -> bool:
        """True if an API key is read without waiting."""
        return self._keys.reads_are_synchronous

    async def __call__(self, scope: Scope) -> Credential:
        header = _credential_header(scope["headers"])
        if header is None:
            return await self._verify_session(scope)
        found = self._found_this_iteration.get(header)
        if found is not None:
            return found
        digest = _digest(header)
        cached = self._cache.get(digest)
        if cached is not None:
            asked_at = self._monotonic()
            replies = self._read_now((cached.key.lookup,))
            if replies is not None and is_unchanged(replies[0], cached.key.precondition):
                self._valid_at[digest] = asked_at
                self._share_in_iteration(header, cached.credential)
                return cached.credential
            if await self._is_still_valid(cached, digest):
                return cached.credential
        try:
            return await self._verify(header, digest)
        except Unauthorized as error:
            if digest in self._once_valid:
                raise  # whoever sends a revoked key does not guess
            raise self._failed_logins.count(scope) or error from None

    def _share_in_iteration(self, header: Header, credential: Credential) -> None:
        """Requests that arrived together are checked together: those of a later loop iteration are checked again."""
        if not self._found_this_iteration:
            asyncio.get_running_loop().call_soon(self._found_this_iteration.clear)
        self._found_this_iteration[header] = credential

    async def _is_still_valid(self, cached: CachedCredential, digest: bytes) -> bool:
        """True if the key is unchanged. If the store cannot be reached, it is trusted for the configured time and no longer."""
        asked_at = self._monotonic()
        try:
            is_valid = await self._keys.is_still_valid(cached.key)
        except Unavailable:
            if asked_at - self._valid_at.get(digest, float("-inf")) >= self.max_age_seconds:
                raise
            return True
        self._valid_at[digest] = asked_at
        return is_valid

    async def _verify(self, header: Header, digest: bytes) -> Credential:
        text = _credential_text(*header)
        if not text or len(text) > TOKEN_CHARS_MAX:
            raise unauthorized_error()
        if self._jwt_verifier is not None and not text.startswith(API_KEY_PREFIX):
            return self._bound(self._jwt_verifier.verify(text))
        return await self._verify_api_key(text, digest)

    async def _verify_session(self, scope: Scope) -> Credential:
        text = read_cookie(scope)
        session = None if text is None else await self.sessions.verify(text)
        if session is None:
            raise unauthorized_error()
        oversees = has_permission(session.roles, Permission.OVERSEE)
        caller = replace(session.caller, oversees=oversees)
        return self._bound(Credential(caller, session.roles, session.name))

    def _bound(self, credential: Credential) -> Credential:
        """The credential of a caller under the settings of the ledger."""
        return replace(credential, caller=self._bind(credential.caller))

    def token_expiry_ms(self, token: str) -> int:
        """When a bearer token that was verified ends."""
        assert self._jwt_verifier is not None
        return self._jwt_verifier.expiry_ms(token)

    def unchecked_credential(self, scope: Scope) -> CachedCredential | None:
        """A credential that was valid lately and may be revoked by now."""
        header = _credential_header(scope["headers"])
        return None if header is None else self._cache.get(_digest(header))

    async def _verify_api_key(self, text: str, digest: bytes) -> Credential:
        if self._cache.pop(digest, None) is not None:
            self._once_valid.add(digest)
        asked_at = self._monotonic()
        verified = await self._keys.verify(text)
        if verified is None:
            raise unauthorized_error()
        key = verified.key
        credential = build_credential(
            verified.tenant,
            key.user or api_key_user(key.name),
            Actor.client(key.name),
            frozenset(key.roles),
            name=key.name,
        )
        credential = self._bound(credential)
        if len(self._cache) >= CACHED_CREDENTIALS_MAX:
            self._cache.clear()
            self._valid_at.clear()
        if len(self._once_valid) >= CACHED_CREDENTIALS_MAX:
            self._once_valid.clear()
        self._cache[digest] = CachedCredential(verified, credential)
        self._valid_at[digest] = asked_at
        return credential


class FailedLogins:
    """Counts invalid credentials by the address of their sender."""

    def __init__(self, config: ServiceConfig, monotonic: Callable[[], float]) -> None:
        limit = config.failed_logins_per_minute
        self._trusted_proxies = parse_networks(config.trusted_proxies)
        self._limiter = RateLimiter(
            per_second=limit / 60, burst=limit, monotonic=monotonic, buckets_max=THROTTLED_ADDRESSES_MAX
        )

    def count(self, scope: Scope) -> LoginThrottled | None:
        """Count one; the error that the client gets instead of its 401 if its address has sent too many."""
        bucket_key = ("", client_network(scope, self._trusted_proxies))
        if self._limiter.take(bucket_key, 1):
            return None
        seconds = self._limiter.retry_after(bucket_key)
        return LoginThrottled(
            f"too many invalid credentials from this address; use a valid one, or wait {seconds} s", seconds
        )


def client_network(scope: Scope, trusted_proxies: Iterable[IPv4Network | IPv6Network]) -> str:
    """The address of the client, or its /64 network: a client that has one IPv6 address has all of its network.

    `X-Forwarded-For` is read from the right, as far as it was written by trusted proxies.
    """
    client = scope.get("client")
    address = parse_ip(client[0]) if client else None
    if address is None:
        return ""
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    forwarded = b",".join(lines).decode("latin-1").split(",")
    while forwarded and any(address in network for network in trusted_proxies):
        previous = parse_ip(forwarded.pop().strip())
        if previous is None:
            break
        address = previous
    return network_of(address)


class OptimisticAuth:
    """A fast path: the engine checks the API key of a submission in the statement that stores it.

    The plain way (`Authenticator`, then the handler) costs two round trips to PostgreSQL. Here the submission carries
    the key, as it was last read, as a precondition, and a key that has changed since fails it. That saves 60 of the
    270 µs of processor time of a new submission (decision 23). Equivalence test: tests/http/test_optimistic_auth.py.
    """

    def __init__(self, authenticator: Authenticator, ledger: Ledger) -> None:
        self._authenticator = authenticator
        self._ledger_for = lru_cache(CACHED_CREDENTIALS_MAX)(ServiceLedger.of(ledger).for_caller)

    async def respond_fast(self, route: Route, request: Request) -> Response | None:
        """The response, or None: then the request is to be answered in the plain way."""
        if not route.optimistic_auth or not request.body_is_complete or request.scope["query_string"]:
            return None
        cached = self._authenticator.unchecked_credential(request.scope)
        if cached is None or not cached.credential.may(Permission.SUBMIT) or (body := request.buffered_body()) is None:
            return None
        request.buffered_body = partial(bytes, body)  # the plain way may need it again
        request.credential = cached.credential
        request.ledger = self._ledger_for(cached.credential.caller)
        request.precondition = cached.key.precondition
        try:
            return await route.handler(request)
        except Unknown:
            raise
        except Unavailable:
            if not self._authenticator.max_age_seconds:
                raise
            request.precondition = None
            return None  # nothing was done, and what is remembered may be answered in the plain way
        except Exception as error:
            if isinstance(error, SubmissionRefused) and error.reason is Reason.CREDENTIAL_CHANGED:
                request.precondition = None
                return None
            await self._authenticator(request.scope)  # a client with a revoked key gets 401 and learns nothing else
            raise


def optimistic_auth_for(authenticate: Authenticate, ledger: Ledger) -> OptimisticAuth | None:
    """None where the plain way is as fast, because the engine answers point reads without waiting."""
    if isinstance(authenticate, Authenticator) and not authenticate.reads_are_synchronous:
        return OptimisticAuth(authenticate, ledger)
    return None


class JwtVerifier:
    """Verifies bearer tokens with the algorithms and the one key of the settings."""

    def __init__(self, config: JwtConfig) -> None:
        import jwt
        from jwt.utils import base64url_decode

        self._config = config
        self._key: Any = _load_verification_key(config)
        self._options: dict[str, Any] = {
            "require": ["exp", "sub"],
            "verify_aud": config.audience is not None,
            # The time of issue decides nothing, and the clock of the issuer may be a little ahead.
            "verify_iat": False,
        }
        self._decode: Any = jwt.decode
        self._decode_segment: Callable[[str], bytes] = base64url_decode
        self._error = jwt.PyJWTError

    def verify(self, token: str) -> Credential:
        claims = self._decode_claims(token)
        try:
            tenant = checked_name("tenant", claims[self._config.tenant_claim])
            user = checked_token_user(claims["sub"])
        except (KeyError, Invalid):
            raise unauthorized_error() from None
        roles = _parse_roles(claims.get(self._config.roles_claim))
        return build_credential(tenant, user, Actor.user(user), roles, name=user)

    def expiry_ms(self, token: str) -> int:
        return int(self._decode_claims(token)["exp"] * 1000)

    def _decode_claims(self, token: str) -> dict[str, Any]:
        config = self._config
        try:
            claims: dict[str, Any] = self._decode(
                token,
                self._key,
                algorithms=list(config.algorithms),
                audience=config.audience,
                issuer=config.issuer,
                options=self._options,
            )
            # Of two claims of one name another service may read the other one.
            for segment in token.split(".")[:2]:
                check_strict_json(self._decode_segment(segment))
            _check_dates(claims)
        # A text that makes the parser fail in any of these ways is not a token.
        except (self._error, Invalid, ValueError, TypeError, OverflowError, RecursionError):
            raise unauthorized_error() from None
        return claims


def _digest(header: Header) -> bytes:
    return sha256(b"%b:%b" % header).digest()


def unauthorized_error() -> Unauthorized:
    return Unauthorized("send `Authorization: Bearer …` with an API key or a token that is valid here")


def _credential_header(headers: Iterable[Header]) -> Header | None:
    """The one header with a credential. Of two it is not guessed which one is meant."""
    sent = [header for header in headers if header[0] in (b"authorization", b"x-api-key")]
    if len(sent) > 1:
        raise Invalid("Authorization", "there are two credentials; send one Authorization or one X-Api-Key header")
    return sent[0] if sent else None


def _credential_text(name: bytes, value: bytes) -> str | None:
    text = value.decode("latin-1").strip(" \t")
    if name == b"x-api-key":
        return text if text.startswith(API_KEY_PREFIX) else None
    scheme, _, rest = text.partition(" ")
    return rest.lstrip(" ") if scheme.lower() == "bearer" else None


def build_credential(tenant: str, user: str, actor: Actor, roles: frozenset[Role], *, name: str) -> Credential:
    """Where each user has its own keys, it takes the OVERSEE permission to see the keys and jobs of others."""
    caller = Caller(tenant, user, str(actor), oversees=has_permission(roles, Permission.OVERSEE))
    return Credential(caller, roles, name)


def _check_dates(claims: dict[str, Any]) -> None:
    """Dates are numbers (RFC 7519, 2) of the years until 9999: the verifier rounds, and takes text for a number."""
    for name in ("exp", "nbf", "iat"):
        date = claims.get(name, 0)
        if type(date) not in (int, float) or not abs(date) < NUMERIC_DATE_MAX:
            raise ValueError(f"{name} is not a date")


def _parse_roles(claim: Any) -> frozenset[Role]:
    """The claim is a list of names, or one string with spaces between them; unknown names are ignored."""
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list):
        return frozenset()
    return frozenset(_ROLE_BY_NAME[word] for word in words if isinstance(word, str) and word in _ROLE_BY_NAME)


def _load_verification_key(config: JwtConfig) -> Any:
    """The key of the configured algorithms; a contradiction in the settings stops the start."""
    names = set(config.algorithms)
    if not names or not (names <= SECRET_BYTES_MIN.keys() or names <= PUBLIC_KEY_ALGORITHMS):
        raise Invalid(
            "jwt.algorithms",
            "jwt.algorithms are HS256, HS384, HS512 with a secret, or RS…, PS…, ES… and EdDSA with a public key;"
            " choose from one kind",
        )
    if (config.secret is None) == (config.public_key_file is None):
        raise Invalid("jwt", "bearer tokens need either jwt.secret or jwt.public_key_file; set one of them")
    if config.secret is not None:
        return _checked_secret(config.secret, names)
    assert config.public_key_file is not None
    return _load_public_key(config.public_key_file, names)


def _checked_secret(secret: str, names: set[str]) -> bytes:
    if not names <= SECRET_BYTES_MIN.keys():
        raise Invalid("jwt.secret", "jwt.secret is for HS… algorithms; set jwt.public_key_file instead")
    least = max(SECRET_BYTES_MIN[name] for name in names)
    key = secret.encode()
    if len(key) < least:
        raise Invalid("jwt.secret", f"jwt.secret has fewer than {least} bytes; draw a longer one")
    return key


def _load_public_key(file: str, names: set[str]) -> Any:
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if not names <= PUBLIC_KEY_ALGORITHMS:
        raise Invalid("jwt.public_key_file", "HS… algorithms take jwt.secret; set it instead of the file")
    try:
        data = Path(file).read_bytes()[:KEY_FILE_BYTES_MAX]
        key = load_pem_public_key(data)
        for name in names:
            # Each algorithm must accept the key; PyJWT makes the same check when it verifies.
            jwt.get_algorithm_by_name(name).prepare_key(key)
    except OSError as error:
        raise Invalid("jwt.public_key_file", f"{error}; name a file that can be read") from error
    except Exception as error:
        raise Invalid(
            "jwt.public_key_file",
            f"the file has no public key in PEM form for {', '.join(sorted(names))} ({error}); put one there",
        ) from error
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise Invalid("jwt.public_key_file", f"an RSA key has at least {RSA_BITS_MIN} bits; make a longer one")
    return key
