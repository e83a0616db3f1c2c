"""Connections to PostgreSQL: one that reconnects after a loss, one that listens, and the check of server settings.

No connection ever sends a cancel request, because a cancelled COMMIT may leave a row that is visible but on no standby.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg
from msgspec import Struct

from onejob.backoff import Backoff
from onejob.engine import Durability, OnSettled
from onejob.errors import StoreRefused, Unavailable

from .clock import ServerClock
from .errors import sqlstate_of, to_postgres_failure, to_url_error
from .schema import LedgerIdentity, apply_migrations
from .url import PostgresUrl

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
_RECONNECT_PAUSE_FIRST = 0.02
_RECONNECT_PAUSE_MAX = 0.5
_LISTEN_PAUSE_FIRST = 0.5
_LISTEN_PAUSE_MAX = 30.0
_PAYLOAD_CHARS_MAX = 1000
_STATEMENTS_MAX = 128
# Without these, a connection to a machine that died would wait for hours.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
# The server's timeouts end a statement, never a commit: the server disables them before it commits. Prepared plans are
# kept, so they must not be the ones that were best while the tables were small. A process that was stopped inside a
# transaction holds its locks for 3 s, so that others wait for it less than the 5 s that a failover may take. Each statement
# must see what was committed before it, whatever the default of the database is.
_SESSION_SETTINGS = {
    "application_name": "onejob",
    "lock_timeout": "2s",
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "3s",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# Behind a pooler every transaction may run in another session.
_SET_LOCAL = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in _SESSION_SETTINGS.items())
# A batch is split when a lock or a statement takes too long; its parts then wait for neither as long as a whole batch may.
_STATEMENT_TIMEOUT_FACTOR = 5
_FATAL_SQLSTATES = ("28", "3D", "42501")
# ValueError: a part of the URL that the driver cannot parse, which its message quotes.
_CONNECT_ERRORS = (asyncpg.PostgresError, asyncpg.InternalClientError, asyncpg.InterfaceError, OSError, ValueError)
_SERVER_SETTINGS_QUERY = """
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('fsync'),
    current_setting('full_page_writes'), pg_is_in_recovery()
"""
_SYNCHRONOUS_LEVELS = ("on", "remote_apply")


class Connector:
    """Holds one connection, checks and migrates the server on every connect, and reconnects after a loss."""

    def __init__(self, url: PostgresUrl, monotonic: Callable[[], float], ledger: LedgerIdentity) -> None:
        self._url = url
        self.display_url, self.pooled = url.display_url, url.pooled
        self._ledger = ledger
        self._ledger_check = 0  # the number of the check that the connection has passed
        self._connection: Any = None
        self.clock = ServerClock(monotonic)
        self.server_settings: ServerSettings | None = None
        self.warning_count = 0
        self.migrations_applied = 0

    def begin_sql(self, mode: str = "", *, lock_timeout_ms: int = 0) -> str:
        """Begin a transaction, with other timeouts than those of the session if one for locks is given."""
        local = (
            f"; SET LOCAL lock_timeout = {lock_timeout_ms}"
            f"; SET LOCAL statement_timeout = {lock_timeout_ms * _STATEMENT_TIMEOUT_FACTOR}"
            if lock_timeout_ms
            else ""
        )
        return f"BEGIN {mode}" + (_SET_LOCAL if self.pooled else "") + local

    @property
    def connection(self) -> Any:
        """The connection, or None if there is none, it is known to be lost, or its ledger must be checked again."""
        connection = self._connection
        if connection is None or connection.is_closed() or self._ledger_check != self._ledger.checks_due:
            return None
        return connection

    def doubt_ledger(self) -> None:
        """After an error that says that tables are gone: every connection is opened and checked again."""
        self._ledger.checks_due += 1

    async def ensure_connected(self, until: float) -> Any:
        """The connection; tries to connect until a time on the loop's clock."""
        if (connection := self.connection) is not None:
            return connection
        loop = asyncio.get_running_loop()
        backoff = Backoff(_RECONNECT_PAUSE_FIRST, _RECONNECT_PAUSE_MAX)
        while True:
            try:
                return await self._connect(max(0.1, min(CONNECT_SECONDS, until - loop.time())))
            except StoreRefused:
                raise
            except _CONNECT_ERRORS as error:
                if isinstance(error, ValueError):
                    raise to_url_error(self.display_url, error) from None
                if sqlstate_of(error).startswith(_FATAL_SQLSTATES):
                    raise StoreRefused(str(to_postgres_failure(self.display_url, error))) from error
                if loop.time() + backoff.seconds >= until:
                    raise Unavailable(str(to_postgres_failure(self.display_url, error))) from error
            await asyncio.sleep(next(backoff))

    async def _connect(self, timeout: float) -> Any:
        self.terminate()  # one whose ledger is in doubt
        ledger_check = self._ledger.checks_due
        connection = await asyncpg.connect(
            self._url.dsn,
            timeout=timeout,
            connection_class=NonCancellingConnection,
            server_settings=None if self.pooled else _SESSION_SETTINGS,
            statement_cache_size=0 if self.pooled else _STATEMENTS_MAX,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
        )
        try:
            connection.enable_keepalive()
            async with asyncio.timeout(timeout):
                await connection.execute(self.begin_sql())
                self.server_settings = await read_server_settings(connection)
            refuse_unsafe_settings(self.display_url, self.server_settings, self._url.durability)
            await self._ledger.refuse_emptied(connection, self._url)
            self.migrations_applied += await apply_migrations(connection, self._url, migrate=self._url.migrate)
            await self._ledger.verify(connection, self._url)
            await self._ledger.declare_durability(connection, self._url)
            await connection.execute("COMMIT")
            connection.add_log_listener(self._count_warning)
        except BaseException:
            connection.terminate()
            raise
        self.clock.forget()
        self._connection, self._ledger_check = connection, ledger_check
        return connection

    def terminate(self) -> None:
        """Close the socket without a handshake; the next call reconnects."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed():
            return
        try:
            await connection.close(timeout=CLOSE_SECONDS)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            connection.terminate()

    def _count_warning(self, _: object, message: Any) -> None:
        # After "canceling wait for synchronous replication" the server reports success all the same.
        if message.severity_en == "WARNING" or message.severity == "WARNING":
            self.warning_count += 1


class ServerSettings(Struct, frozen=True):
    version: str
    synchronous_commit: str
    standby_names: str
    fsync: bool
    full_page_writes: bool
    is_standby: bool

    @property
    def is_replicated(self) -> bool:
        """True if a commit waits until a standby has synced it."""
        return bool(self.standby_names) and self.synchronous_commit in _SYNCHRONOUS_LEVELS

    @property
    def waits_for_standby(self) -> bool:
        """True if a commit waits for a standby at all."""
        return bool(self.standby_names) and self.synchronous_commit not in ("off", "local")


async def read_server_settings(connection: Any) -> ServerSettings:
    version, commit, names, fsync, pages, standby = await connection.fetchrow(_SERVER_SETTINGS_QUERY)
    return ServerSettings(version, commit, names.strip(), fsync == "on", pages == "on", standby)


def refuse_unsafe_settings(display_url: str, settings: ServerSettings, declared: Durability | None) -> None:
    for violation, act in find_violations(settings, declared):
        raise StoreRefused(f"{display_url} cannot be used safely: {violation}; {act}, then retry")


def durability_warning(settings: ServerSettings, declared: Durability | None) -> str:
    """One line about what a failover may lose; empty if it loses no answer."""
    if declared is Durability.QUORUM:
        return ""
    if settings.is_replicated:
        return (
            "a commit waits for a standby, but durability=quorum is not declared: if a server that does not wait "
            "takes over, later answers may be lost in the next failover; declare it in the URL"
        )
    return (
        "durability is disk: an answer survives a crash of the server, but a failover to a standby may lose the "
        "last answers, and their keys may make second jobs; set synchronous_standby_names on every node and "
        "declare durability=quorum in the URL"
    )


def find_violations(settings: ServerSettings, declared: Durability | None) -> list[tuple[str, str]]:
    """Why such a server is refused, each reason with the next act."""
    violations: list[tuple[str, str]] = []
    if settings.is_standby:
        violations.append(("it is a standby", "name all hosts in the URL"))
    if not settings.fsync:
        violations.append(("fsync is off", "set fsync = on"))
    if settings.synchronous_commit == "off":
        violations.append(("synchronous_commit is off", "set it to on for this role or database"))
    if declared is Durability.QUORUM and not settings.standby_names:
        violations.append(
            ("durability=quorum is declared, but synchronous_standby_names is empty", "set it on every node")
        )
    if declared is Durability.QUORUM and settings.synchronous_commit not in _SYNCHRONOUS_LEVELS:
        violations.append(
            (
                f"durability=quorum is declared, but synchronous_commit is {settings.synchronous_commit}",
                "set it to on or remote_apply",
            )
        )
    return violations


class NonCancellingConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver is not typed
    """Closes the socket where the driver would send a cancel request."""

    def _cancel_current_command(self, waiter: "asyncio.Future[None]", *_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)
        self.terminate()

    def enable_keepalive(self) -> None:
        sock = self._transport.get_extra_info("socket")
        if sock is None or sock.family == socket.AF_UNIX:
            return
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def peer_port(self) -> int | None:
        peer = self._transport.get_extra_info("peername")
        return peer[1] if isinstance(peer, tuple) else None


class NotificationListener:
    """Calls back with the ids of records that other processes settle. It only shortens waiting: waiters poll as well.

    It has a connection of its own, past any pooler, because LISTEN belongs to a session.
    """

    def __init__(self, url: PostgresUrl, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, on_settled: OnSettled) -> None:
        if self._task is None and self._url.listen_dsn:
            self._task = asyncio.get_running_loop().create_task(self._keep_listening(on_settled))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _keep_listening(self, on_settled: OnSettled) -> None:
        backoff = Backoff(_LISTEN_PAUSE_FIRST, _LISTEN_PAUSE_MAX)
        while True:
            with suppress(*_CONNECT_ERRORS):
                await self._listen_until_lost(on_settled)
                backoff.reset()
            await asyncio.sleep(next(backoff))

    async def _listen_until_lost(self, on_settled: OnSettled) -> None:
        def on_notification(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            with suppress(ValueError):  # another program's payload
                on_settled(bytes.fromhex(payload[:_PAYLOAD_CHARS_MAX]))

        lost = asyncio.Event()
        connection: Any = await asyncpg.connect(
            self._url.listen_dsn, timeout=CONNECT_SECONDS, connection_class=NonCancellingConnection
        )
        try:
            connection.enable_keepalive()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, on_notification)
            await lost.wait()
        finally:
            connection.terminate()
