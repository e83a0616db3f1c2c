"""The command `onejob`: serve, and look into an engine directly."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Raw, json

from . import sync
from .core.views import JobView
from .errors import IdempotencyConflict, Invalid, NotFound, OnejobError
from .opening import URL_DEFAULT

EXIT_WRONG, EXIT_CONFLICT, EXIT_UNAVAILABLE, EXIT_MISSING = 2, 3, 4, 5


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            from .http.serve import run

            run(options.engine, options.host, options.port)
            return 0
        with sync.open(options.engine, sweep=False) as ledger:
            print(json.format(json.encode(_answer(ledger, options), enc_hook=str), indent=2).decode())
        return 0
    except KeyboardInterrupt:
        return 130
    except OnejobError as error:
        print(f"onejob: {error}", file=sys.stderr)
        return _exit_code(error)
    except OSError as error:
        print(f"onejob: {error}; choose another address or file", file=sys.stderr)
        return EXIT_UNAVAILABLE


def _answer(ledger: sync.Ledger, options: argparse.Namespace) -> Any:
    match options.command:
        case "submit":
            receipt = ledger.submit(
                options.type, Raw(options.input.encode()), idempotency_key=options.key, scope=options.scope
            )
            return {"outcome": receipt.outcome, "jobId": receipt.job_id, "expiresAt": receipt.expires_at}
        case "job":
            return _shown(ledger.job(options.id))
        case "jobs":
            return [_shown(job) for job in ledger.jobs(state=options.state, limit=options.limit)]
        case "cancel":
            return _shown(ledger.cancel(options.id))
        case "explain":
            told = msgspec.structs.asdict(ledger.explain(options.key, scope=options.scope))
            return told | {"job": None if told["job"] is None else _shown(told["job"])}
    raise AssertionError(options.command)


def _shown(job: JobView) -> dict[str, Any]:
    names = ("id", "type", "state", "key", "scope", "user", "created_at", "changed_at", "ended_at", "error")
    return {name: getattr(job, name) for name in names}


def _exit_code(error: OnejobError) -> int:
    match error:
        case Invalid():
            return EXIT_WRONG
        case IdempotencyConflict():
            return EXIT_CONFLICT
        case NotFound():
            return EXIT_MISSING
    return EXIT_UNAVAILABLE if error.retryable else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onejob",
        description="One logical submission makes one job.",
        epilog="exit codes: 0 done, 2 wrong input, 3 conflict, 4 unavailable (repeat), 5 no such job or key",
    )
    parser.add_argument("--version", action="version", version=f"onejob {version('onejob')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--engine", default=URL_DEFAULT, metavar="URL", help="default: %(default)s")
        return made

    serve = command("serve", "Serve the HTTP interface on this machine.")
    serve.add_argument("--host", default="127.0.0.1", help="a loopback address; default: %(default)s")
    serve.add_argument("--port", type=int, default=8001, help="default: %(default)s")
    submit = command("submit", "Submit a job, or find the one that the key already made.")
    submit.add_argument("type")
    submit.add_argument("--input", default="null", metavar="JSON")
    submit.add_argument("--key", help="one key per intended job, the same on every retry")
    submit.add_argument("--scope", help="default: the job type")
    for name, text in (("job", "Show a job."), ("cancel", "Cancel a job that has not ended.")):
        command(name, text).add_argument("id")
    jobs = command("jobs", "List the newest jobs.")
    jobs.add_argument("--state")
    jobs.add_argument("--limit", type=int, default=20)
    explain = command("explain", "Tell the story of a key.")
    explain.add_argument("key")
    explain.add_argument("--scope", required=True, help="the job type, unless the submission named another")
    return parser


if __name__ == "__main__":
    sys.exit(main())
