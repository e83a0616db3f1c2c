"""Own a ledger and serve it to gates."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from onejob.addresses import is_loopback, parse_address
from onejob.cli.arguments import add_log_argument, add_tls_arguments
from onejob.cli.command import report_failure
from onejob.cli.exit_codes import DONE, UNAVAILABLE, USAGE_ERROR
from onejob.cli.render import to_json, write
from onejob.cli.worker import run_event_loop
from onejob.core.fingerprint import VERSION as FINGERPRINT_VERSION
from onejob.engine import Engine, GateSettings
from onejob.engines import redact_password
from onejob.errors import StoreRefused
from onejob.http.problems import problem, to_problem
from onejob.logs import log_durability_warning, log_security_warning, open_stderr_log
from onejob.settings import IdempotencyConfig, load_service_config

if TYPE_CHECKING:  # the dependencies of the service are optional
    from onejob.manager.server import ManagerConfig

EXAMPLE = "onejob manager --engine postgresql://db.example/onejob --bind 10.0.0.5:8002"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    command.add_argument(
        "--bind",
        metavar="HOST:PORT",
        default="127.0.0.1:8002",
        help="default: %(default)s; another host needs a gate key or client certificates",
    )
    add_tls_arguments(command)
    command.add_argument(
        "--tls-client-ca", metavar="FILE", help="accept only gates with a certificate that this one signed (PEM)"
    )
    command.add_argument(
        "--config",
        metavar="FILE",
        help="settings in TOML: rates, which all gates take from here, and settings of the ledger, if nobody has said them",
    )
    add_log_argument(command)


def run(options: Namespace) -> int:
    from onejob.manager.server import ManagerConfig

    overrides = {"engine": options.engine, "log_format": "json" if options.json else None}
    service = load_service_config(options.config, overrides=overrides)
    host, port = parse_address(options.bind, setting="bind", advice="HOST:PORT, e.g. 127.0.0.1:8002")
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
        return report_failure(options, to_problem(error), USAGE_ERROR)
    except OSError as error:
        message = f"{error.strerror or error}; choose another address, or stop the process that uses it"
        return report_failure(options, problem("SERVICE_UNAVAILABLE", message), UNAVAILABLE)
    finally:
        log.flush()
    return DONE


def _run_loop(config: "ManagerConfig", settings: GateSettings, options: Namespace) -> None:
    from onejob.manager.server import serve_manager

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

    run_event_loop(serve_manager(config, settings, on_ready))
