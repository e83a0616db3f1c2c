"""Check a store or a server: integrity, durability, permissions, clock; and what to do about problems."""

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import json
from msgspec.structs import replace

from onejob.addresses import is_loopback
from onejob.cli.arguments import add_target_arguments
from onejob.cli.backend import TENANT_DEFAULT, ServerBackend, engine_url, open_server_backend, server_url, sqlite_file
from onejob.cli.command import CommandResult
from onejob.client.flow import ServerResponse
from onejob.clock import SystemClock
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply
from onejob.core.states import JobState
from onejob.core.timestamps import to_ms, to_utc
from onejob.engine import Durability, Engine
from onejob.engines import is_bucket, is_postgres, open_engine, redact_password
from onejob.errors import OnejobError
from onejob.ids import new_job_id
from onejob.runtime.settings import load_settings, refuse_differences, shown_settings
from onejob.settings import CliSettings, load_service_config

from .findings import (
    CheckStatus,
    Examination,
    Finding,
    build_examination,
    fail,
    none_failed,
    ok,
    render_examination,
    warn,
)
from .postgres import check_postgres
from .sqlite import check_file, check_folder, check_missing_file

if TYPE_CHECKING:
    from onejob.engines.bucket import BucketEngine, Damage
    from onejob.engines.bucket.snapshots import Erasure
    from onejob.engines.bucket.view import ViewRepair

EXAMPLE = "onejob doctor --engine sqlite:///onejob.db"
_SERVER_OFFSET_SECONDS_MAX = 5
_ENGINE_OFFSET_MS_MAX = 2000
_DAMAGE_SHOWN = 10
# What is only a warning elsewhere. A warning about something else is one in production, too.
_REQUIRED_IN_PRODUCTION = ("durability", "failover", "file system", "permissions", "store", "transport")


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--production",
        action="store_true",
        help="check also what docs/production.md asks for; what it requires fails instead of warning",
    )
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    examination = examine(options, CliSettings.from_env())
    return CommandResult(examination, render_examination, examination.exit_code)


def examine(options: Namespace, settings: CliSettings) -> Examination:
    if (url := server_url(options, settings)) is not None:
        server = open_server_backend(url, options, settings)
        examined, findings = server.url, check_server(server)
        if options.production:
            findings = chain(findings, check_production_server(server))
    else:
        url = engine_url(options, settings)
        examined, findings = redact_password(url), check_engine(url)
    return build_examination(examined, map(required_in_production, findings) if options.production else findings)


def required_in_production(finding: Finding) -> Finding:
    is_required = finding.verdict is CheckStatus.WARN and finding.check in _REQUIRED_IN_PRODUCTION
    return replace(finding, verdict=CheckStatus.FAIL) if is_required else finding


def check_production_server(server: ServerBackend) -> Iterator[Finding]:
    """What docs/production.md asks for beyond a healthy server, as far as it shows from outside."""
    try:
        yield _check_authentication(server)
        yield from _check_server_durability(server)
        yield _check_metrics(server)
        yield _check_lost_jobs(server)
    except OnejobError as error:
        yield fail("production", str(error))


def _check_authentication(server: ServerBackend) -> Finding:
    status = ServerBackend(server.url).probe("/api/jobs?limit=1").status
    if status == 401:
        return ok("authentication", "a request without a credential is refused")
    return fail("authentication", f"a request without a credential was answered with {status}", "set auth = true")


def _check_server_durability(server: ServerBackend) -> Iterator[Finding]:
    readiness = server.probe("/readyz")
    if readiness.status != 200:
        return  # reported by the check of its readiness
    ready = json.decode(readiness.body, type=dict[str, Any])
    yield _check_durability(Durability(ready["durability"]))
    if ready.get("caveat"):
        yield warn("failover", *ready["caveat"].rsplit("; ", 1))


def _check_metrics(server: ServerBackend) -> Finding:
    metrics = server.probe("/metrics")
    if metrics.status == 200 and b"onejob_" in metrics.body:
        return ok("metrics", "can be scraped")
    if metrics.status in (401, 403):
        return warn("metrics", "this credential may not read /metrics", "check with that of Prometheus (role metrics)")
    return fail("metrics", f"/metrics answered {metrics.status}", "read the log of the server")


def _check_lost_jobs(server: ServerBackend) -> Finding:
    if server.jobs(state=JobState.LOST, limit=1).jobs:
        return warn("lost jobs", "some wait for a decision", "see `onejob jobs --state lost`, then `onejob resolve`")
    return ok("lost jobs", "none")


def check_server(server: ServerBackend) -> Iterator[Finding]:
    try:
        health = server.probe("/healthz")
    except OnejobError as error:
        yield fail("server", str(error))
        return
    if health.status != 200:
        yield fail("server", f"/healthz answered {health.status}", "check that the URL is that of a onejob server")
        return
    yield ok("server", "is running")
    yield _check_readiness(server)
    yield _check_credential(server)
    yield check_server_clock(health)
    if server.parts.scheme == "http" and not is_loopback(server.parts.hostname or ""):
        yield warn("transport", "http: API keys and inputs are sent in clear text", "put TLS in front, use https")


def _check_readiness(server: ServerBackend) -> Finding:
    try:
        readiness = server.probe("/readyz")
    except OnejobError as error:
        return fail("ready", str(error))
    if readiness.status == 200:
        return ok("ready", "its engine answers")
    return fail("ready", f"/readyz answered {readiness.status}", "run `onejob doctor` on its engine, read its log")


def _check_credential(server: ServerBackend) -> Finding:
    try:
        server.jobs(limit=1)
    except OnejobError as error:
        return fail("credential", str(error))
    return ok("credential", "may read jobs")


def check_server_clock(response: ServerResponse) -> Finding:
    try:
        date = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return warn("clock", "the response has no valid Date header", "check whether a proxy removes it")
    seconds = (SystemClock().wall_ms() - to_ms(date if date.tzinfo else date.replace(tzinfo=UTC))) / 1000
    if abs(seconds) <= _SERVER_OFFSET_SECONDS_MAX:
        return ok("clock", "agrees with the local clock")
    return warn("clock", f"the local clock differs by {seconds:+.0f} s", "set both by NTP; jobs follow the server's")


def check_engine(url: str) -> Iterator[Finding]:
    file = sqlite_file(url)
    if file is not None:
        findings = list(check_sqlite_store(file))
        yield from findings
        # Opening a damaged store could change it before it was examined, and opening none would create one.
        if not none_failed(findings) or not file.exists():
            return
    if is_postgres(url):
        yield from check_postgres(url)
    try:
        durability, at, warning, settings = asyncio.run(_probe_engine(url))
    except OnejobError as error:
        yield fail("engine", str(error))
        return
    yield ok("engine", "opens and answers")
    yield settings
    yield _check_durability(durability)
    if warning:
        yield warn("failover", *warning.rsplit("; ", 1))
    yield check_engine_clock(at - SystemClock().wall_ms(), shared=is_postgres(url) or is_bucket(url))
    if is_bucket(url):
        yield from check_bucket(url)


def check_sqlite_store(file: Path) -> Iterator[Finding]:
    file = file.resolve() if file.is_symlink() else file  # its journal is beside the file that the link leads to
    findings = list(check_folder(file.absolute().parent))
    yield from findings
    if not none_failed(findings):
        return
    if file.exists():
        yield from check_file(file)
    else:
        yield check_missing_file(file)


async def _probe_engine(url: str) -> tuple[Durability, int, str, Finding]:
    """Open the engine and look up a job that does not exist: the reply has the time of the engine."""
    # A check creates no tables, and writes no readable objects of a bucket that is not verified yet.
    url = f"{url}{'&' if '?' in url else '?'}migrate=off" if is_postgres(url) else url
    engine = await open_engine(url, examine=True)
    try:
        replies: list[AnyReply] = list(await engine.execute([LookUpJob(tenant=TENANT_DEFAULT, job_id=new_job_id())]))
        settings = await _check_settings(engine)
        return engine.info.durability, getattr(replies[0], "at", 0), engine.info.durability_warning, settings
    finally:
        await engine.aclose()


async def _check_settings(engine: Engine) -> Finding:
    """What the variables of this shell say must be what the ledger says: a service that is started here would be refused."""
    stored = await load_settings(engine)
    if stored is None:
        return ok("settings", "none are stored yet; the first process that uses the ledger stores them")
    try:
        refuse_differences(engine, stored.settings, load_service_config().said_settings())
    except OnejobError as error:
        return fail("settings", *str(error).rsplit("; ", 1))
    shown = shown_settings(stored.settings, window_ms=engine.info.window_ms)
    return ok("settings", ", ".join(f"{name} {value}" for name, (value, _) in shown.items()))


def check_bucket(url: str) -> list[Finding]:
    try:
        return asyncio.run(_check_bucket(url))
    except OnejobError as error:
        return [fail("objects", str(error))]


async def _check_bucket(url: str) -> list[Finding]:
    """The readable objects are made again from the log, which alone decides: after all of it was verified, and not before."""
    from onejob.engines.bucket import BucketEngine  # late: it needs an extra

    engine = await BucketEngine.open(url, examine=True)
    try:
        damage = await engine.find_damage()
        findings = [damage_finding(damage)]
        if not damage.found:
            findings.append(await _repair_view(engine))
        return [*findings, erasure_finding(await engine.examine_erasure())]
    finally:
        await engine.aclose()


def damage_finding(damage: "Damage") -> Finding:
    if not damage.found:
        return ok(
            "objects",
            f"{damage.entries} log entries, {damage.snapshots} snapshots and {damage.payloads} payloads are undamaged",
        )
    more = f", and {len(damage.found) - _DAMAGE_SHOWN} more" if len(damage.found) > _DAMAGE_SHOWN else ""
    return fail(
        "objects",
        f"{', '.join(damage.found[:_DAMAGE_SHOWN])}{more}",
        "restore them from versions or a copy of the bucket; nothing was repaired",
    )


async def _repair_view(engine: "BucketEngine") -> Finding:
    if not engine.has_view:
        return ok("view", "off: the bucket has no readable objects")
    return view_finding(await engine.repair_view())


def view_finding(repair: "ViewRepair") -> Finding:
    if not (repair.missing or repair.changed or repair.left_over):
        return ok("view", f"all {repair.objects} readable objects are as the log says")
    return warn(
        "view",
        f"of {repair.objects} readable objects {repair.missing} were missing and {repair.changed} changed; "
        f"{repair.left_over} more were left over",
        "they are right again; no answer depended on them, but find the program that writes to this bucket",
    )


def erasure_finding(erasure: "Erasure | None") -> Finding:
    if erasure is None:
        return ok("erasure", "nothing is left of purged tenants")
    return warn(
        "erasure",
        f"{erasure.remaining} entries and snapshots are older than the purge of {to_utc(erasure.requested_at):%F %T} UTC",
        f"a running process deletes them from {to_utc(erasure.gone_at):%F %T} UTC on; old versions are for the bucket's owner",
    )


def _check_durability(declared: Durability) -> Finding:
    if declared is Durability.PROCESS:
        return warn("durability", "process: everything is lost when it ends", "use sqlite:///file.db for real work")
    survived = "a crash and a power failure" if declared is Durability.DISK else "the loss of a machine"
    return ok("durability", f"{declared}: acknowledged jobs survive {survived}")


def check_engine_clock(offset_ms: int, *, shared: bool = False) -> Finding:
    seconds = offset_ms / 1000
    if abs(offset_ms) <= _ENGINE_OFFSET_MS_MAX:
        return ok("clock", f"the engine's time and the wall clock differ by {seconds:+.3f} s")
    if shared:
        return warn(
            "clock",
            f"the server's clock and this machine's differ by {seconds:+.1f} s",
            "keys expire by the clock of the server: check that it is right",
        )
    return warn(
        "clock",
        f"the engine's time and the wall clock differ by {seconds:+.1f} s: the wall clock was set after the boot",
        "keys expire by the engine's time; restart the machine if the difference matters",
    )
