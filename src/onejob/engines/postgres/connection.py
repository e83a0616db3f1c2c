"""One connection that comes back after a loss, and that never asks the server to stop what it is doing."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg
from msgspec import Struct

from onejob.engine import Durability
from onejob.errors import StoreRefused, Unavailable

from .clock import ServerClock
from .errors import sqlstate_of, to_engine_error
from .schema import apply_migrations
from .url import PostgresUrl

# What a server promises by its settings, and what that is worth to us.


# One question for all of it, so that it can be asked after every connecting.
_SERVER_SETTINGS_QUERY = """
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('fsync'),
    current_setting('full_page_writes'), pg_is_in_recovery()
"""
_SYNCHRONOUS_LEVELS = ("on", "remote_apply")


class ServerSettings(Struct, frozen=True):
    version: str
    synchronous_commit: str
    standby_names: str
    fsync: bool
    full_page_writes: bool
    is_standby: bool

    @property
    def is_replicated(self) -> bool:
        """Whether a commit waits until a standby has it on its disk."""
        return bool(self.standby_names) and self.synchronous_commit in _SYNCHRONOUS_LEVELS

    @property
    def waits_for_standby(self) -> bool:
        """Whether a commit waits for a standby at all."""
        return bool(self.standby_names) and self.synchronous_commit not in ("off", "local")


async def read_server_settings(connection: Any) -> ServerSettings:
    version, commit, names, fsync, pages, standby = await connection.fetchrow(_SERVER_SETTINGS_QUERY)
    return ServerSettings(version, commit, names.strip(), fsync == "on", pages == "on", standby)


def refuse_unsafe_settings(display_url: str, settings: ServerSettings, declared: Durability | None) -> None:
    """Raise StoreRefused when the server does not honour what is declared, or not even what everybody is promised."""
    for wrong, act in find_violations(settings, declared):
        raise StoreRefused(f"{display_url} does not keep its word: {wrong}; {act}, then repeat")


def durability_warning(settings: ServerSettings, declared: Durability | None) -> str:
    """One line: what a failover may lose. Empty when it loses nothing that was answered."""
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
    """Why such a server is refused, each with the next act."""
    found: list[tuple[str, str]] = []
    if settings.is_standby:
        found.append(("it is a standby", "name all hosts in the URL"))
    if not settings.fsync:
        found.append(("fsync is off", "set fsync = on"))
    if settings.synchronous_commit == "off":
        found.append(("synchronous_commit is off", "set it to on for this role or database"))
    if declared is Durability.QUORUM and not settings.standby_names:
        found.append(("durability=quorum is declared, but synchronous_standby_names is empty", "set it on every node"))
    if declared is Durability.QUORUM and settings.synchronous_commit not in _SYNCHRONOUS_LEVELS:
        found.append(
            (
                f"durability=quorum is declared, but synchronous_commit is {settings.synchronous_commit}",
                "set it to on or remote_apply",
            )
        )
    return found


CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
_PAUSE_FIRST = 0.02
_PAUSE_MAX = 0.5
_STATEMENTS_MAX = 256
# A dead machine says nothing: without these its silence would be waited for for hours.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
# Time-outs of the server end a statement, never a commit: it puts them off before it commits. The plans of
# statements are kept, so they must not be those that were best while the tables were still small.
_SESSION_SETTINGS = {
    "application_name": "onejob",
    "lock_timeout": "5s",
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# Behind a pooler the next transaction may be another session's.
_SET_LOCAL = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in _SESSION_SETTINGS.items())
_FATAL_SQLSTATES = ("28", "3D", "42501")


class NonCancellingConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver is not typed
    """A cancelled COMMIT leaves a row that is visible but on no standby. So whoever gives up only goes away."""

    def _cancel_current_command(self, waiter: "asyncio.Future[None]", *_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)
        self.terminate()

    def enable_keepalive(self) -> None:
        peer = self._transport.get_extra_info("socket")
        if peer is None or peer.family == socket.AF_UNIX:
            return
        with suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connector:
    def __init__(self, url: PostgresUrl, monotonic: Callable[[], float]) -> None:
        self._url = url
        self._connection: Any = None
        self.clock = ServerClock(monotonic)
        self.server_settings: ServerSettings | None = None
        self.warning_count = 0
        self.migrations_applied = 0  # steps of the schema

    @property
    def display_url(self) -> str:
        return self._url.display_url

    @property
    def pooled(self) -> bool:
        return self._url.pooled

    def begin_sql(self, mode: str = "") -> str:
        return f"BEGIN {mode}" + (_SET_LOCAL if self.pooled else "")

    @property
    def connection(self) -> Any:
        """The connection, if there is one that is not lost as far as is known."""
        connection = self._connection
        return None if connection is None or connection.is_closed() else connection

    async def ensure_connected(self, until: float) -> Any:
        """The connection; a lost one is made anew, as often as it takes, until then by the loop's clock."""
        if (connection := self.connection) is not None:
            return connection
        loop = asyncio.get_running_loop()
        pause = _PAUSE_FIRST
        while True:
            try:
                return await self._connect(max(0.1, min(CONNECT_SECONDS, until - loop.time())))
            except StoreRefused:
                raise
            except (
                asyncpg.PostgresError,
                asyncpg.InternalClientError,
                asyncpg.InterfaceError,
                OSError,
            ) as error:
                if isinstance(error, ValueError) or sqlstate_of(error).startswith(_FATAL_SQLSTATES):
                    raise StoreRefused(str(to_engine_error(self.display_url, error))) from error
                if loop.time() + pause >= until:
                    raise Unavailable(str(to_engine_error(self.display_url, error))) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _connect(self, timeout: float) -> Any:
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
            self.migrations_applied += await apply_migrations(connection, self._url, migrate=self._url.migrate)
            await connection.execute("COMMIT")
            connection.add_log_listener(self._count_warning)
        except BaseException:
            connection.terminate()
            raise
        self.clock.forget()
        self._connection = connection
        return connection

    def terminate(self) -> None:
        """Go away without a word; the next one who asks gets a new connection."""
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
        # "canceling wait for synchronous replication": the server says so, and then that all is well.
        if message.severity_en == "WARNING" or message.severity == "WARNING":
            self.warning_count += 1
