"""Engines by URL; the module of an engine is imported only when it is opened."""

import re

from onejob.clock import Clock
from onejob.core.errors import Invalid
from onejob.engine import Engine

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")
_LOCAL_SCHEMES = ("sqlite://", "memory://")
_MANAGER_SCHEMES = ("http://", "https://")
_BUCKET_SCHEMES = ("s3://", "gs://", "az://", "file://")
_SCHEME = re.compile(r"[a-z0-9+.-]{1,20}", re.IGNORECASE)
_HOST = r"(?:[\w.%-]*|\[[0-9A-Za-z:.%]*\])(?::[0-9]{0,5})?"
_HOSTS_AND_DATABASE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^/:#]*)?")


def is_multi_process(url: str) -> bool:
    """True if several processes may open this engine: all but the in-memory one."""
    return url.partition("://")[0] != "memory"


async def open_engine(url: str, *, clock: Clock | None = None, examine: bool = False) -> Engine:
    """Open `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://host/database`, `s3://bucket`, or
    the managers `http://m1:8002,m2:8002`. `examine`: a bucket is verified from its beginning, and its view is not written.
    """
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
    if url.startswith(_MANAGER_SCHEMES):
        try:
            import httptools  # noqa: F401 - a connection needs it; here, because the error says what to install
        except ModuleNotFoundError:
            raise Invalid("engine", f"{scheme}:// needs the extra `gate`: install onejob[gate]") from None
        from .remote import RemoteEngine

        return await RemoteEngine.open(url, clock=clock)
    if is_bucket(url):
        try:
            from .bucket import BucketEngine
        except ModuleNotFoundError as error:
            if error.name != "obstore":
                raise
            raise Invalid("engine", f"{scheme}:// needs the extra `bucket`: install onejob[bucket]") from None
        return await BucketEngine.open(url, clock=clock, examine=examine)
    shown = f"{scheme}://…" if found and _SCHEME.fullmatch(scheme) else "the URL"  # what it is otherwise may be secret
    raise Invalid(
        "engine",
        f"{shown} names no engine; use memory://, sqlite:///file.db, sqlite:////absolute/file.db, "
        "postgresql://host/database, s3://bucket/prefix or http://manager:8002",
    )


async def migrate(url: str) -> tuple[int, int]:
    """Migrate the schema of a store; returns its version before and after, (0, 0) if it has none."""
    if is_postgres(url):
        from .postgres import PostgresEngine

        return await PostgresEngine.migrate(url)
    if not url.startswith("sqlite:///"):
        await (await open_engine(url)).aclose()  # refuses a URL that names no engine
        return 0, 0
    from .sqlite.schema import read_schema_version

    before = read_schema_version(url.removeprefix("sqlite:///"))
    await (await open_engine(url)).aclose()
    return before, read_schema_version(url.removeprefix("sqlite:///"))


def is_postgres(url: str) -> bool:
    return url.startswith(_POSTGRES_SCHEMES)


def is_bucket(url: str) -> bool:
    return url.startswith(_BUCKET_SCHEMES)


def redact_password(url: str) -> str:
    """An engine's URL as it may be shown: of a server the user, the hosts and the database, and no parameters.

    Nothing is shown of a URL that can be read in two ways, such as one with an unquoted password: any part may be it.
    """
    if url.startswith(_LOCAL_SCHEMES):
        return url
    if url.startswith(_MANAGER_SCHEMES):
        login, _, hosts = url.partition("://")[2].partition("?")[0].rpartition("@")
        return f"{url.partition('://')[0]}://{'…@' if login else ''}{hosts}"
    if is_bucket(url):  # credentials are parameters, or by mistake before an @
        place = url.partition("?")[0]
        return f"{url.partition('://')[0]}://…" if "@" in place else place
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, at, place = place.rpartition("@")
    if not is_postgres(url) or "@" in query or not _HOSTS_AND_DATABASE.fullmatch(place):
        return f"{scheme}://…" if is_postgres(url) else "…"
    user, colon, _ = login.partition(":")
    return f"{scheme}://{user}{colon and ':…'}{at}{place}"


def has_password(url: str) -> bool:
    """True if an engine's URL has a password, or may have one."""
    if url.startswith(_MANAGER_SCHEMES):
        return "@" in url
    shown = redact_password(url)
    if is_bucket(url):
        return shown.endswith("…") or any(word in url.partition("?")[2].lower() for word in ("secret", "key", "token"))
    return shown.endswith("…") or ":…@" in shown or (is_postgres(url) and "password" in url.partition("?")[2].lower())
