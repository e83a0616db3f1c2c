"""A server that asks for credentials: API keys, tokens, roles, tenants, console sessions."""

import base64
import hashlib
import hmac
import json

from tests.golden.recording import Recorder

SECRET = "a secret that only the tests of this service know"
JOB = {"type": "t", "input": 1}
OWN_PAGE = ("Origin: http://localhost", "X-Onejob-Console: 1")


def token(algorithm: str = "HS256", secret: str = SECRET, **claims: object) -> str:
    """A token that is valid until the year 2100, with these claims."""
    payload = {
        "sub": "ann",
        "tenant": "acme",
        "roles": ["admin"],
        "exp": 4_102_444_800,
        "iss": "issuer",
        "aud": "onejob",
    } | claims
    signed = ".".join(encode(json.dumps(part).encode()) for part in ({"alg": algorithm, "typ": "JWT"}, payload))
    return f"{signed}.{encode(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bearer(text: str) -> str:
    return f"Authorization: Bearer {text}"


def record_api_keys(api: Recorder, root: str) -> None:
    admin, keys = bearer(root), "/api/api-keys"
    api.ask("nobody", f"GET {keys}")
    api.ask("a wrong key", f"GET {keys}", bearer("oj_ZGVmYXVsdA.000000000000." + "A" * 43))
    api.ask("another scheme", f"GET {keys}", "Authorization: Basic cm9vdDpyb290")
    api.ask("the keys", f"GET {keys}", admin)
    api.ask("the other header", f"GET {keys}", f"X-Api-Key: {root}")
    ci = api.ask("a new key", f"POST {keys}", admin, body={"name": "ci", "roles": ["submitter"]})
    api.ask(
        "a key with a user", f"POST {keys}", admin, body={"name": "w", "roles": ["worker", "operator"], "user": "ann"}
    )
    api.ask("no role", f"POST {keys}", admin, body={"name": "x", "roles": []})
    api.ask("an unknown role", f"POST {keys}", admin, body={"name": "x", "roles": ["king"]})
    api.ask("a role that one does not have", f"POST {keys}", admin, body={"name": "x", "roles": ["metrics"]})
    api.ask("no name", f"POST {keys}", admin, body={"name": "", "roles": ["worker"]})
    api.ask("no body", f"POST {keys}", admin)
    api.ask("a submitter administers nothing", f"GET {keys}", bearer(ci["text"]))
    api.ask("a submitter submits", "POST /api/jobs", bearer(ci["text"]), "Idempotency-Key: k", body=JOB)
    api.ask("and submits again", "POST /api/jobs", bearer(ci["text"]), "Idempotency-Key: k", body=JOB)
    path = f"{keys}/{ci['apiKey']['id']}"
    rotated = api.ask("rotate it", f"POST {path}/rotate", admin, body={"overlapSeconds": 0})
    api.ask("the old text", "GET /api/jobs", bearer(ci["text"]))
    api.ask("the new text", "GET /api/session", bearer(rotated["text"]))
    api.ask("an overlap that is too long", f"POST {path}/rotate", admin, body={"overlapSeconds": 1e9})
    api.ask("revoke it", f"POST {path}/revoke", admin)
    api.ask("revoke it again", f"POST {path}/revoke", admin, body={})
    api.ask("a revoked key", "POST /api/jobs", bearer(rotated["text"]), "Idempotency-Key: k", body=JOB)
    api.ask("no such key", f"POST {keys}/000000000000/revoke", admin)
    api.ask("an id of the wrong form", f"POST {keys}/x/rotate", admin)
    api.ask("PUT of a key", f"PUT {path}", admin, body={})


def record_tokens(api: Recorder) -> None:
    api.ask("a token", "GET /api/session", bearer(token()))
    job = api.ask("a job of tenant acme", "POST /api/jobs", bearer(token()), body=JOB)["job"]["id"]
    api.ask("another tenant does not see it", f"GET /api/jobs/{job}", bearer(token(tenant="other")))
    for title, text in {
        "an expired token": token(exp=1),
        "a token of another secret": token(secret="x" * 32),
        "a token of another issuer": token(iss="other"),
        "a token for another audience": token(aud="other"),
        "a token without a tenant": token(tenant=None),
        "a token without a signature": token("none").rpartition(".")[0] + ".",
        "a token of another algorithm": token("RS256"),
    }.items():
        api.ask(title, "GET /api/session", bearer(text))
    allowed: dict[str, object] = {
        "GET /api/jobs?limit=1": None,
        "POST /api/jobs": JOB,
        f"GET /api/jobs/{job}/input": None,
        "POST /api/work/claim": {"types": ["x"]},
        "DELETE /api/keys/k?scope=t": None,
        f"POST /api/jobs/{job}/rerun": None,
        "GET /api/workers": None,
        "PUT /api/quotas/x": {},
        "GET /metrics": None,
    }
    for line, body in allowed.items():
        api.ask(f"no role: {line.replace(job, 'JOB')}", line, bearer(token(roles=[])), body=body)
    for role in ("submitter", "worker", "operator", "metrics"):
        api.ask(f"what a {role} may do", "GET /api/session", bearer(token(roles=[role])))
    user = bearer(token(sub="bob", roles=["submitter"]))
    api.ask("the usage of another user", "GET /api/usage?user=ann", user)
    slot = api.ask("a slot of ann", "POST /api/reservations", bearer(token()))["id"]
    api.ask("a slot of another user", f"POST /api/reservations/{slot}/release", user)
    api.ask("a slot for another user", "POST /api/reservations", user, body={"user": "ann"})
    api.ask("purge another tenant", "DELETE /api/tenants/other", bearer(token()))


def record_sessions(api: Recorder, root: str) -> None:
    sign_in = "POST /api/session"
    api.ask("from another program", sign_in, body={"credential": root})
    api.ask(
        "from another page", sign_in, "Origin: http://evil.example", "X-Onejob-Console: 1", body={"credential": root}
    )
    api.ask("with a wrong key", sign_in, *OWN_PAGE, body={"credential": "nonsense"})
    api.ask("without one", sign_in, *OWN_PAGE, body={})
    signed = api.ask("sign in", sign_in, *OWN_PAGE, body={"credential": root})
    assert signed["expiresAt"]
    cookie = api.cookie()
    api.ask("who one is", "GET /api/session", cookie)
    api.ask("a change without the header of the console", "POST /api/jobs", cookie, body=JOB)
    api.ask(
        "a change of another page",
        "POST /api/jobs",
        cookie,
        "Origin: http://evil.example",
        "X-Onejob-Console: 1",
        body=JOB,
    )
    api.ask("a read of another page", "GET /api/jobs", cookie, "Origin: http://evil.example")
    api.ask("a change in the console", "POST /api/jobs", cookie, *OWN_PAGE, body=JOB)
    api.ask("sign out", "DELETE /api/session", cookie, *OWN_PAGE)
    api.ask("the session has ended", "GET /api/session", cookie)
    api.ask(
        "behind a proxy with TLS the cookie is secure",
        sign_in,
        "Origin: https://localhost",
        OWN_PAGE[1],
        body={"credential": token()},
    )
    api.ask("pages need no credential", "GET /jobs")
    api.ask("nor does health", "GET /readyz")
