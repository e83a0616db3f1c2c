"""What a server promises by its settings, and what that is worth to us."""

from typing import Any

from msgspec import Struct

from onejob.engine import Durability
from onejob.errors import StoreRefused

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
        found.append(
            ("durability=quorum is declared, but synchronous_standby_names is empty", "set it on every node")
        )
    if declared is Durability.QUORUM and settings.synchronous_commit not in _SYNCHRONOUS_LEVELS:
        found.append(
            (
                f"durability=quorum is declared, but synchronous_commit is {settings.synchronous_commit}",
                "set it to on or remote_apply",
            )
        )
    return found
