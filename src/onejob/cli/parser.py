"""The argument parser: every command and option, its help, and an example for each command."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from datetime import datetime, timedelta
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Protocol

from onejob.cli.commands.check import add_check_arguments
from onejob.cli.commands.prove import add_prove_arguments
from onejob.cli.commands.relay.outbox import DIALECTS, TABLE_DEFAULT
from onejob.cli.key_files import KeyFormat
from onejob.core import timestamps
from onejob.core.credentials import Role
from onejob.core.errors import Invalid
from onejob.core.ledger_settings import SETTINGS
from onejob.core.limits import LIMIT_MAX, CostAction, Period
from onejob.core.states import Delivery, JobState
from onejob.core.work import Resolution
from onejob.engine import PAGE_MAX
from onejob.ledger import URL_DEFAULT
from onejob.worker.worker import CONCURRENCY_DEFAULT, DRAIN_DEFAULT

from .commands.completion import SHELLS
from .commands.demo import JOBS_DEFAULT, JOBS_MAX
from .commands.run_once import SCOPE_DEFAULT
from .commands.top import INTERVAL_DEFAULT
from .exit_codes import EXIT_CODE_MEANINGS

PAGE_DEFAULT = 20
LEASE_DEFAULT = "60s"
OUTPUT_KIB_MAX = 256
TARGET_GROUP = "target and output"
_JOB_ID = "01a1e305-b1fa-7420-b68b-a05f87952eb0"
_ENGINE_HELP = f"work on this engine; default: ONEJOB_ENGINE, else {URL_DEFAULT}"
_TENANT_HELP = "the tenant, on an engine; default: default"
_JSON_HELP = "print JSON"

DESCRIPTION = "One logical submission creates one job, however often it is repeated."
EPILOG = """\
The commands work on an engine (--engine) or against a server (--url); most take --json.
run-once, check and prove have exit codes of their own: see their --help.

exit codes:
""" + "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODE_MEANINGS.items())


_RUN_ONCE_EXIT_CODES = """\
exit codes: those of COMMAND; 128 + n if signal n ended it; or
  64  wrong usage
  65  the key was used for another command
  69  the store cannot be reached, or did not answer in time
  70  at most once: it may have been started, and how it ended is not known
  75  it is running elsewhere
  77  the store refuses the credential"""


class Subparsers(Protocol):
    def add_parser(self, name: str, **options: Any) -> ArgumentParser: ...


def build_parser() -> ArgumentParser:
    parser = _make_parser(ArgumentParser, prog="onejob", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"onejob {version('onejob')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    _add_serve(commands)
    _add_manager(commands)
    _add_gate(commands)
    _add_worker(commands)
    _add_demo(commands)
    _add_submit(commands)
    _add_job_commands(commands)
    _add_outcome_commands(commands)
    _add_key_commands(commands)
    _add_client_commands(commands)
    _add_quota_commands(commands)
    _add_reservation_commands(commands)
    _add_api_key_commands(commands)
    _add_gate_key_commands(commands)
    _add_settings_commands(commands)
    _add_webhook_secret_commands(commands)
    _add_schedule_commands(commands)
    _add_operator_commands(commands)
    _add_doctor(commands)
    _add_migrate(commands)
    _add_completion(commands)
    _add_relay(commands)
    _add_run_once(commands)
    _add_check(commands)
    _add_backup_commands(commands)
    _add_key_file_commands(commands)
    _add_prove(commands)
    return parser


def _add_serve(commands: Subparsers) -> None:
    command = _add_command(
        commands, "serve", "Serve the HTTP API.", "onejob serve --port 8001 --engine sqlite:///onejob.db"
    )
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    _add_listener_arguments(command)
    command.add_argument("--json", action="store_true", help="print the readiness line and the log in JSON")
    command.add_argument("--app", metavar="MODULE:APP", help="also run the jobs of this onejob.App in this process")
    _add_concurrency_argument(command)


def _add_listener_arguments(command: ArgumentParser) -> None:
    """Without defaults: an option that is not given may be set by a variable or the file."""
    command.add_argument("--host", help="default: 127.0.0.1; another one needs authentication")
    command.add_argument("--port", type=int, help="default: 8001; 0: any free port")
    command.add_argument(
        "--workers", metavar="N", type=_parse_workers, help="server processes; auto: one per core; default: 1"
    )
    command.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM, with its chain)")
    command.add_argument("--tls-key", metavar="FILE", help="the private key of the certificate (PEM)")
    command.add_argument("--config", metavar="FILE", help="settings in TOML; ONEJOB_* variables override them")


def _add_manager(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "manager",
        "Own a ledger and serve it to gates.",
        "onejob manager --engine postgresql://db.example/onejob --bind 10.0.0.5:8002",
    )
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    command.add_argument(
        "--bind",
        metavar="HOST:PORT",
        default="127.0.0.1:8002",
        help="default: %(default)s; another host needs a gate key or client certificates",
    )
    command.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM, with its chain)")
    command.add_argument("--tls-key", metavar="FILE", help="the private key of the certificate (PEM)")
    command.add_argument(
        "--tls-client-ca", metavar="FILE", help="accept only gates with a certificate that this one signed (PEM)"
    )
    command.add_argument(
        "--config",
        metavar="FILE",
        help="settings in TOML: rates, which all gates take from here, and settings of the ledger, if nobody has said them",
    )
    command.add_argument("--json", action="store_true", help="print the readiness line and the log in JSON")


def _add_gate(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "gate",
        "Serve the HTTP API in front of managers, without a store of its own.",
        "onejob gate --manager http://m1:8002,http://m2:8002 --port 8001",
    )
    command.add_argument(
        "--manager", metavar="URLS", help="all managers of one ledger; the credential is in ONEJOB_GATE_KEY"
    )
    _add_listener_arguments(command)
    command.add_argument("--json", action="store_true", help="print the readiness line and the log in JSON")


def _add_worker(commands: Subparsers) -> None:
    command = _add_command(
        commands, "worker", "Run jobs with the handlers of an app.", "onejob worker shop.jobs:app --concurrency 20"
    )
    command.add_argument("app", metavar="MODULE:APP", help="the onejob.App, as shop.jobs:app")
    add_worker_arguments(command)
    command.add_argument("--engine", metavar="URL", help=f"default: ONEJOB_ENGINE, else {URL_DEFAULT}")


def add_worker_arguments(command: ArgumentParser) -> None:
    """The options of every command that runs a worker."""
    _add_concurrency_argument(command)
    command.add_argument(
        "--types", metavar="A,B", help="run only jobs of these types; default: all that the app has handlers for"
    )
    command.add_argument(
        "--lease",
        type=parse_duration,
        default=parse_duration(LEASE_DEFAULT),
        metavar="DURATION",
        help=f"how long a job stays claimed without a heartbeat of its worker; default: {LEASE_DEFAULT}",
    )
    command.add_argument(
        "--drain",
        type=parse_duration,
        default=DRAIN_DEFAULT,
        metavar="DURATION",
        help="how long handlers may continue after a shutdown signal; default: 20s",
    )
    command.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve the metrics of this worker for Prometheus, without authentication; only a port: on 127.0.0.1",
    )
    command.add_argument("--tenant", metavar="NAME", help="run only jobs of this tenant; default: all, in turn")
    command.add_argument("--json", action="store_true", help="print the readiness and summary lines in JSON")


def _add_demo(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "demo",
        "Submit orders through a faulty network, and see one job and one result for each.",
        "onejob demo --jobs 100",
    )
    command.add_argument(
        "--jobs", type=int, default=JOBS_DEFAULT, metavar="N", help=f"1 to {JOBS_MAX}; default: %(default)s"
    )
    command.add_argument("--json", action="store_true", help="print only the figures, in JSON")


def _add_submit(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "submit",
        "Submit a job, or get the one that the key already created.",
        """onejob submit charge --key charge-ORD-123 --input '{"order": "ORD-123", "amount": 42}'""",
    )
    command.add_argument("type", metavar="TYPE", help="the type of the job")
    command.add_argument(
        "--input", default="null", metavar="JSON", help="the input: JSON, @file, or - for standard input"
    )
    command.add_argument("--key", help="one key per intended job, the same on every retry")
    command.add_argument("--scope", help="the namespace of the key; default: the job type")
    command.add_argument("--client", metavar="ID", help="the client whose sequence this is the next number of")
    command.add_argument("--sequence", type=int, metavar="N", help="the number; with --client, --scope and --key")
    command.add_argument(
        "--ttl", type=parse_duration, metavar="DURATION", help="the window of the key; default: the server's, or 24h"
    )
    command.add_argument("--priority", type=int, default=0, metavar="N", help="higher runs earlier; default: 0")
    command.add_argument("--run-at", type=parse_time, metavar="TIME", help="not before, as 2030-01-31T12:00:00Z")
    command.add_argument(
        "--label", type=parse_label, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    command.add_argument(
        "--delivery",
        choices=_choices(Delivery),
        default=Delivery.AT_LEAST_ONCE.value,
        metavar="WORD",
        help=f"{' or '.join(Delivery)}; default: %(default)s",
    )
    command.add_argument("--cost", metavar="AMOUNT", help="the estimated cost, as 12.50")
    command.add_argument("--reservation", metavar="ID", help="a slot that was reserved for the job")
    command.add_argument(
        "--site", action="append", metavar="NAME", help="a data centre that runs it; may be repeated, needs --url"
    )
    _add_ci_arguments(command)
    _add_target_arguments(command)


def _add_ci_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--key-from-ci",
        action="store_true",
        help="derive the key from the commit and the CI job: a re-run gets the same job",
    )
    command.add_argument(
        "--key-part",
        action="append",
        default=[],
        metavar="TEXT",
        help="distinguishes several submissions of one CI job, as in a matrix; may be repeated",
    )
    command.add_argument(
        "--retry-for",
        type=parse_duration,
        metavar="DURATION",
        help="against a server: retry for this long; default: four attempts",
    )
    command.add_argument(
        "--wait", action="store_true", help="wait until the job has ended; its state decides the exit code"
    )
    command.add_argument(
        "--wait-for", type=parse_duration, metavar="DURATION", help="the same, but no longer than this"
    )


def _add_job_commands(commands: Subparsers) -> None:
    for name, text in (("job", "Show a job."), ("cancel", "Cancel a job that has not ended.")):
        command = _add_command(commands, name, text, f"onejob {name} {_JOB_ID}")
        command.add_argument("id", metavar="ID", help="the id of the job")
        if name == "job":
            command.add_argument("--wait", action="store_true", help="until it has ended")
            command.add_argument("--input", action="store_true", help="print its input instead, as JSON; for operators")
            command.add_argument(
                "--sites",
                action="store_true",
                help="show how it stands at each of its data centres, and other jobs under its key",
            )
        else:
            _add_verb_key_argument(command)
        _add_target_arguments(command)
    _add_jobs(commands)


def _add_jobs(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "jobs",
        "List jobs, newest first; or cancel, rerun or resolve all that match.",
        "onejob jobs --state lost --type charge --since 2h --rerun",
    )
    command.add_argument("--state", choices=_choices(JobState), metavar="STATE", help=f"one of {', '.join(JobState)}")
    command.add_argument("--type", metavar="TYPE", help="only jobs of this type")
    command.add_argument("--user", metavar="NAME", help="only jobs of this user")
    command.add_argument("--label", type=parse_label, metavar="NAME=VALUE", help="only jobs with this label")
    for name, text in (("--since", "not before this time"), ("--until", "not after this time")):
        command.add_argument(
            name, type=parse_moment, metavar="TIME", help=f"created {text}: 2h (ago), or 2030-01-31T12:00:00Z"
        )
    _add_paging_arguments(command)
    act = command.add_argument_group("one act on all jobs that match, not only on a page")
    one = act.add_mutually_exclusive_group()
    one.add_argument("--cancel", action="store_true", help="cancel those that have not ended")
    one.add_argument("--rerun", action="store_true", help="run failed or lost ones again")
    verdicts = [verdict.value for verdict in Resolution if verdict is not Resolution.RERUN]
    one.add_argument(
        "--resolve", choices=verdicts, metavar="WORD", help=f"decide about lost ones: {', '.join(verdicts)}"
    )
    act.add_argument("--yes", action="store_true", help="do not ask; otherwise the number of jobs is shown first")
    _add_target_arguments(command)


def _add_operator_commands(commands: Subparsers) -> None:
    command = _add_command(
        commands, "workers", "List the workers that were heard of within the last minute.", "onejob workers"
    )
    _add_target_arguments(command)
    command = _add_command(
        commands, "types", "List job types with their jobs; pause or resume one.", "onejob types pause mail"
    )
    command.add_argument("act", nargs="?", choices=["pause", "resume"], metavar="ACT", help="pause or resume")
    command.add_argument("type", nargs="?", metavar="TYPE", help="the type whose jobs nobody claims any more, or again")
    _add_target_arguments(command)
    command = _add_command(
        commands,
        "stats",
        "Show jobs by state and type, and submissions and attempts of the last hour and day.",
        "onejob stats --url http://127.0.0.1:8001",
    )
    _add_target_arguments(command)
    command = _add_command(
        commands,
        "top",
        "Show statistics and workers, live on a terminal (q quits); elsewhere once.",
        "onejob top --interval 5s",
    )
    command.add_argument(
        "--interval",
        type=parse_duration,
        default=INTERVAL_DEFAULT,
        metavar="DURATION",
        help="how often the screen is painted; default: 2s",
    )
    _add_target_arguments(command)


def _add_completion(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "completion",
        "Print a script that completes commands and options in a shell.",
        'eval "$(onejob completion bash)"',
    )
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def _add_outcome_commands(commands: Subparsers) -> None:
    result = _add_command(commands, "result", "Print the result of a job, as JSON.", f"onejob result {_JOB_ID}")
    logs = _add_command(commands, "logs", "Print the log lines of a job.", f"onejob logs {_JOB_ID} --follow")
    logs.add_argument("--follow", action="store_true", help="continue until the job has ended")
    logs.add_argument("--offset", type=int, default=0, metavar="N", help="skip this many lines; default: 0")
    resolve = _add_command(
        commands,
        "resolve",
        "Decide about a lost job, or run a failed one again.",
        f"onejob resolve {_JOB_ID} rerun --note 'the bank never got it'",
    )
    for command in (result, logs, resolve):
        command.add_argument("id", metavar="ID", help="the id of the job")
    resolve.add_argument("resolution", choices=_choices(Resolution), metavar="WORD", help=f"{', '.join(Resolution)}")
    resolve.add_argument("--note", default="", metavar="TEXT", help="the reason, for the history of the job")
    _add_verb_key_argument(resolve)
    for command in (result, logs, resolve):
        _add_target_arguments(command)


def _add_verb_key_argument(command: ArgumentParser) -> None:
    command.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="given again with the same job, it changes nothing and gives the same answer; default: a new one",
    )


def _add_key_commands(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "explain",
        "Show the history of a key: who used it first, its job, its duplicates, its window.",
        "onejob explain charge-ORD-123 --scope charge",
    )
    command.add_argument("key", metavar="KEY", help="the key as it was submitted")
    command.add_argument("--scope", required=True, help="the job type, unless the submission named another scope")
    command.add_argument("--user", metavar="NAME", help="the user of the key, if every user has its own keys")
    _add_target_arguments(command)
    command = _add_command(commands, "keys", "List the keys that are remembered.", "onejob keys --scope charge")
    command.add_argument("--scope", help="only keys of this scope")
    command.add_argument("--user", metavar="NAME", help="only keys that this user was the first to use")
    _add_paging_arguments(command)
    _add_target_arguments(command)


def _add_client_commands(commands: Subparsers) -> None:
    example = "onejob client state host1:billing --scope acme"
    subcommands = _add_group(commands, "client", "Show a client that numbers its submissions.", example)
    state = _add_command(subcommands, "state", "Show the last committed number of a client.", example)
    state.add_argument("client", metavar="ID", help="the id of the client")
    state.add_argument("--scope", required=True, help="the scope of the sequence")
    _add_target_arguments(state)


def _add_quota_commands(commands: Subparsers) -> None:
    subcommands = _add_group(
        commands,
        "quota",
        "Set, show and clear the limits of a user, or of a tenant's users.",
        "onejob quota set 42 --max-concurrent 5",
    )
    texts = {
        "set": ("Replace the limits: what is not named is unlimited.", "--max-concurrent 5"),
        "show": ("Show the limits, and those in effect.", ""),
        "clear": ("Remove the limits.", ""),
    }
    for name, (text, words) in texts.items():
        command = _add_command(subcommands, name, text, f"onejob quota {name} 42 {words}".rstrip())
        command.add_argument("user", nargs="?", metavar="USER", help="the user; or one of the next two")
        one = command.add_mutually_exclusive_group()
        for half, of_whom in (("default", "of users without limits of their own"), ("ceiling", "of all users")):
            one.add_argument(f"--{half}", dest="half", action="store_const", const=half, help=of_whom)
        if name == "set":
            _add_limit_arguments(command)
        _add_target_arguments(command)
    command = _add_command(commands, "usage", "Show the usage and limits of a user.", "onejob usage --user 42")
    command.add_argument("--user", metavar="NAME", help="the user; default: yourself")
    _add_target_arguments(command)


def _add_limit_arguments(command: ArgumentParser) -> None:
    counts = {
        "--max-concurrent": "live jobs and reservations at a time; 0: none",
        "--per-hour": "new jobs in any hour",
        "--per-day": "new jobs in any day",
    }
    for name, text in counts.items():
        command.add_argument(name, type=_parse_count, metavar="N", help=text)
    command.add_argument("--cost", metavar="AMOUNT", help="money in a period, as 100 or 12.50")
    command.add_argument(
        "--period",
        choices=_choices(Period),
        default=Period.MONTH.value,
        metavar="WORD",
        help=f"of --cost: {', '.join(Period)}; default: %(default)s",
    )
    command.add_argument(
        "--action",
        choices=_choices(CostAction),
        default=CostAction.BLOCK.value,
        metavar="WORD",
        help=f"beyond --cost: {' or '.join(CostAction)}; default: %(default)s",
    )


def _add_reservation_commands(commands: Subparsers) -> None:
    example = "onejob reservations list --user 42"
    subcommands = _add_group(commands, "reservations", "List reservations, and release them.", example)
    listing = _add_command(subcommands, "list", "List reservations, oldest first.", example)
    listing.add_argument("--user", metavar="NAME", help="the user; default: yourself")
    _add_target_arguments(listing)
    release = _add_command(subcommands, "release", "Release a slot.", "onejob reservations release ID")
    release.add_argument("id", metavar="ID", help="the id that `onejob reservations list` shows")
    _add_target_arguments(release)


def _add_api_key_commands(commands: Subparsers) -> None:
    subcommands = _add_group(
        commands,
        "apikey",
        "Create, list, rotate and revoke the API keys of a tenant, on its engine.",
        "onejob apikey create ci --tenant acme --role submitter",
    )
    create = _add_command(
        subcommands,
        "create",
        "Create an API key. Its secret is printed once.",
        "onejob apikey create ci --role submitter",
    )
    create.add_argument("name", metavar="NAME", help="the name of the key: its actor is client:NAME")
    create.add_argument("--user", help="the user whose jobs and quotas it counts for; default: api_key:NAME")
    create.add_argument(
        "--role",
        action="append",
        choices=_choices(Role),
        metavar="ROLE",
        help=f"{', '.join(Role)}; may be repeated; default: {Role.SUBMITTER}",
    )
    listing = _add_command(subcommands, "list", "List the API keys of a tenant.", "onejob apikey list --tenant acme")
    rotate = _add_command(
        subcommands, "rotate", "Give an API key a new secret.", "onejob apikey rotate 5f0c2a9d4b7e --overlap 1h"
    )
    rotate.add_argument(
        "--overlap",
        type=parse_duration,
        default=parse_duration("24h"),
        metavar="DURATION",
        help="how long the old secret stays valid; default: 24h",
    )
    revoke = _add_command(subcommands, "revoke", "Revoke an API key for good.", "onejob apikey revoke 5f0c2a9d4b7e")
    for command in (rotate, revoke):
        command.add_argument("id", metavar="ID", help="the id that `onejob apikey list` shows")
    for command in (create, listing, rotate, revoke):
        _add_engine_arguments(command)


def _add_gate_key_commands(commands: Subparsers) -> None:
    subcommands = _add_group(
        commands,
        "gatekey",
        "Create, list, rotate and revoke the credentials of gates, on the engine of their managers.",
        "onejob gatekey create dc1 --engine postgresql://db.example/onejob",
    )
    create = _add_command(
        subcommands,
        "create",
        "Create a gate key. Its secret is printed once.",
        "onejob gatekey create dc1 --expires 90d",
    )
    create.add_argument("name", metavar="NAME", help="the name of the gate or of its site")
    create.add_argument(
        "--for-tenant", action="append", default=[], metavar="TENANT", help="may be repeated; default: all tenants"
    )
    create.add_argument(
        "--site", action="store_true", help="for another data centre that delivers jobs here, and may do nothing else"
    )
    create.add_argument("--expires", type=parse_duration, metavar="DURATION", help="default: never")
    listing = _add_command(subcommands, "list", "List the gate keys of a ledger.", "onejob gatekey list")
    rotate = _add_command(
        subcommands, "rotate", "Give a gate key a new secret.", "onejob gatekey rotate 5f0c2a9d4b7e --overlap 1h"
    )
    rotate.add_argument(
        "--overlap",
        type=parse_duration,
        default=parse_duration("24h"),
        metavar="DURATION",
        help="how long the old secret stays valid; default: 24h",
    )
    revoke = _add_command(subcommands, "revoke", "Revoke a gate key for good.", "onejob gatekey revoke 5f0c2a9d4b7e")
    for command in (rotate, revoke):
        command.add_argument("id", metavar="ID", help="the id that `onejob gatekey list` shows")
    for command in (create, listing, rotate, revoke):
        target = command.add_argument_group(TARGET_GROUP)
        target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
        target.add_argument("--json", action="store_true", help=_JSON_HELP)
        command.set_defaults(url=None, api_key=None, tenant=None)


def _add_settings_commands(commands: Subparsers) -> None:
    text = "Show the settings that are stored in a ledger, which all its processes share; `set` changes them."
    group = _add_command(commands, "settings", text, "onejob settings --engine sqlite:///onejob.db")
    subcommands = group.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", title="subcommands")
    names = ", ".join(f"{setting.name} ({setting.meaning})" for setting in SETTINGS)
    change = _add_command(
        subcommands,
        "set",
        f"Change settings of a ledger: {names}. What enters the identity of keys changes only while no key is live.",
        "onejob settings set key_owner=user window=48h --dry-run",
    )
    change.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="e.g. key_owner=user or window=48h")
    change.add_argument("--dry-run", action="store_true", help="show what would change and what stands in its way")
    in_group: dict[str, Any] = {}
    in_set: dict[str, Any] = {"default": SUPPRESS}  # what stands before `set` counts too
    for command, defaults in ((group, in_group), (change, in_set)):
        target = command.add_argument_group(TARGET_GROUP)
        target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP, **defaults)
        target.add_argument("--json", action="store_true", help=_JSON_HELP, **defaults)
    group.set_defaults(url=None, api_key=None, tenant=None)


def _add_webhook_secret_commands(commands: Subparsers) -> None:
    example = "onejob webhook-secret create --tenant acme"
    text = "Create or rotate the secret that signs a tenant's webhook callbacks."
    subcommands = _add_group(commands, "webhook-secret", text, example)
    _add_engine_arguments(_add_command(subcommands, "create", "Create the secret. It is printed once.", example))
    text = "Create a new secret; callbacks are also signed with the two before it."
    _add_engine_arguments(_add_command(subcommands, "rotate", text, "onejob webhook-secret rotate --tenant acme"))


def _add_schedule_commands(commands: Subparsers) -> None:
    example = "onejob schedules list"
    subcommands = _add_group(commands, "schedules", "List, pause and resume the schedules of workers.", example)
    listing = _add_command(subcommands, "list", "List the schedules that workers have registered.", example)
    named = [
        _add_command(subcommands, name, text, f"onejob schedules {name} nightly-report")
        for name, text in (
            ("pause", "Submit no job of a schedule until it is resumed."),
            ("resume", "Submit jobs of a schedule again, and as many missed ones as it catches up."),
            ("delete", "Forget a schedule that no worker has any more."),
        )
    ]
    for command in named:
        command.add_argument("name", metavar="NAME", help="the name that `onejob schedules list` shows")
    for command in (listing, *named):
        _add_engine_arguments(command)


def _add_doctor(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "doctor",
        "Check a store or a server: integrity, durability, permissions, clock; and what to do about problems.",
        "onejob doctor --engine sqlite:///onejob.db",
    )
    command.add_argument(
        "--production",
        action="store_true",
        help="check also what docs/production.md asks for; what it requires fails instead of warning",
    )
    _add_target_arguments(command)


def _add_migrate(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "migrate",
        "Upgrade the schema of a store to this version, or create it.",
        "onejob migrate --engine postgresql://owner@db.example/onejob",
    )
    target = command.add_argument_group(TARGET_GROUP)
    target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    target.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_relay(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "relay",
        "Submit the rows of an application's outbox table, each once, and delete what was accepted.",
        "onejob relay --from sqlite:///shop.db --url http://127.0.0.1:8001",
    )
    command.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="the application's database: sqlite:///…, postgresql://…, mysql://…, or any URL of SQLAlchemy",
    )
    command.add_argument("--table", default=TABLE_DEFAULT, metavar="NAME", help="default: %(default)s")
    command.add_argument(
        "--schema",
        nargs="?",
        const=DIALECTS[0],
        choices=DIALECTS,
        metavar="DIALECT",
        help=f"only print the statement that creates the table: {', '.join(DIALECTS)}; default: {DIALECTS[0]}",
    )
    command.add_argument("--once", action="store_true", help="exit when every row has been tried once")
    command.add_argument(
        "--poll",
        type=parse_duration,
        default=parse_duration("1s"),
        metavar="DURATION",
        help="the pause between two passes over the table; default: 1s",
    )
    _add_target_arguments(command)


def _add_run_once(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "run-once",
        "Run a command once per key, over all hosts that share the store.",
        'onejob run-once "backup@$(date -u +%F)" -- backup --full',
    )
    command.epilog = f"{command.epilog}\n\n{_RUN_ONCE_EXIT_CODES}"
    command.add_argument("key", metavar="KEY", help="one key per intended run, the same on every host and retry")
    command.add_argument("argv", metavar="COMMAND", nargs="+", help="the command and its arguments, after --")
    command.add_argument("--scope", default=SCOPE_DEFAULT, help="the namespace of the key; default: %(default)s")
    command.add_argument(
        "--window", type=parse_duration, metavar="DURATION", help="how long the outcome is replayed; default: 24h"
    )
    command.add_argument(
        "--lease",
        type=parse_duration,
        default=parse_duration(LEASE_DEFAULT),
        metavar="DURATION",
        help=f"how long after a crash the command can run again; default: {LEASE_DEFAULT}",
    )
    command.add_argument(
        "--at-most-once", action="store_true", help="never start it twice, even if it may have been interrupted"
    )
    command.add_argument("--keep-failures", action="store_true", help="replay also a non-zero exit code")
    waiting = command.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", type=parse_duration, metavar="DURATION", help="wait so long for a run elsewhere; default: for ever"
    )
    waiting.add_argument("--skip", action="store_true", help="while it runs elsewhere, exit at once with 75")
    command.add_argument(
        "--output",
        type=_parse_output_bytes,
        default=0,
        metavar="SIZE",
        help=f"store so much of each output stream for replays, as 64k, up to {OUTPUT_KIB_MAX}k; default: none",
    )
    _add_run_process_arguments(command)


def _add_check(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "check",
        "Judge from outside whether an HTTP API keeps what the Idempotency-Key header promises.",
        """onejob check http://127.0.0.1:8000/orders --body '{"amount": 5}' --id order.id""",
    )
    add_check_arguments(command)


def _add_prove(commands: Subparsers) -> None:
    command = _add_command(
        commands,
        "prove",
        "Repeat the claim of one job per key on this machine: kill -9, lost answers, raced duplicates; with a report.",
        "onejob prove postgresql://db.example/onejob --quick",
    )
    add_prove_arguments(command)


def _add_backup_commands(commands: Subparsers) -> None:
    backup = _add_command(
        commands,
        "backup",
        "Copy a SQLite store to a file while it is in use; verified before the file gets its name.",
        "onejob backup onejob-2030-01-31.db --engine sqlite:///onejob.db",
    )
    backup.add_argument("file", metavar="FILE", help="the new file")
    backup.add_argument("--force", action="store_true", help="replace the file if it exists")
    restore = _add_command(
        commands,
        "restore",
        "Put a backup in the place of a SQLite store that nobody uses; the old store is moved aside.",
        "onejob restore onejob-2030-01-31.db --engine sqlite:///onejob.db",
    )
    restore.add_argument("file", nargs="?", metavar="FILE", help="a file that `onejob backup` made")
    restore.add_argument(
        "--accept-loss",
        action="store_true",
        help="instead of a FILE: serve a store or bucket that lacks acknowledged commits, or the file of another ledger, as "
        "it is: as a new ledger",
    )
    restore.add_argument(
        "--force",
        action="store_true",
        help="with --accept-loss: also if no commit is known to be missing, e.g. after an older folder was put back",
    )
    for command in (backup, restore):
        target = command.add_argument_group(TARGET_GROUP)
        target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
        target.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_key_file_commands(commands: Subparsers) -> None:
    export = _add_command(
        commands, "export", "Write the keys of a tenant as CSV or JSONL.", "onejob export keys.csv --tenant acme"
    )
    export.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: -, standard output")
    export.add_argument("--force", action="store_true", help="replace the file if it exists")
    export.add_argument("--scope", help="only keys of this scope")
    load = _add_command(
        commands,
        "import",
        "Store the keys of a CSV or JSONL file, with the ids of the jobs that they made elsewhere.",
        "onejob import keys.csv --scope charge --window 30d",
    )
    load.add_argument("file", metavar="FILE", help="-: standard input")
    load.add_argument("--scope", help="of lines that name none; default: queue, for all job types")
    load.add_argument(
        "--window", type=parse_duration, metavar="DURATION", help="of lines without expires_at; default: 24h"
    )
    load.add_argument("--from-line", type=int, default=1, metavar="N", help="go on with this line of the file")
    load.add_argument(
        "--rejects", metavar="FILE", help="append lines with a conflict or an error to this file, as JSON"
    )
    for command in (export, load):
        command.add_argument(
            "--format", choices=_choices(KeyFormat), metavar="WORD", help="csv or jsonl; default: by the file's name"
        )
        _add_engine_arguments(command)


def _add_run_process_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="this variable belongs to the command: with another value, the key is a conflict; may be repeated",
    )
    command.add_argument(
        "--grace",
        type=parse_duration,
        default=parse_duration("10s"),
        metavar="DURATION",
        help="how long the command may continue after a signal was handed on to it; default: 10s",
    )
    command.add_argument("--verbose", action="store_true", help="say on standard error that the outcome is a replay")
    target = command.add_argument_group(TARGET_GROUP)
    target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    target.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)


def _add_concurrency_argument(command: ArgumentParser) -> None:
    command.add_argument(
        "--concurrency",
        type=int,
        default=CONCURRENCY_DEFAULT,
        metavar="N",
        help="how many jobs run at once; default: %(default)s",
    )


def _add_paging_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--limit",
        type=_parse_page_size,
        default=PAGE_DEFAULT,
        metavar="N",
        help=f"1 to {PAGE_MAX}; default: %(default)s",
    )
    command.add_argument("--cursor", metavar="TEXT", help="the cursor that the previous page ended with")


def _add_target_arguments(command: ArgumentParser) -> None:
    target = command.add_argument_group(TARGET_GROUP)
    one = target.add_mutually_exclusive_group()
    one.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    one.add_argument(
        "--url", metavar="URL", help="work against this server, as http://127.0.0.1:8001; default: ONEJOB_URL"
    )
    target.add_argument(
        "--api-key", metavar="KEY", help="for the server; default: ONEJOB_API_KEY, which other users cannot see"
    )
    target.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    target.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_engine_arguments(command: ArgumentParser) -> None:
    """The target of a command that works on an engine only."""
    target = command.add_argument_group(TARGET_GROUP)
    target.add_argument("--engine", metavar="URL", help=_ENGINE_HELP)
    target.add_argument("--tenant", metavar="NAME", help=_TENANT_HELP)
    target.add_argument("--json", action="store_true", help=_JSON_HELP)
    command.set_defaults(url=None, api_key=None)


def _add_group(commands: Subparsers, name: str, text: str, example: str) -> Subparsers:
    group = _add_command(commands, name, text, example)
    return group.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND", title="subcommands")


def _add_command(commands: Subparsers, name: str, text: str, example: str) -> ArgumentParser:
    return _make_parser(commands.add_parser, name, help=text, description=text, epilog=f"example:\n  {example}")


def _make_parser(make: Any, *names: str, **options: Any) -> ArgumentParser:
    # Without abbreviations: one that works today could mean another option tomorrow.
    made: ArgumentParser = make(*names, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **options)
    return made


def _choices(kind: type[StrEnum]) -> list[str]:
    """Plain strings, which argparse shows in its error message."""
    return [member.value for member in kind]


def _parse_workers(text: str) -> int | str:
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is no number of processes; write a number, or auto")
    return int(text)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= LIMIT_MAX):
        raise ArgumentTypeError(f"{text!r} is no limit; write a whole number from 0 to {LIMIT_MAX}")
    return int(text)


def _parse_page_size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= PAGE_MAX):
        raise ArgumentTypeError(f"{text!r} is no page size; write a number from 1 to {PAGE_MAX}")
    return int(text)


def _parse_output_bytes(text: str) -> int:
    digits = text.lower().removesuffix("k")
    if text == "none":
        return 0
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise ArgumentTypeError(f"{text!r} is no size; write 64k, 1000 or none")
    size = int(digits) * (1 if digits == text else 1024)
    if size > OUTPUT_KIB_MAX * 1024:
        raise ArgumentTypeError(f"{text!r} is too much to store; write at most {OUTPUT_KIB_MAX}k")
    return size


def parse_duration(text: str) -> timedelta:
    """Parse 90s, 30m, 24h or 7d."""
    try:
        return timestamps.parse_duration("duration", text)
    except Invalid as error:
        raise ArgumentTypeError(str(error)) from None


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time with its zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is no time with a zone; write 2030-01-31T12:00:00Z")
    return moment


def parse_moment(text: str) -> datetime | timedelta:
    """A time, or how long ago it was."""
    if text[:1].isdigit():
        return parse_duration(text) if text[-1:].isalpha() and "T" not in text else parse_time(text)
    raise ArgumentTypeError(f"{text!r} is no time; write 2h for two hours ago, or 2030-01-31T12:00:00Z")


def parse_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is no label; write name=value")
    return name, value
