"""Who asks: an API key or a bearer token (JWT), found out anew for every request.

What an API key may is read for every request, so a revocation made by any process holds for the next one; only
what follows from it is worked out once. All that is wrong with a credential is answered in one way, for the
difference would help only whoever guesses.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from onejob.core.command import Precondition
from onejob.core.credentials import API_KEY_PREFIX, Permission, Role, has_permission
from onejob.core.errors import Invalid
from onejob.core.identity import Actor, checked_name
from onejob.ledger import Ledger
from onejob.ledger.api_keys import ApiKeys, VerifiedKey
from onejob.ledger.parse import Caller

from .config import JwtConfig, ServiceConfig
from .problems import Unauthorized
from .request import Credential, Scope
from .responses import Header

TOKEN_CHARS_MAX = 8192
CACHED_CREDENTIALS_MAX = 1024
KEY_FILE_BYTES_MAX = 65_536
RSA_BITS_MIN = 2048
# A shared secret has at least the bytes of the digest (RFC 7518, 3.2).
SECRET_BYTES_MIN = {"HS256": 32, "HS384": 48, "HS512": 64}
PUBLIC_KEY_ALGORITHMS = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)) | {
    "EdDSA"
}

_ROLE_BY_NAME = {role.value: role for role in Role}


class OptimisticAuth(NamedTuple):
    """Who asks, if the warrant still stands: whoever acts on it hands the warrant to what decides."""

    credential: Credential
    precondition: Precondition


class Authenticator:
    """Reads `Authorization: Bearer …` or `X-Api-Key: …`; raises Unauthorized where nobody can tell."""

    def __init__(self, ledger: Ledger, config: ServiceConfig) -> None:
        self._keys = ApiKeys(ledger)
        self._jwt_verifier = JwtVerifier(config.jwt) if config.jwt is not None else None
        self._owns_keys = config.key_owner == "user"
        # By a digest of the header: no secret stands in memory.
        self._cached_credentials: dict[bytes, tuple[VerifiedKey, Credential]] = {}

    @property
    def reads_are_asynchronous(self) -> bool:
        """Whether a look at a credential takes longer than the blink of an eye."""
        return not self._keys.reads_are_synchronous

    def authenticate_optimistically(self, scope: Scope, act: Permission) -> OptimisticAuth | None:
        """A credential that was known lately and might do this, not looked at again."""
        header = _credential_header(scope["headers"])
        known = None if header is None else self._cached_credentials.get(_digest(header))
        if known is None or not known[1].may(act):
            return None
        return OptimisticAuth(known[1], known[0].precondition)

    async def __call__(self, scope: Scope) -> Credential:
        header = _credential_header(scope["headers"])
        if header is None:
            raise unauthorized_error()
        digest = _digest(header)
        known = self._cached_credentials.get(digest)
        if known is not None and await self._keys.is_still_valid(known[0]):
            return known[1]
        text = _credential_text(*header)
        if not text or len(text) > TOKEN_CHARS_MAX:
            raise unauthorized_error()
        if self._jwt_verifier is not None and not text.startswith(API_KEY_PREFIX):
            return self._jwt_verifier.verify(text, owns_keys=self._owns_keys)
        return await self._verify_api_key(text, digest)

    async def _verify_api_key(self, text: str, digest: bytes) -> Credential:
        self._cached_credentials.pop(digest, None)
        found = await self._keys.verify(text)
        if found is None:
            raise unauthorized_error()
        key = found.key
        credential = build_credential(
            found.tenant,
            key.user or key.name,
            Actor.client(key.name),
            frozenset(key.roles),
            name=key.name,
            owns_keys=self._owns_keys,
        )
        if len(self._cached_credentials) >= CACHED_CREDENTIALS_MAX:
            self._cached_credentials.clear()
        self._cached_credentials[digest] = found, credential
        return credential


class JwtVerifier:
    """Checks bearer tokens by the algorithms and the one key that the settings name."""

    def __init__(self, config: JwtConfig) -> None:
        import jwt

        self._config = config
        self._key: Any = _load_verification_key(config)
        self._options: dict[str, Any] = {
            "require": ["exp", "sub"],
            "verify_aud": config.audience is not None,
            # When it was issued decides nothing; an issuer whose clock is a little ahead is no intruder.
            "verify_iat": False,
        }
        self._decode: Any = jwt.decode
        self._error = jwt.PyJWTError

    def verify(self, token: str, *, owns_keys: bool) -> Credential:
        claims = self._decode_claims(token)
        try:
            tenant = checked_name("tenant", claims[self._config.tenant_claim])
            user = checked_name("user", claims["sub"])
        except (KeyError, Invalid):
            raise unauthorized_error() from None
        roles = _parse_roles(claims.get(self._config.roles_claim))
        return build_credential(tenant, user, Actor.user(user), roles, name=user, owns_keys=owns_keys)

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
        # Whatever a stranger's text makes the parser stumble over, it is no token.
        except (self._error, ValueError, TypeError, OverflowError, RecursionError):
            raise unauthorized_error() from None
        return claims


def _digest(header: Header) -> bytes:
    return sha256(b"%b:%b" % header).digest()


def unauthorized_error() -> Unauthorized:
    return Unauthorized("send `Authorization: Bearer …` with an API key or a token that is valid here")


def _credential_header(headers: Iterable[Header]) -> Header | None:
    """The header with the credential; two of them are a mistake that must not be guessed at."""
    found = [pair for pair in headers if pair[0] in (b"authorization", b"x-api-key")]
    if len(found) > 1:
        raise Invalid("Authorization", "there are two credentials; send one Authorization or one X-Api-Key header")
    return found[0] if found else None


def _credential_text(name: bytes, value: bytes) -> str | None:
    text = value.decode("latin-1").strip(" \t")
    if name == b"x-api-key":
        return text if text.startswith(API_KEY_PREFIX) else None
    scheme, _, rest = text.partition(" ")
    return rest.lstrip(" ") if scheme.lower() == "bearer" else None


def build_credential(
    tenant: str, user: str, actor: Actor, roles: frozenset[Role], *, name: str, owns_keys: bool
) -> Credential:
    """Where each user has its own keys, only who oversees them sees those of others, and their jobs."""
    oversees = not owns_keys or has_permission(roles, Permission.OVERSEE)
    return Credential(Caller(tenant, user, str(actor), owns_keys, oversees), roles, name)


def _parse_roles(claim: Any) -> frozenset[Role]:
    """A list of words, or one text with spaces between; a word that is no role of ours gives nothing."""
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list):
        return frozenset()
    return frozenset(_ROLE_BY_NAME[word] for word in words if isinstance(word, str) and word in _ROLE_BY_NAME)


def _load_verification_key(config: JwtConfig) -> Any:
    """The key of the configured algorithms; what cannot be meant stops the start."""
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
            # The key must be of the kind that each algorithm takes; this is the check that PyJWT makes itself.
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
