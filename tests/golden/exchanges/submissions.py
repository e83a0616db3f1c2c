"""The contracts of the seeds: cloud jobs, clients that number their submissions; and keys, their history and their end."""

from tests.golden.recording import Recorder, wait_until

CLOUD = "POST /api/cloud/jobs/submit?provider="
RUN_1 = {"config": {"steps": 7}, "idempotency_key": "run-1", "tracker_run_name": "ci-1"}


def record_cloud_jobs(api: Recorder) -> None:
    api.ask("a cloud job", f"{CLOUD}replicate", body=RUN_1)
    api.ask(
        "a CI re-run has another name and the same key", f"{CLOUD}replicate", body=RUN_1 | {"tracker_run_name": "ci-2"}
    )
    api.ask("another configuration", f"{CLOUD}replicate", body=RUN_1 | {"config": {"steps": 8}})
    api.ask("nulls are left out", f"{CLOUD}replicate", body=RUN_1 | {"estimated_cost": None, "dataloader_config": None})
    api.ask(
        "the key in the header", f"{CLOUD}replicate", "Idempotency-Key: run-2", body={"config_name_to_load": "flux"}
    )
    api.ask("two keys", f"{CLOUD}replicate", "Idempotency-Key: run-2", body=RUN_1)
    api.ask("no configuration", f"{CLOUD}replicate", body={"idempotency_key": "run-3"})
    api.ask("broken JSON", f"{CLOUD}replicate", body="{")
    api.ask("a window that is too long", f"{CLOUD}replicate", body=RUN_1 | {"idempotency_ttl_hours": 1e6})
    api.ask("no provider", "POST /api/cloud/jobs/submit", body=RUN_1)
    api.ask("a provider that is a path", f"{CLOUD}..%2Fx", body=RUN_1)
    api.ask("a body that is too large", f"{CLOUD}replicate", body='{"config": "' + "x" * 1_056_768 + '"}')
    api.ask("GET", "GET /api/cloud/jobs/submit?provider=replicate")
    api.ask("a prepared job has its data uploaded", f"{CLOUD}ready", body=RUN_1)
    api.ask("the same again", f"{CLOUD}ready", body=RUN_1)
    api.ask("a preparation that fails", f"{CLOUD}failing", body=RUN_1)
    with api.begin("a slow upload", f"{CLOUD}stuck", body=RUN_1):
        wait_until(lambda: find_preparing(api) != [])
        upload_exchanges(api)
    limit_exchanges(api)


def find_preparing(api: Recorder) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.ask_unrecorded("GET /api/jobs?state=preparing&type=cloud.stuck")["jobs"]
    return found


def upload_exchanges(api: Recorder) -> None:
    stuck = api.ask("a retry during the upload", f"{CLOUD}stuck", body=RUN_1 | {"tracker_run_name": "ci-3"})
    api.ask("the job is being prepared", f"GET /api/jobs/{stuck['job_id']}")
    plain = {"type": "cloud.stuck", "input": {"config": {"steps": 7}}}
    api.ask("the key is in progress", "POST /api/jobs", "Idempotency-Key: run-1", body=plain)
    api.ask("a dry run of it", "POST /api/jobs?dryRun=true", "Idempotency-Key: run-1", body=plain)
    api.ask("it cannot be forgotten", "DELETE /api/keys/run-1?scope=cloud.stuck")
    api.ask("its record", "GET /api/keys/run-1?scope=cloud.stuck")


def limit_exchanges(api: Recorder) -> None:
    api.ask("limits", "PUT /api/quotas/local", body={"maxConcurrent": 1})
    api.ask("the quota is exceeded", f"{CLOUD}replicate", body={"config": 1, "idempotency_key": "run-9"})
    limit = {"costLimit": {"amount": 5, "period": "month"}}
    api.ask("a cost limit", "PUT /api/quotas/local", body=limit)
    cost = {"config": 1, "estimated_cost": 6}
    api.ask("the cost limit is exceeded", f"{CLOUD}replicate", body=cost)
    limit["costLimit"] |= {"action": "warn"}
    api.ask("a cost limit that warns", "PUT /api/quotas/local", body=limit)
    api.ask("a warning", f"{CLOUD}replicate", body=cost)


def record_sequences(api: Recorder) -> None:
    path = "POST /api/clients/till-7/jobs"
    first = {"scope": "sales", "sequence": 1, "idempotencyKey": "till-7:1", "type": "sale", "input": {"sum": 10}}
    api.ask("an unknown client", "GET /api/clients/till-7/state?scope=sales")
    api.ask("the first number", path, body=first)
    api.ask("the first number again", path, body=first)
    api.ask("with another body", path, body=first | {"input": {"sum": 11}})
    api.ask("with another key", path, body=first | {"idempotencyKey": "till-7:x"})
    api.ask("a gap", path, body=first | {"sequence": 5, "idempotencyKey": "till-7:5"})
    batch = {"scope": "sales", "sequence": 2, "jobs": [{"type": "sale", "input": 1}, {"type": "return", "priority": 3}]}
    api.ask("a batch, with the key in the header", path, "Idempotency-Key: till-7:2", body=batch)
    api.ask("the batch again", path, "Idempotency-Key: till-7:2", body=batch)
    api.ask("no key", path, body=batch | {"sequence": 3})
    api.ask("a job and a batch at once", path, "Idempotency-Key: k", body=batch | {"sequence": 3, "type": "sale"})
    api.ask("no job", path, body={"scope": "sales", "sequence": 3, "idempotencyKey": "k"})
    api.ask("a number with a point", path, body='{"scope": "s", "sequence": 1.0, "idempotencyKey": "k", "type": "t"}')
    api.ask("number zero", path, body=first | {"sequence": 0})
    api.ask("the state of the client", "GET /api/clients/till-7/state?scope=sales")
    api.ask("the state without a scope", "GET /api/clients/till-7/state")
    api.ask("the clients", "GET /api/clients")
    api.ask("the clients with a wrong cursor", "GET /api/clients?cursor=!")
    api.ask("DELETE of a client", "DELETE /api/clients/till-7/state")


def record_keys(api: Recorder) -> None:
    charge = {"type": "charge", "input": {"amount": 42, "to": ["ann"]}}
    key = "Idempotency-Key: order 1/2"
    api.ask("a job with a key that needs quotes", "POST /api/jobs", 'Idempotency-Key: "order 1/2"', body=charge)
    api.ask("a hit", "POST /api/jobs", 'Idempotency-Key: "order 1/2"', body=charge)
    api.ask(
        "a conflict",
        "POST /api/jobs",
        'Idempotency-Key: "order 1/2"',
        body={"type": "charge", "input": {"to": ["bob"]}},
    )
    api.ask("a key with a space and no quotes", "POST /api/jobs", key, body=charge)
    api.ask("another key", "POST /api/jobs", "Idempotency-Key: k", body={"type": "mail"})
    api.ask("the history of a key, which is one part of the path", "GET /api/keys/order%201%2F2?scope=charge")
    api.ask("a key without a scope", "GET /api/keys/k")
    api.ask("a key that is unknown", "GET /api/keys/unknown?scope=charge")
    api.ask("a key that is not UTF-8", "GET /api/keys/%FF?scope=charge")
    api.ask("a broken escape", "GET /api/keys/%zz?scope=charge")
    api.ask("all keys", "GET /api/keys")
    api.ask("the keys of a scope", "GET /api/keys?scope=mail&limit=10")
    api.ask("the keys with a wrong limit", "GET /api/keys?limit=-1")
    api.ask("the keys with a wrong cursor", "GET /api/keys?cursor=a")
    api.ask("forget a key", "DELETE /api/keys/k?scope=mail")
    api.ask("forget it again", "DELETE /api/keys/k?scope=mail")
    api.ask("forget an unknown one", "DELETE /api/keys/unknown?scope=mail")
    api.ask("forget with a body", "DELETE /api/keys/k?scope=mail", body={"sure": True})
    api.ask("POST to a key", "POST /api/keys/k?scope=mail")
    api.ask("purge another tenant", "DELETE /api/tenants/acme")
    purged = api.ask("purge this one", "DELETE /api/tenants/default")
    assert purged["erased"] > 0
    api.ask("nothing is left", "GET /api/keys")
