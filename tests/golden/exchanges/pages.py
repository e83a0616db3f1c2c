"""The pages of the console, health, and paths that do not exist."""

import re

from tests.golden.recording import Recorder

CONSOLE = (
    "/",
    "/jobs",
    "/jobs/some-job",
    "/keys",
    "/keys/a/b%2Fc",
    "/lost",
    "/types",
    "/workers",
    "/schedules",
    "/quotas",
    "/reservations",
    "/sequences",
    "/callbacks",
    "/api-keys",
    "/search",
)


def record_pages(api: Recorder) -> None:
    console = api.ask("the console", "GET /")
    for path in CONSOLE[1:]:
        api.ask(f"the console at {path}", f"GET {path}")
    api.ask("HEAD of the console", "HEAD /jobs")
    assets = sorted(set(re.findall(r"/assets/[0-9a-f]{16}/[\w.-]+", console.body.decode())))
    assert assets
    for asset in assets:
        api.ask(f"the console's {asset.rpartition('/')[2]}", f"GET {asset}")
    api.ask("an asset of another version", "GET /assets/0123456789abcdef/style.css")
    api.ask("an asset that is not there", f"GET {assets[0].rpartition('/')[0]}/..%2Fdocs.html")
    api.ask("the API's page", "GET /docs")
    api.ask("POST to a page", "POST /docs", body={})


def record_status(api: Recorder) -> None:
    api.ask("health", "GET /healthz")
    api.ask("HEAD of health", "HEAD /healthz")
    api.ask("readiness", "GET /readyz")
    api.ask("the policy", "GET /api/idempotency-policy")
    api.ask("the API's description", "GET /openapi.json")
    api.ask("who one is without authentication", "GET /api/session")
    api.ask("signing in where nobody asks", "POST /api/session", body={"credential": "x"})
    api.ask("signing out", "DELETE /api/session")
    api.ask("no API keys", "GET /api/api-keys")
    api.ask("no such path", "GET /nowhere")
    api.ask("no such path of the API", "POST /api/nothing", body={})
    api.ask("a slash too many", "GET /healthz/")
    api.ask("an escaped path is another path", "GET /api%2Fjobs")
    api.ask("OPTIONS of a path", "OPTIONS /api/jobs")
    api.ask("DELETE of all jobs", "DELETE /api/jobs")
    api.ask("TRACE", "TRACE /healthz")
    api.ask("POST to health", "POST /healthz", body={})
    api.ask("PATCH of a job", "PATCH /api/jobs/x", body={})
    api.ask("health ignores the query", "GET /healthz?verbose")
