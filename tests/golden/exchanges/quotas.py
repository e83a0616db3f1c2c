"""Limits, usage and reservations."""

from tests.golden.recording import Recorder

NO_SLOT = "r" * 48


def record_limits(api: Recorder) -> None:
    limits = {"maxConcurrent": 2, "jobsPerHour": 3, "jobsPerDay": 50, "costLimit": {"amount": 1.5, "period": "day"}}
    api.ask("no limits", "GET /api/quotas/local")
    api.ask("limits of a user", "PUT /api/quotas/local", body=limits)
    api.ask("the limits", "GET /api/quotas/local")
    api.ask(
        "limits of the tenant",
        "PUT /api/quotas",
        body={"default": {"maxConcurrent": 5}, "ceiling": {"maxConcurrent": 9}},
    )
    api.ask("the limits of the tenant", "GET /api/quotas")
    api.ask("another user has the defaults", "GET /api/quotas/bob")
    api.ask("a limit that is too large", "PUT /api/quotas/bob", body={"maxConcurrent": 10**10})
    api.ask("an unknown period", "PUT /api/quotas/bob", body={"costLimit": {"amount": 1, "period": "year"}})
    api.ask("an unknown limit", "PUT /api/quotas/bob", body={"jobsPerYear": 1})
    api.ask("POST of limits", "POST /api/quotas/bob", body={})
    for number in (1, 2):
        api.ask(f"job {number}", "POST /api/jobs", body={"type": "t", "estimatedCost": 0.6})
    api.ask("the quota is exceeded", "POST /api/jobs", "Idempotency-Key: k", body={"type": "t"})
    api.ask("a dry run shows it too", "POST /api/jobs?dryRun=true", "Idempotency-Key: k", body={"type": "t"})
    api.ask("in a batch", "POST /api/jobs/batch", body={"jobs": [{"type": "t"}]})
    api.ask("more at once", "PUT /api/quotas/local", body=limits | {"maxConcurrent": 9})
    api.ask("the cost limit is exceeded", "POST /api/jobs", body={"type": "t", "estimatedCost": 0.6})
    api.ask("a third job is the last of this hour", "POST /api/jobs", body={"type": "t", "estimatedCost": 0.1})
    refused = api.ask("a fourth job", "POST /api/jobs", body={"type": "t"})
    assert refused["error"]["code"] == "RATE_LIMITED"
    api.ask("the usage", "GET /api/usage")
    api.ask("the usage of another user", "GET /api/usage?user=bob")
    api.ask("the users", "GET /api/users")
    api.ask("remove the limits", "DELETE /api/quotas/local")
    api.ask("the usage without limits of one's own", "GET /api/usage?user=local")


def record_reservations(api: Recorder) -> None:
    api.ask("limits", "PUT /api/quotas/local", body={"maxConcurrent": 2})
    slot = api.ask("a slot", "POST /api/reservations", "Idempotency-Key: slot-1", body={"ttlSeconds": 600})["id"]
    api.ask("the same slot", "POST /api/reservations", "Idempotency-Key: slot-1", body={"ttlSeconds": 600})
    second = api.ask("a second one, without a body", "POST /api/reservations")["id"]
    api.ask("a third one", "POST /api/reservations")
    api.ask("a slot of another user", "POST /api/reservations", body={"user": "bob", "maxConcurrent": 1})
    api.ask("the reservations", "GET /api/reservations")
    api.ask("those of all users", "GET /api/users/reservations")
    api.ask("a deadline that is too far", "POST /api/reservations", body={"ttlSeconds": 1e9})
    api.ask("renew one", f"POST /api/reservations/{slot}/renew", body={"ttlSeconds": 900})
    api.ask("renew an unknown one", f"POST /api/reservations/{NO_SLOT}/renew")
    job = api.ask("a job in the slot", "POST /api/jobs", body={"type": "t", "reservation": slot})
    api.ask("the slot is used", "POST /api/jobs", body={"type": "t", "reservation": slot})
    api.ask("consume the second one", f"POST /api/reservations/{second}/consume")
    api.ask("consume it again", f"POST /api/reservations/{second}/consume")
    api.ask("consume for an unknown job", f"POST /api/reservations/{second}/consume", body={"jobId": job["job"]["id"]})
    api.ask("release it too late", f"POST /api/reservations/{second}/release")
    third = api.ask("another slot", "POST /api/reservations")["id"]
    api.ask("release it", f"POST /api/reservations/{third}/release")
    api.ask("release it again", f"POST /api/reservations/{third}/release")
    api.ask("release an id of the wrong form", "POST /api/reservations/x/release")
    api.ask("PUT of a slot", f"PUT /api/reservations/{third}/release")
