"""Where decisions happen. An engine is named by a URL; its file is imported only when it is asked for."""

from onejob.clock import Clock
from onejob.core.invalid import Invalid
from onejob.engine import Engine


async def open_engine(url: str, *, clock: Clock | None = None) -> Engine:
    """Open `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://host/database`."""
    scheme, found, rest = url.partition("://")
    if scheme == "memory" and found:
        from .memory import MemoryEngine

        return MemoryEngine(clock)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(rest[1:], clock=clock)
    if scheme in ("postgresql", "postgres") and found:
        try:
            from .postgres import PostgresEngine
        except ImportError as error:
            raise Invalid(
                "engine", f"PostgreSQL needs a driver ({error}); pip install 'onejob[postgres]'"
            ) from error
        return await PostgresEngine.open(url, clock=clock)
    raise Invalid(
        "engine",
        f"{scheme}://… names no engine; use memory://, sqlite:///file.db, sqlite:////absolute/file.db "
        "or postgresql://host/database",
    )
