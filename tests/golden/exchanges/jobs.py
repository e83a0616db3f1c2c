"""Jobs and batches: submit, repeat, list, read, cancel."""

from tests.golden.recording import Recorder

CHARGE = {"type": "charge", "input": {"amount": 42}}
ORDER_1 = "Idempotency-Key: order-1"
NO_JOB = "/api/jobs/01900000-0000-7000-8000-000000000000"
BAD_BODIES: dict[str, object] = {
    "an empty body": "",
    "broken JSON": '{"type": "charge"',
    "not an object": "[1]",
    "bytes that are not UTF-8": b'{"type": "\xff"}',
    "no type": "{}",
    "an empty type": {"type": ""},
    "a reserved type": {"type": "onejob.callback"},
    "a type of another kind": {"type": 7},
    "an unknown member": {"type": "charge", "colour": "red"},
    "a member twice": '{"type": "charge", "type": "charge"}',
    "a member of the input twice": '{"type": "charge", "input": {"a": 1, "a": 2}}',
    "a number that a double cannot hold": '{"type": "charge", "input": 1e999}',
    "a lone surrogate": '{"type": "charge", "input": "\\ud800"}',
    "a priority out of range": {"type": "charge", "priority": 10_000_000},
    "a time without a zone": {"type": "charge", "runAt": "2099-01-01T00:00:00"},
    "a window that is too short": {"type": "charge", "idempotencyKey": "k", "idempotencyTtlSeconds": 0.1},
    "an unknown delivery": {"type": "charge", "delivery": "sometimes"},
    "no attempt": {"type": "charge", "maxAttempts": 0},
    "a negative cost": {"type": "charge", "estimatedCost": -1},
    "labels that are not text": {"type": "charge", "labels": {"a": 1}},
    "an unknown reservation": {"type": "charge", "reservation": "r" * 48},
    "a callback with a password": {"type": "charge", "callback": {"url": "http://me:you@127.0.0.1/x"}},
    "sites where none are configured": {"type": "charge", "idempotencyKey": "k", "sites": ["fra"]},
}


def record_submissions(api: Recorder) -> None:
    api.ask("a new key creates a job", "POST /api/jobs", ORDER_1, body=CHARGE)
    api.ask("the same key and body return the same job", "POST /api/jobs", ORDER_1, body=CHARGE)
    api.ask("a quoted key is the same key", "POST /api/jobs", 'Idempotency-Key: "order-1"', body=CHARGE)
    other = {"type": "charge", "input": {"amount": 43}}
    api.ask("the same key with another body is a conflict", "POST /api/jobs", ORDER_1, body=other)
    everything = {
        "type": "mail", "input": ["a", {"b": None}], "scope": "mails", "idempotencyTtlSeconds": 3600, "delivery": "at_most_once",
        "priority": 7, "runAt": "2099-01-01T00:00:00Z", "maxAttempts": 3, "timeoutSeconds": 1.5, "labels": {"team": "a"},
        "idempotencyKey": "mail-1", "estimatedCost": 0.25,
    }  # fmt: skip
    api.ask("every option, with the key in the body", "POST /api/jobs", body=everything)
    api.ask("without a key each submission is a job", "POST /api/jobs", body={"type": "charge"})
    api.ask("a body without an input and unusual spacing", "POST /api/jobs", body=' {"type" :"charge"}\n')
    api.ask("a dry run of a known key", "POST /api/jobs?dryRun=true", ORDER_1, body=CHARGE)
    api.ask("a dry run of a conflict shows the paths", "POST /api/jobs?dryRun=true", ORDER_1, body=other)
    api.ask("a dry run of a new key", "POST /api/jobs?dryRun=true", "Idempotency-Key: order-2", body=CHARGE)
    api.ask("a dry run with another word", "POST /api/jobs?dryRun=yes", ORDER_1, body=CHARGE)


def record_refused_submissions(api: Recorder) -> None:
    for title, body in BAD_BODIES.items():
        api.ask(title, "POST /api/jobs", body=body)
    for title, key in {
        "an empty key": "",
        "a key with a broken quote": '"order-1',
        "a key that is a byte sequence": ":b3JkZXI=:",
        "a key that is too long": "k" * 300,
    }.items():
        api.ask(title, "POST /api/jobs", f"Idempotency-Key: {key}", body=CHARGE)
    api.ask("two key headers", "POST /api/jobs", ORDER_1, "Idempotency-Key: order-2", body=CHARGE)
    api.ask("two different keys", "POST /api/jobs", ORDER_1, body=CHARGE | {"idempotencyKey": "order-2"})
    api.ask("an unknown field of the query", "POST /api/jobs?colour=red", ORDER_1, body=CHARGE)
    api.ask("a compressed body", "POST /api/jobs", "Content-Encoding: gzip", body=b"\x1f\x8b")
    api.ask(
        "any type of content is read as JSON", "POST /api/jobs", "Content-Type: text/plain", body='{"type": "charge"}'
    )
    api.ask(
        "a form of another site's page",
        "POST /api/jobs",
        "Sec-Fetch-Site: cross-site",
        "Content-Type: text/plain",
        body="{}",
    )
    api.ask("another site's page", "POST /api/jobs", "Origin: http://evil.example", body=CHARGE)


def record_batches(api: Recorder) -> None:
    items = [
        CHARGE | {"idempotencyKey": "order-1"},
        CHARGE | {"idempotencyKey": "order-1"},
        {"type": "charge", "input": 1, "idempotencyKey": "order-1"},
        {"type": "mail"},
        {"type": "mail", "priority": 10_000_000},
    ]
    api.ask("a batch gives each item its verdict", "POST /api/jobs/batch", body={"jobs": items})
    api.ask("the batch again", "POST /api/jobs/batch", body={"jobs": items[:2]})
    api.ask("a batch without jobs", "POST /api/jobs/batch", body={"jobs": []})
    api.ask(
        "a batch that is too large", "POST /api/jobs/batch", body='{"jobs":[' + ",".join(['{"type":"t"}'] * 1001) + "]}"
    )
    api.ask("an item of the wrong shape", "POST /api/jobs/batch", body={"jobs": [{"type": 1}]})
    api.ask("a batch with a key", "POST /api/jobs/batch", ORDER_1, body={"jobs": items})
    api.ask("a batch with a query", "POST /api/jobs/batch?dryRun=true", body={"jobs": items})
    api.ask("GET of a batch", "GET /api/jobs/batch")
    api.ask("PUT of a batch", "PUT /api/jobs/batch", body={"jobs": items})


def record_reads(api: Recorder) -> None:
    first = api.ask("a job", "POST /api/jobs", ORDER_1, body=CHARGE | {"labels": {"team": "a"}})["job"]["id"]
    api.ask("another", "POST /api/jobs", body={"type": "mail"})
    api.ask("one job", f"GET /api/jobs/{first}")
    api.ask("HEAD of a job has no body", f"HEAD /api/jobs/{first}?wait=0")
    api.ask("its input", f"GET /api/jobs/{first}/input")
    api.ask("its result, before there is one", f"GET /api/jobs/{first}/result")
    for part in ("details", "failures", "logs", "sites", "steps"):
        api.ask(f"its {part}", f"GET /api/jobs/{first}/{part}")
    api.ask("all jobs", "GET /api/jobs")
    page = api.ask("the first page", "GET /api/jobs?limit=1")
    api.ask("the second page", f"GET /api/jobs?limit=1&cursor={page['next']}")
    for query in (
        "state=pending&type=charge",
        "state=running",
        "user=nobody",
        "label=team%3Da",
        "createdAfter=2099-01-01T00:00:00Z",
    ):
        api.ask(f"jobs with {query}", f"GET /api/jobs?{query}")
    for query in (
        "limit=0", "limit=1001", "limit=x", "state=lively", "cursor=x", "label=team", "createdBefore=today", "colour=red",
        "limit=1&limit=2", "type", "type=%FF",
    ):  # fmt: skip
        api.ask(f"jobs with {query}", f"GET /api/jobs?{query}")
    api.ask("a wait that is too long", f"GET /api/jobs/{first}?wait=31")
    api.ask("a wait that is no number", f"GET /api/jobs/{first}?wait=soon")
    api.ask("logs with a wrong offset", f"GET /api/jobs/{first}/logs?offset=-1")
    for path in ("", "/input", "/result", "/details", "/failures", "/logs", "/sites", "/steps", "/events"):
        api.ask(f"no such job{path}", f"GET {NO_JOB}{path}")
    api.ask("an id of the wrong form", "GET /api/jobs/first")
    api.ask("search for a job", f"GET /api/search?q={first}")
    api.ask("search for a key", "GET /api/search?q=order-1")
    api.ask("search for nothing", "GET /api/search")


def record_cancels(api: Recorder) -> None:
    job = api.ask("a job", "POST /api/jobs", body=CHARGE)["job"]["id"]
    api.ask("cancel it", f"POST /api/jobs/{job}/cancel", "Idempotency-Key: cancel-1")
    api.ask("cancel it again", f"POST /api/jobs/{job}/cancel", "Idempotency-Key: cancel-1")
    api.ask("with another key", f"POST /api/jobs/{job}/cancel", "Idempotency-Key: cancel-2", body={})
    api.ask("waiting for a job that has ended", f"GET /api/jobs/{job}?wait=30")
    api.ask("with a body", f"POST /api/jobs/{job}/cancel", body={"reason": "none"})
    api.ask("of no job", f"POST {NO_JOB}/cancel")
    api.ask("GET of the verb", f"GET /api/jobs/{job}/cancel")
    api.ask("the events of a job that has ended", f"GET /api/jobs/{job}/events")
    api.ask("nothing is left to be seen", f"GET /api/jobs/{job}/events", "Last-Event-ID: 1")
    api.ask("an event that never was", f"GET /api/jobs/{job}/events?cursor=99")
    api.ask("a cursor of the wrong form", f"GET /api/jobs/{job}/events?cursor=x")
    watched = api.ask("another job", "POST /api/jobs", body=CHARGE)["job"]["id"]
    api.ask("the begin of its events", f"GET /api/jobs/{watched}/events", until=b"event: submitted")
