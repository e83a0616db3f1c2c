"""Where decisions happen. An engine is named by a URL; its file is imported only when it is asked for."""

from onejob.clock import Clock
from onejob.core.invalid import Invalid
from onejob.engine import Engine


def shared(url: str) -> bool:
    """Whether several processes may have this engine open: all but the one that lives in a process."""
    return url.partition("://")[0] != "memory"


async def open_engine(url: str, *, clock: Clock | None = None) -> Engine:
    """Open `memory://`, `sqlite:///relative.db` or `sqlite:////absolute.db`."""
    scheme, found, rest = url.partition("://")
    if scheme == "memory" and found:
        from .memory import MemoryEngine

        return MemoryEngine(clock)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(rest[1:], clock=clock)
    raise Invalid(
        "engine", f"{url!r} names no engine; use memory://, sqlite:///file.db or sqlite:////absolute/file.db"
    )
