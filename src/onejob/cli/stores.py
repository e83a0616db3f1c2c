"""The file behind an engine's URL."""

from pathlib import Path

from onejob.errors import NotFound

_SQLITE = "sqlite:///"


def sqlite_file(url: str) -> Path | None:
    """The file of an engine that has one."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) and url != _SQLITE else None


def require_store(url: str) -> None:
    """To look must not make a store: in a wrong folder an empty one would answer that there is nothing."""
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise NotFound(f"there is no store at {file}; name another with --engine, or make it by a submission")
