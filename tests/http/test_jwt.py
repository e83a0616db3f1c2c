"""Bearer tokens: accepted with all claims and by the configured key and algorithms, otherwise refused."""

import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onejob
from onejob.core import identity
from onejob.core.credentials import Role
from onejob.http.auth import JwtVerifier
from onejob.http.config import JwtConfig
from onejob.http.problems import Unauthorized

from .auth_server import JWT, SECRET, token, unsigned_token


def is_accepted(tokens: JwtVerifier, text: str) -> bool:
    try:
        tokens.verify(text)
    except Unauthorized:
        return False
    return True


NO_DATES = (1e308, -1e308, 10**18, 10**400, 253_402_300_800, float("nan"), float("-inf"), "4000000000", True, [4e9])


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"exp": None}, False),
        ({"exp": "soon"}, False),
        ({"exp": float("inf")}, False),
        ({"exp": -1}, False),
        *(({claim: date}, False) for claim in ("exp", "nbf", "iat") for date in NO_DATES),
        ({"exp": 253_402_300_799}, True),
        ({"nbf": time.time() + 86_400}, False),
        ({"iat": time.time() + 86_400}, True),
        ({"iss": None}, False),
        ({"iss": "https://other"}, False),
        ({"aud": None}, False),
        ({"aud": "other"}, False),
        ({"aud": ["other", "onejob"]}, True),
        ({"sub": None}, False),
        ({"sub": ""}, False),
        ({"sub": "x" * 101}, False),
        ({"sub": "a\nb"}, False),
        ({"tenant": ""}, False),
        ({"tenant": 7}, False),
        ({"tenant": ["acme"]}, False),
        ({"tenant": "a\x00"}, False),
        ({"roles": None}, True),
        ({"roles": [{}, None, [], "admin"]}, True),
    ],
)
def test_a_token_is_taken_only_with_all_its_claims(changes: dict[str, Any], good: bool) -> None:
    assert is_accepted(JwtVerifier(JWT), token(**changes)) is good


@pytest.mark.parametrize("claim", ["sub", "tenant", "roles", "exp", "other"])
def test_a_token_with_a_claim_twice_is_refused(claim: str) -> None:
    claims = json.dumps(jwt.decode(token(other=1), options={"verify_signature": False}))
    value = json.dumps(json.loads(claims)[claim])
    signed = jwt.PyJWS().encode(claims.encode(), SECRET, "HS256")
    assert is_accepted(JwtVerifier(JWT), signed)
    twice = f'{{"{claim}": {value}, {claims[1:]}'
    assert not is_accepted(JwtVerifier(JWT), jwt.PyJWS().encode(twice.encode(), SECRET, "HS256"))


def test_a_token_with_a_member_of_its_header_twice_is_refused() -> None:
    header, payload, _ = token().split(".")
    twice = jwt.utils.base64url_encode(b'{"alg":"HS256","alg":"HS256","typ":"JWT"}').decode()
    signed = f"{twice}.{payload}".encode()
    signature = jwt.utils.base64url_encode(hmac.digest(SECRET.encode(), signed, "sha256")).decode()
    assert not is_accepted(JwtVerifier(JWT), f"{signed.decode()}.{signature}")
    plain = f"{header}.{payload}".encode()
    signature = jwt.utils.base64url_encode(hmac.digest(SECRET.encode(), plain, "sha256")).decode()
    assert is_accepted(JwtVerifier(JWT), f"{plain.decode()}.{signature}")


def test_issuer_and_audience_are_checked_only_when_configured() -> None:
    tokens = JwtVerifier(JwtConfig(algorithms=("HS256",), secret=SECRET))
    assert is_accepted(tokens, token(iss=None, aud=None))
    assert is_accepted(tokens, token(iss="https://other", aud="other"))


def test_claims_have_the_names_that_are_configured() -> None:
    config = JwtConfig(algorithms=("HS256",), secret=SECRET, tenant_claim="org", roles_claim="scope")
    found = JwtVerifier(config).verify(token(org="acme", scope="worker email", tenant="x"))
    assert (found.caller.tenant, found.caller.user) == ("acme", "ann")
    assert found.roles == {Role.WORKER}
    assert not is_accepted(JwtVerifier(config), token())


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


MakeKey = Callable[[], Any]
PAIRS: dict[str, MakeKey] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


def with_file(tmp_path: Path, data: bytes, *algorithms: str) -> JwtConfig:
    file = tmp_path / "public.pem"
    file.write_bytes(data)
    return JwtConfig(algorithms=algorithms, public_key_file=str(file))


@pytest.mark.parametrize("algorithm", PAIRS)
def test_a_public_key_verifies_its_own_algorithm_only(tmp_path: Path, algorithm: str) -> None:
    private, other = PAIRS[algorithm](), PAIRS[algorithm]()
    tokens = JwtVerifier(with_file(tmp_path, pem(private), algorithm))
    assert is_accepted(tokens, token(private, algorithm))
    assert not is_accepted(tokens, token(other, algorithm))
    assert not is_accepted(tokens, token(algorithm="HS256"))
    assert not is_accepted(tokens, unsigned_token())
    # The classic attack: the public key as the secret of an HMAC.
    head, body, _ = token(algorithm="HS256").split(".")
    mac = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), pem(private))
    assert not is_accepted(tokens, f"{head}.{body}.{identity.encode_base64url(mac)}")


def test_settings_that_cannot_be_meant_stop_the_start(tmp_path: Path) -> None:
    ours, small = PAIRS["ES256"](), rsa.generate_private_key(65537, 1024)
    private = ours.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for config in (
        JwtConfig(algorithms=("ES256",), secret=SECRET, public_key_file="x"),
        JwtConfig(algorithms=("none",), secret=SECRET),
        JwtConfig(algorithms=("HS256", "none"), secret=SECRET),
        JwtConfig(algorithms=(), secret=SECRET),
        JwtConfig(algorithms=("HS256",)),
        JwtConfig(algorithms=("HS256",), secret="short"),
        JwtConfig(algorithms=("HS256", "HS512"), secret=SECRET),
        JwtConfig(algorithms=("RS256",), secret=SECRET),
        JwtConfig(algorithms=("RS256",), public_key_file=str(tmp_path / "none.pem")),
        JwtConfig(algorithms=("HS256", "ES256"), secret=SECRET),
    ):
        with pytest.raises(onejob.Invalid):
            JwtVerifier(config)
    for data, algorithm in (
        (pem(ours), "HS256"),
        (pem(ours), "RS256"),
        (pem(ours), "ES384"),
        (private, "ES256"),
        (pem(small), "RS256"),
        (b"", "EdDSA"),
    ):
        with pytest.raises(onejob.Invalid):
            JwtVerifier(with_file(tmp_path, data, algorithm))


TOKENS = JwtVerifier(JWT)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(st.characters(max_codepoint=255), max_size=300)
    | st.lists(st.binary(max_size=200).map(identity.encode_base64url)).map(".".join)
    | st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)).map(
        lambda head: identity.encode_base64url(json.dumps(head).encode()) + ".e30.x"
    )
)
def test_arbitrary_text_is_never_more_than_unauthorized(text: str) -> None:
    assert not is_accepted(TOKENS, text)


def test_a_deep_header_is_no_token() -> None:
    for deep in (
        b"[" * 6000,
        b'{"alg":' * 800 + b"1" + b"}" * 800,
        b'{"alg":["HS256"]}',
        b'{"alg":{}}',
        b"1e999",
    ):
        assert not is_accepted(TOKENS, identity.encode_base64url(deep) + ".e30.e30")
