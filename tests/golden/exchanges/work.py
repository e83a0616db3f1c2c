"""Workers over HTTP, from claim to finish; the steps of a job; and what operators decide about jobs, types and schedules."""

from tests.golden.recording import Recorder, wait_until
from tests.support.command_line import ScriptedServer, http_response

NO_JOB = "/api/jobs/01900000-0000-7000-8000-000000000000"


def record_work(api: Recorder) -> None:
    api.ask("nothing to do", "POST /api/work/claim", body={"types": ["t"]})
    job = api.ask("a job", "POST /api/jobs", body={"type": "t", "input": [1], "timeoutSeconds": 60, "maxAttempts": 2})[
        "job"
    ]["id"]
    claim = {"types": ["t"], "holder": "me-1", "leaseSeconds": 30}
    token = api.ask("claim it", "POST /api/work/claim", body=claim)["jobs"][0]["token"]
    api.ask("the claim again, with the same holder", "POST /api/work/claim", body=claim)
    mine = {"token": token, "holder": "me-1"}
    api.ask("start it", f"POST /api/jobs/{job}/start", body=mine)
    api.ask("start it again", f"POST /api/jobs/{job}/start", body=mine)
    api.ask("start it as another", f"POST /api/jobs/{job}/start", body=mine | {"holder": "other"})
    report = mine | {"progress": {"percent": 50}, "logs": ["one", "two"], "leaseSeconds": 60}
    api.ask("extend it, with progress and log lines", f"POST /api/jobs/{job}/extend", body=report)
    api.ask("the same lines again", f"POST /api/jobs/{job}/extend", body=report)
    api.ask("lines with a gap", f"POST /api/jobs/{job}/extend", body=report | {"offset": 9})
    api.ask("the log", f"GET /api/jobs/{job}/logs?offset=1&limit=1")
    api.ask("the events so far", f"GET /api/jobs/{job}/events", until=b'"two"')
    api.ask("a stale token", f"POST /api/jobs/{job}/extend", body=mine | {"token": 99})
    api.ask("release it", f"POST /api/jobs/{job}/release", body=mine | {"delaySeconds": 0})
    finish_attempts(api, job, claim)


def finish_attempts(api: Recorder, job: str, claim: dict[str, object]) -> None:
    second = api.ask("claim and start at once", "POST /api/work/claim", body=claim | {"holder": "me-2", "start": True})[
        "jobs"
    ][0]
    mine = {"token": second["token"], "holder": "me-2"}
    failed = {"error": "declined", "message": "no money", "final": True, "cost": 0.5}
    api.ask("finish it with an error", f"POST /api/jobs/{job}/finish", body=mine | failed)
    api.ask("finish it again", f"POST /api/jobs/{job}/finish", body=mine | failed)
    api.ask("the failures", f"GET /api/jobs/{job}/failures")
    api.ask("run it again", f"POST /api/jobs/{job}/rerun", "Idempotency-Key: rerun-1", body={"note": "money came"})
    api.ask(
        "the same request again", f"POST /api/jobs/{job}/rerun", "Idempotency-Key: rerun-1", body={"note": "money came"}
    )
    third = api.ask("claim it", "POST /api/work/claim", body=claim | {"holder": "me-3", "start": True})["jobs"][0]
    mine = {"token": third["token"], "holder": "me-3"}
    api.ask(
        "finish it with a result", f"POST /api/jobs/{job}/finish", body=mine | {"result": {"paid": 1.50, "to": "ann"}}
    )
    api.ask("its result", f"GET /api/jobs/{job}/result")
    api.ask("its details", f"GET /api/jobs/{job}/details")
    api.ask("all of its events", f"GET /api/jobs/{job}/events")
    api.ask("extend it too late", f"POST /api/jobs/{job}/extend", body=mine)


def record_refused_work(api: Recorder) -> None:
    claim = "POST /api/work/claim"
    api.ask("no types", claim, body={"types": []})
    api.ask("no body", claim)
    api.ask("too many", claim, body={"types": ["t"], "limit": 100_000})
    api.ask("a lease that is too long", claim, body={"types": ["t"], "leaseSeconds": 1e9})
    api.ask("a wait that is too long", claim, body={"types": ["t"], "wait": 31})
    api.ask("a holder that is not printable", claim, body={"types": ["t"], "holder": "\n"})
    api.ask("a query", f"{claim}?types=t", body={"types": ["t"]})
    api.ask("GET", "GET /api/work/claim")
    mine = {"token": 1, "holder": "me"}
    for verb in ("start", "extend", "finish", "release"):
        api.ask(f"{verb} no job", f"POST {NO_JOB}/{verb}", body=mine)
        api.ask(f"{verb} without a token", f"POST {NO_JOB}/{verb}", body={"holder": "me"})
    api.ask("a result that is not JSON", f"POST {NO_JOB}/finish", body='{"token": 1, "holder": "me", "result": {')
    api.ask(
        "a result that is too large",
        f"POST {NO_JOB}/finish",
        body='{"token":1,"holder":"me","result":"' + "x" * 1_048_580 + '"}',
    )
    api.ask("a token that is no integer", f"POST {NO_JOB}/start", body=mine | {"token": 1.5})


def record_steps(api: Recorder) -> None:
    job = api.ask("a job", "POST /api/jobs", body={"type": "t"})["job"]["id"]
    claim = {"types": ["t"], "holder": "me", "start": True}
    token = api.ask("a worker has it", "POST /api/work/claim", body=claim)["jobs"][0]["token"]
    step = {"token": token, "holder": "me", "name": "charge", "stepHolder": "s-1", "arguments": [1, "eur"]}
    begin, finish = f"POST /api/jobs/{job}/steps/begin", f"POST /api/jobs/{job}/steps/finish"
    api.ask("begin a step", begin, body=step)
    result = {"token": token, "name": "charge", "stepHolder": "s-1", "result": {"id": 7}}
    api.ask("store its result", finish, body=result)
    api.ask("begin it again", begin, body=step | {"stepHolder": "s-2"})
    api.ask("with other arguments", begin, body=step | {"arguments": [2, "eur"]})
    api.ask("a step at most once", begin, body=step | {"name": "mail", "delivery": "at_most_once"})
    api.ask("it was interrupted", begin, body=step | {"name": "mail", "delivery": "at_most_once", "stepHolder": "s-2"})
    api.ask("a stale token", begin, body=step | {"token": 9})
    api.ask(
        "a result that is too large",
        finish,
        body='{"token":1,"name":"x","stepHolder":"s","result":"' + "x" * 70_000 + '"}',
    )
    api.ask("the steps", f"GET /api/jobs/{job}/steps")
    api.ask("no job", f"POST {NO_JOB}/steps/begin", body=step)


def record_operators(api: Recorder) -> None:
    jobs = [
        api.ask(f"job {n}", "POST /api/jobs", body={"type": "t", "delivery": "at_most_once"})["job"]["id"]
        for n in (1, 2)
    ]
    api.ask("pause a type", "POST /api/types/t/pause")
    api.ask("pause it again", "POST /api/types/t/pause", "Idempotency-Key: p")
    api.ask("a paused type has no work", "POST /api/work/claim", body={"types": ["t"]})
    api.ask("resume it", "POST /api/types/t/resume")
    api.ask("with a body", "POST /api/types/t/resume", body={"now": True})
    actions = "POST /api/jobs/actions"
    api.ask("how many would be cancelled", actions, body={"action": "cancel", "filter": {"type": "t"}, "dryRun": True})
    api.ask("a filter for every job", actions, body={"action": "cancel", "filter": {}})
    api.ask("an unknown action", actions, body={"action": "burn", "filter": {"type": "t"}})
    api.ask("a wrong cursor", actions, body={"action": "cancel", "filter": {"type": "t"}, "cursor": "x"})
    api.ask("cancel them", actions, "Idempotency-Key: cancel", body={"action": "cancel", "filter": {"type": "t"}})
    api.ask("a cancelled job cannot run again", f"POST /api/jobs/{jobs[0]}/rerun")
    api.ask("a job that is not lost", f"POST /api/jobs/{jobs[0]}/resolve", body={"resolution": "succeeded"})
    api.ask("an unknown resolution", f"POST /api/jobs/{jobs[0]}/resolve", body={"resolution": "maybe"})
    api.ask("no job to resolve", f"POST {NO_JOB}/resolve", body={"resolution": "failed", "note": "gone"})
    api.ask("no job to run again", f"POST {NO_JOB}/rerun")
    api.ask("no schedules", "GET /api/schedules")
    api.ask("pause an unknown schedule", "POST /api/schedules/nightly/pause")
    api.ask("resume an unknown schedule", "POST /api/schedules/nightly/resume")
    url = "http://127.0.0.1:9/end?from=us"
    called = api.ask("a job with a callback", "POST /api/jobs", body={"type": "t", "callback": {"url": url}})["job"][
        "id"
    ]
    api.ask("its details", f"GET /api/jobs/{called}/details")
    api.ask("the callbacks", "GET /api/callbacks?state=preparing")
    api.ask("the callbacks of no state", "GET /api/callbacks?state=rung")


def record_callbacks(api: Recorder) -> None:
    receiver = ScriptedServer(http_response(204, ""))
    body = {"type": "t", "callback": {"url": f"{receiver.url}/ends?from=us"}}
    job = api.ask("a job with a callback", "POST /api/jobs", body=body)["job"]["id"]
    api.ask("it ends", f"POST /api/jobs/{job}/cancel")
    wait_until(lambda: bool(api.ask_unrecorded("GET /api/callbacks?state=success")["callbacks"]))
    receiver.close()
    api.note("the service sends:")
    for request in receiver.requests:
        api.note_received(request)
    api.ask("its details", f"GET /api/jobs/{job}/details")
    api.ask("the callbacks that were delivered", "GET /api/callbacks?state=success")
