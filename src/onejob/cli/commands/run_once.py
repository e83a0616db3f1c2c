"""Run a command once per key, over all hosts that share the store.

How it ended is replayed.
The key is held under a lease that is renewed while the command runs. The command must not outlive this process, because
the key is free again when the lease expires: on Linux the kernel kills it with its parent, and everywhere a small shell
(`_GUARD`) kills its process group when the pipe from this process closes without a word.

In at-most-once mode a key that had a holder before is never run again, since that holder may have started the command.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Thread
from typing import IO, Any

import msgspec
from msgspec import Struct, msgpack

import onejob
from onejob.backoff import Backoff
from onejob.cli.arguments import LEASE_DEFAULT, CommandParser, add_engine_arguments, parse_duration
from onejob.cli.backend import TENANT_DEFAULT, engine_url, sqlite_file
from onejob.cli.render import print_error
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import checked_name
from onejob.core.timestamps import to_utc
from onejob.errors import (
    IdempotencyConflict,
    LeaseExpired,
    LeaseLost,
    NotAllowed,
    OnejobError,
    Outdated,
    SubmissionInProgress,
    Unavailable,
    Unknown,
)
from onejob.ledger import Ledger
from onejob.ledger.leases import LeaseRenewal, run_under_lease, settle_with_retries
from onejob.ledger.parse import Submission
from onejob.runtime.receipts import HeldKey, Receipt
from onejob.settings import CliSettings, environment_for_programs, read_variables

EXAMPLE = 'onejob run-once "backup@$(date -u +%F)" -- backup --full'
SCOPE_DEFAULT = "run-once"
OUTPUT_KIB_MAX = 256
# Of sysexits.h, so that they are seldom those of the command itself.
EX_USAGE, EX_DATAERR, EX_UNAVAILABLE, EX_SOFTWARE, EX_TEMPFAIL, EX_NOPERM = 64, 65, 69, 70, 75, 77
_NOT_EXECUTABLE, _NOT_FOUND, _SIGNALLED = 126, 127, 128  # as shells say it

_EXIT_CODES_HELP = """\
exit codes: those of COMMAND; 128 + n if signal n ended it; or
  64  wrong usage
  65  the key was used for another command
  69  the store cannot be reached, or did not answer in time
  70  at most once: it may have been started, and how it ended is not known
  75  it is running elsewhere
  77  the store refuses the credential"""
_FORMAT = 1
_POLL_FIRST_SECONDS, _POLL_SECONDS_MAX = 0.1, 1.0
_COPY_SECONDS_MAX = 2.0  # of output that the command's own children may still write
_CHUNK_BYTES = 64 << 10
_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_GUARD = 'read -r group && { read -r end || kill -s KILL -- "-$group"; }'


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a command ended, as it is stored in the receipt of its key."""

    format: int = _FORMAT
    is_known: bool = True  # False: it may have been started, and whoever held the key did not say how it ended
    exit_code: int
    started_at: int
    ended_at: int
    host: str
    stdout: bytes = b""
    stderr: bytes = b""
    is_output_cut: bool = False


class _NotKept(Exception):
    """The command failed, and the key is released for another run."""


class StreamCopy:
    """Passes the bytes of a stream on, and keeps the first of them."""

    def __init__(self, source: IO[bytes], target: Any, bytes_max: int) -> None:
        self.kept = b""
        self.is_cut = False
        self._source = source
        self._target = target
        self._bytes_max = bytes_max
        self._thread = Thread(target=self._copy, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(_COPY_SECONDS_MAX)

    def _copy(self) -> None:
        with self._source:
            while chunk := os.read(self._source.fileno(), _CHUNK_BYTES):
                left = self._bytes_max - len(self.kept)
                self.kept += chunk[:left]
                self.is_cut |= len(chunk) > left
                _write_through(self._target, chunk)


class CommandProcess:
    """The command as a process group of its own, which does not outlive this process."""

    def __init__(self, options: Namespace) -> None:
        self.outcome: RunOutcome | None = None
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self) -> RunOutcome:
        clock, started_at = SystemClock(), SystemClock().wall_ms()
        copies: list[StreamCopy] = []
        with _start_guard() as guard:
            assert guard.stdin is not None
            try:
                code = await self._run_guarded(guard.stdin, copies)
            finally:
                self.kill(signal.SIGKILL)
                with suppress(OSError):
                    guard.stdin.write(b"ended\n")
                    guard.stdin.flush()
        for copy in copies:
            copy.wait()
        stdout, stderr = (copy.kept for copy in copies) if copies else (b"", b"")
        self.outcome = RunOutcome(
            exit_code=code,
            started_at=started_at,
            ended_at=clock.wall_ms(),
            host=socket.gethostname(),
            stdout=stdout,
            stderr=stderr,
            is_output_cut=any(copy.is_cut for copy in copies),
        )
        return self.outcome

    async def _run_guarded(self, guard: IO[bytes], copies: list[StreamCopy]) -> int:
        bytes_max: int = self._options.output
        try:
            self._process = process = self._start(subprocess.PIPE if bytes_max else None)
        except OSError as error:
            print_error(f"{self._options.argv[0]} cannot be run ({error.strerror}); correct the command")
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        guard.write(b"%d\n" % process.pid)
        guard.flush()
        if process.stdout is not None and process.stderr is not None:
            copies.append(StreamCopy(process.stdout, sys.stdout, bytes_max))
            copies.append(StreamCopy(process.stderr, sys.stderr, bytes_max))
        code = await asyncio.get_running_loop().run_in_executor(None, process.wait)
        return code if code >= 0 else _SIGNALLED - code

    def _start(self, output: int | None) -> subprocess.Popen[bytes]:
        """To be called in the main thread: the kernel kills the command when the thread that forked it ends."""
        return subprocess.Popen(
            self._options.argv,
            env=environment_for_programs() | read_variables(self._options.env),
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it makes two system calls, and takes no lock
        )

    @property
    def was_started(self) -> bool:
        return self._process is not None

    def kill(self, number: int) -> None:
        """Send a signal to the process group of the command, unless the command has ended."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def add_arguments(command: CommandParser) -> None:
    command.usage_error = EX_USAGE
    command.epilog = f"{command.epilog}\n\n{_EXIT_CODES_HELP}"
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
        "--wait",
        type=parse_duration,
        metavar="DURATION",
        help="wait at most this long for a run elsewhere; default: without end",
    )
    waiting.add_argument("--skip", action="store_true", help="while it runs elsewhere, exit at once with 75")
    command.add_argument(
        "--output",
        type=_parse_output_bytes,
        default=0,
        metavar="SIZE",
        help=f"store this much of each output stream for replays, e.g. 64k, up to {OUTPUT_KIB_MAX}k; default: none",
    )
    _add_process_arguments(command)


def _add_process_arguments(command: CommandParser) -> None:
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
    add_engine_arguments(command, json=False)


def _parse_output_bytes(text: str) -> int:
    digits = text.lower().removesuffix("k")
    if text == "none":
        return 0
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise ArgumentTypeError(f"{text!r} is not a size; use 64k, 1000 or none")
    size = int(digits) * (1 if digits == text else 1024)
    if size > OUTPUT_KIB_MAX * 1024:
        raise ArgumentTypeError(f"{text!r} is too much to store; use at most {OUTPUT_KIB_MAX}k")
    return size


def run(options: Namespace) -> int:
    if os.name != "posix":
        raise Invalid("run-once", "it needs POSIX processes; run it on Linux, macOS or in WSL")
    try:
        return asyncio.run(_run(options, CliSettings.from_env()))
    except OnejobError as error:
        print_error(_describe(error))
        return exit_code_for(error)


def exit_code_for(error: OnejobError) -> int:
    match error:
        case IdempotencyConflict():
            return EX_DATAERR
        case LeaseExpired() | Unavailable() | Unknown():
            return EX_UNAVAILABLE
        case SubmissionInProgress() | LeaseLost():
            return EX_TEMPFAIL
        case NotAllowed():
            return EX_NOPERM
        case Invalid():
            return EX_USAGE
    return EX_SOFTWARE


def _describe(error: OnejobError) -> str:
    match error:
        case IdempotencyConflict():
            return "this key was used for another command, mode or --env; use a new key, or give the same ones again"
        case SubmissionInProgress():
            return "the command is running elsewhere; retry later with the same key"
        case LeaseExpired():
            return "the store did not answer until the lease expired, and the command was stopped; retry"
        case LeaseLost():
            return "another process has taken the key over, and the command was stopped; see --lease"
    return str(error)


async def _run(options: Namespace, settings: CliSettings) -> int:
    url = engine_url(options, settings)
    tenant = TENANT_DEFAULT if options.tenant is None else checked_name("tenant", options.tenant)
    options.window = options.window or settings.window
    child = CommandProcess(options)
    received = _forward_signals(child, options.grace)
    try:
        async with onejob.open(url, tenant=tenant, sweep=False) as ledger:
            reserved = await _reserve(ledger, options)
            if isinstance(reserved, Receipt):
                return _replay(_decode(reserved.receipt), options)
            outcome = await _run_held(ledger, reserved, child, options)
            if sqlite_file(url) is not None:
                with suppress(OnejobError):
                    await ledger.admin.sweep()  # a file that only cron uses has no other maintenance
            return outcome.exit_code if outcome.is_known else _replay(outcome, options)
    except asyncio.CancelledError:
        if not received:
            raise
        return _SIGNALLED + received[0]


def _forward_signals(child: CommandProcess, grace: timedelta) -> list[int]:
    """Hand signals on to the command; before it has started, they end this process. Returns those received, so far."""
    loop, received = asyncio.get_running_loop(), list[int]()
    task = asyncio.current_task()
    assert task is not None

    def on_signal(number: int) -> None:
        received.append(number)
        if child.was_started:
            child.kill(number)
            loop.call_later(grace.total_seconds(), child.kill, signal.SIGKILL)
        else:
            task.cancel()

    for number in _FORWARDED_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    return received


async def _reserve(ledger: Ledger, options: Namespace) -> HeldKey | Receipt:
    """Hold the key, or get its settled outcome; wait while the command runs elsewhere."""
    submission = Submission(
        type=SCOPE_DEFAULT,
        scope=options.scope,
        input={
            "command": options.argv,
            "environment": read_variables(options.env),
            "at_most_once": options.at_most_once,
        },
        idempotency_key=options.key,
        idempotency_ttl=options.window,
    )
    loop, backoff = asyncio.get_running_loop(), Backoff(_POLL_FIRST_SECONDS, _POLL_SECONDS_MAX)
    deadline = None if options.wait is None else loop.time() + options.wait.total_seconds()
    while True:
        try:
            return await ledger.reserve(submission, lease=options.lease, job=False, wait=False)
        except SubmissionInProgress:
            if options.skip or (deadline is not None and loop.time() + backoff.seconds > deadline):
                raise
        await asyncio.sleep(next(backoff))


async def _run_held(ledger: Ledger, held_key: HeldKey, child: CommandProcess, options: Namespace) -> RunOutcome:
    if options.at_most_once and held_key.taken_over:
        now = SystemClock().wall_ms()
        unknown = RunOutcome(is_known=False, exit_code=EX_SOFTWARE, started_at=now, ended_at=now, host="")
        receipt = msgpack.encode(unknown)
        await settle_with_retries(lambda: ledger.commit(held_key, receipt))
        return unknown

    async def work(_: LeaseRenewal) -> bytes:
        outcome = await child.run()
        if outcome.exit_code and not (options.keep_failures or options.at_most_once):
            raise _NotKept
        return msgpack.encode(outcome)

    try:
        await run_under_lease(ledger, held_key, work)
    except _NotKept:
        pass
    except OnejobError as error:
        if child.outcome is None:
            raise
        then = "will not run it" if options.at_most_once else "may run it"
        reason = "the store did not answer" if isinstance(error, Unknown) else error
        print_error(f"the command has ended, but that could not be stored ({reason}); a repetition {then} again")
    assert child.outcome is not None
    return child.outcome


def _decode(receipt: bytes) -> RunOutcome:
    try:
        outcome = msgpack.decode(receipt, type=RunOutcome)
    except msgspec.MsgspecError:
        outcome = None
    if outcome is None or outcome.format != _FORMAT:
        raise Outdated("the outcome of this key has a format that this version does not know; upgrade onejob")
    return outcome


def _replay(outcome: RunOutcome, options: Namespace) -> int:
    if not outcome.is_known:
        print_error("the command may have been started before, and how it ended is not known; use a new key to run it")
        return outcome.exit_code
    _write_through(sys.stdout, outcome.stdout)
    _write_through(sys.stderr, outcome.stderr)
    if outcome.is_output_cut:
        print_error("only the beginning of the output was stored; see --output")
    if options.verbose:
        ended = f"{to_utc(outcome.ended_at):%F %T} UTC"
        print_error(f"not run again: it ended on {outcome.host} at {ended} with exit code {outcome.exit_code}")
    return outcome.exit_code


def _write_through(stream: Any, data: bytes) -> None:
    """Write bytes to a text stream of this process; a reader that has left does not stop the command."""
    if data and stream is not None:
        with suppress(OSError, ValueError):
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()


def _start_guard() -> subprocess.Popen[bytes]:
    """A shell that is told a process group, and kills it when this process dies."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD],
        env=environment_for_programs(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _die_with_parent() -> Callable[[], None] | None:
    """For the forked child: ask the kernel to kill it when its parent dies. None where no kernel does."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(_NOT_EXECUTABLE)

    return ask
