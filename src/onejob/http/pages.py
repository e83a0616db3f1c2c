"""The pages a newcomer meets: `/`, what happens here, and `/docs`, what can be asked. Read once, sent as they are."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from .answers import Answer, text
from .request import Request
from .routes import Handler, Route

_FOLDER = files("onejob.http") / "pages"


def page(name: str) -> Handler:
    """A page with its style and script inside; the policy admits exactly these two and nothing from elsewhere."""
    style = _read("style.css")
    script = _read("common.js") + _read(f"{name}.js")
    body = _read(f"{name}.html").replace("{{style}}", style).replace("{{script}}", script).encode()
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    )
    shown = text(
        200,
        body,
        b"text/html; charset=utf-8",
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )

    async def handler(request: Request) -> Answer:
        return shown

    return handler


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


PAGES = (
    Route("GET", "/", page("home"), None, "See what this server does", None, str, media="text/html"),
    Route("GET", "/docs", page("docs"), None, "Try every path of this server", None, str, media="text/html"),
)
