"""The commands `manager` and `gate`, which run until they are stopped, and `gatekey`."""

import asyncio
import sys
from argparse import Namespace
from datetime import timedelta

from msgspec import Struct

from onejob.addresses import is_loopback, parse_address
from onejob.cli.exit_codes import DONE, UNAVAILABLE, USAGE_ERROR
from onejob.cli.render import Screen, field_lines, sanitize, table_lines, to_json, write
from onejob.core.errors import Invalid
from onejob.core.fingerprint import VERSION as FINGERPRINT_VERSION
from onejob.engine import Engine, GateSettings
from onejob.engines import redact_password
from onejob.engines.remote.url import is_managers_url
from onejob.errors import StoreRefused
from onejob.http.problems import problem, to_problem
from onejob.logs import log_durability_warning, log_security_warning, open_stderr_log
from onejob.manager.gate_keys import GateKeys, GateKeyView, NewGateKey
from onejob.manager.server import ManagerConfig, serve_manager
from onejob.settings import IdempotencyConfig, load_service_config
from onejob.sync import SyncLedger

from . import serve

BIND_DEFAULT = "127.0.0.1:8002"


def run_manager(options: Namespace) -> int:
    overrides = {"engine": options.engine, "log_format": "json" if options.json else None}
    service = load_service_config(options.config, overrides=overrides)
    host, port = parse_address(options.bind, setting="bind", advice="HOST:PORT, as 127.0.0.1:8002")
    config = ManagerConfig(
        engine=service.engine,
        host=host,
        port=port,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        tls_client_ca=options.tls_client_ca,
        said=service.said_settings(),
    )
    memory = IdempotencyConfig.from_env()
    settings = GateSettings(
        fingerprint_version=FINGERPRINT_VERSION[0],
        pending_ttl_seconds=memory.pending_ttl_seconds,
        rejected_ttl_seconds=memory.rejected_ttl_seconds,
        rate_per_second=service.rate_per_second,
        rate_burst=service.rate_burst,
    )
    log = open_stderr_log(service.log_format)
    try:
        _run_loop(config, settings, options)
    except StoreRefused as error:
        return serve.report_failure(options, to_problem(error), USAGE_ERROR)
    except OSError as error:
        message = f"{error.strerror or error}; choose another address, or stop the process that uses it"
        return serve.report_failure(options, problem("SERVICE_UNAVAILABLE", message), UNAVAILABLE)
    finally:
        log.flush()
    return DONE


def _run_loop(config: ManagerConfig, settings: GateSettings, options: Namespace) -> None:
    def on_ready(address: str, engine: Engine) -> None:
        info = engine.info
        shown = redact_password(config.engine)
        if options.json:
            write(to_json({"address": address, "engine": shown, "durability": info.durability}))
        else:
            write(f"onejob manages {shown} at {address} (durability: {info.durability})")
        sys.stdout.flush()
        if config.tls_cert is None and not is_loopback(config.host):
            log_security_warning(
                f"plain HTTP on {config.host}: gate keys and payloads can be read on the network; give --tls-cert and --tls-key"
            )
        if info.durability_warning:
            log_durability_warning(info.durability_warning)

    work = serve_manager(config, settings, on_ready)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def run_gate(options: Namespace) -> int:
    options.engine = options.manager
    engine = load_service_config(options.config, overrides={"engine": options.engine}).engine
    if not is_managers_url(engine):
        raise Invalid(
            "manager",
            "a gate needs its managers: give --manager http://m1:8002,m2:8002; `onejob serve` works on a store itself",
        )
    options.app, options.concurrency = None, 1
    return serve.serve(options)


class NewGateKeyOut(Struct, frozen=True, rename="camel"):
    gate_key: GateKeyView
    secret: str


class OneGateKeyOut(Struct, frozen=True, rename="camel"):
    gate_key: GateKeyView


class GateKeysOut(Struct, frozen=True, rename="camel"):
    gate_keys: list[GateKeyView]


GateKeyCommandOut = NewGateKeyOut | OneGateKeyOut | GateKeysOut


def run_gatekey(ledger: SyncLedger, options: Namespace) -> GateKeyCommandOut:
    runtime = ledger.async_ledger.runtime
    if runtime.engine_info.owner is not None:
        raise Invalid("engine", "gate keys are made on the engine of a manager, not through it; name that engine")
    keys = GateKeys(runtime.gate, runtime.ids, actor=ledger.async_ledger.caller.actor)
    match options.subcommand:
        case "create":
            lifetime: timedelta | None = options.expires
            made = ledger.run(
                keys.create(options.name, tenants=options.for_tenant, lifetime=lifetime, is_site=options.site)
            )
            return _new_key_out(made)
        case "rotate":
            return _new_key_out(ledger.run(keys.rotate(options.id, overlap=options.overlap)))
        case "revoke":
            return OneGateKeyOut(ledger.run(keys.revoke(options.id)))
    return GateKeysOut(list(ledger.run(keys.list())))


def _new_key_out(made: NewGateKey) -> NewGateKeyOut:
    return NewGateKeyOut(made.key, made.text)


def render_gate_keys(screen: Screen, response: GateKeyCommandOut) -> str:
    match response:
        case NewGateKeyOut():
            advice = "Give it to the gates as ONEJOB_GATE_KEY. Only its hash is kept, so it cannot be shown again."
            secret = screen.paint("bold", response.secret)
            return "\n".join([*_gate_key_lines(screen, response.gate_key), "", f"  {secret}", "", advice])
        case OneGateKeyOut():
            return "\n".join(_gate_key_lines(screen, response.gate_key))
    if not response.gate_keys:
        return "no gate keys"
    rows = [(one.id, sanitize(one.name), _tenants(one), _status(screen, one)) for one in response.gate_keys]
    return "\n".join(table_lines(screen, ("ID", "NAME", "TENANTS", "STATUS"), rows))


def _gate_key_lines(screen: Screen, key: GateKeyView) -> list[str]:
    rows = [("name", sanitize(key.name)), ("tenants", _tenants(key)), ("status", _status(screen, key))]
    return [f"gate key {screen.paint('bold', key.id)}", *field_lines(screen, rows)]


def _tenants(key: GateKeyView) -> str:
    tenants = ", ".join(map(sanitize, key.tenants)) or "all"
    return f"{tenants} (site)" if key.is_site else tenants


def _status(screen: Screen, key: GateKeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {screen.time(key.revoked_at)}"
    if key.expires_at is not None:
        word = "expired" if key.expires_at <= screen.now else "valid until"
        return f"{word} {screen.time(key.expires_at)}"
    if key.old_secret_until is not None and key.old_secret_until > screen.now:
        return f"valid, the old secret until {screen.time(key.old_secret_until)}"
    return f"valid since {screen.time(key.rotated_at or key.created_at)}"
