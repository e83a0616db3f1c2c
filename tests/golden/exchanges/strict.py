"""A server with TLS and other settings than the defaults: a small body, few logins, a rate, CORS, hidden payloads."""

from tests.golden.recording import Recorder

from .credentials import bearer

JOB = {"type": "t", "input": 1}
ORIGIN = "Origin: https://app.example"


def record_strict_server(api: Recorder, root: str) -> None:
    admin = bearer(root)
    api.ask("the overview of an empty ledger", "GET /api/overview", admin)
    api.ask("no types", "GET /api/types", admin)
    api.ask("no workers", "GET /api/workers", admin)
    api.ask("the statistics", "GET /api/stats", admin)
    api.ask("the policy", "GET /api/idempotency-policy")
    preflight = (ORIGIN, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: idempotency-key")
    api.ask("a preflight", "OPTIONS /api/jobs", *preflight)
    api.ask("a preflight of another origin", "OPTIONS /api/jobs", "Origin: https://evil.example", *preflight[1:])
    api.ask("a request of an allowed page", "GET /api/jobs", admin, ORIGIN)
    api.ask("a request of another page", "GET /api/jobs", admin, "Origin: https://evil.example")
    api.ask("a form of an allowed page", "POST /api/jobs", admin, ORIGIN, "Content-Type: text/plain", body="{}")
    api.ask("a body that is too large", "POST /api/jobs", admin, body={"type": "t", "input": "x" * 1000})
    key = "Idempotency-Key: k"
    job = api.ask("a job", "POST /api/jobs", admin, key, body=JOB | {"sites": ["fra"]})["job"]["id"]
    api.ask("a hit", "POST /api/jobs", admin, key, body=JOB | {"sites": ["fra"]})
    api.ask("a conflict has the status of the draft", "POST /api/jobs", admin, key, body=JOB | {"input": 2})
    api.ask("its sites", f"GET /api/jobs/{job}/sites", admin)
    api.ask("an unknown site", "POST /api/jobs", admin, "Idempotency-Key: k2", body=JOB | {"sites": ["nowhere"]})
    api.ask("its input is hidden", f"GET /api/jobs/{job}/input", admin)
    api.ask("its failures are hidden", f"GET /api/jobs/{job}/failures", admin)
    exceed_limits(api, root)


def exceed_limits(api: Recorder, root: str) -> None:
    admin = bearer(root)
    api.ask("an unknown provider", "POST /api/cloud/jobs/submit?provider=x", admin, body={"config": 1})
    api.ask(
        "a callback to a private port",
        "POST /api/jobs",
        admin,
        body=JOB | {"callback": {"url": "http://a.example:8080/"}},
    )
    api.ask("the second of three jobs of the burst", "POST /api/jobs", admin, "Idempotency-Key: k3", body=JOB)
    api.ask(
        "an upload that takes longer than the wait",
        "POST /api/cloud/jobs/submit?provider=stuck",
        admin,
        body={"config": 1},
    )
    api.ask("the rate is used up", "POST /api/jobs", admin, "Idempotency-Key: k4", body=JOB)
    api.ask("a known key is still answered", "POST /api/jobs", admin, "Idempotency-Key: k3", body=JOB)
    for number in (1, 2, 3):
        api.ask(f"wrong login {number}", "GET /api/jobs", bearer("nonsense"))
    own_page = ("Origin: https://localhost", "X-Onejob-Console: 1")
    api.ask("a session over TLS", "POST /api/session", *own_page, body={"credential": root})
    api.ask("it ends", "DELETE /api/session", api.cookie(), *own_page)
    api.ask("metrics without a credential", "GET /metrics")
    api.ask("readiness", "GET /readyz")
    api.send(
        "a head that is too long here", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 3000 + b"\r\n\r\n"
    )
    api.send(
        "the client ends TLS after its request",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
