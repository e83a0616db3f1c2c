"""Engines by URL; the module of an engine is imported only when it is opened."""

from urllib.parse import urlsplit

from onejob.clock import Clock
from onejob.core.errors import Invalid
from onejob.engine import Engine

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def is_multi_process(url: str) -> bool:
    """True if several processes may open this engine: all but the in-memory one."""
    return url.partition("://")[0] != "memory"


async def open_engine(url: str, *, clock: Clock | None = None) -> Engine:
    """Open `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://host/database`."""
    scheme, found, rest = url.partition("://")
    if scheme == "memory" and found:
        from .memory import MemoryEngine

        return MemoryEngine(clock)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(rest[1:], clock=clock)
    if is_postgres(url):
        from .postgres import PostgresEngine

        return await PostgresEngine.open(url, clock=clock)
    raise Invalid(
        "engine",
        f"{scheme}://… names no engine; use memory://, sqlite:///file.db, sqlite:////absolute/file.db "
        "or postgresql://host/database",
    )


async def migrate(url: str) -> tuple[int, int]:
    """Migrate the schema of a store; returns its version before and after, (0, 0) if it has none."""
    if is_postgres(url):
        from .postgres import PostgresEngine

        return await PostgresEngine.migrate(url)
    if not url.startswith("sqlite:///"):
        return 0, 0
    from .sqlite.schema import read_schema_version

    before = read_schema_version(url.removeprefix("sqlite:///"))
    await (await open_engine(url)).aclose()
    return before, read_schema_version(url.removeprefix("sqlite:///"))


def is_postgres(url: str) -> bool:
    return url.startswith(_POSTGRES_SCHEMES)


def redact_password(url: str) -> str:
    """An engine's URL without its password."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":…@", 1) if password else url
