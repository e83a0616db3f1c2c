"""The HTML pages `/` (activity of this server) and `/docs` (the API), read once at import."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from onejob.http.request import Request
from onejob.http.responses import Response, raw_response
from onejob.http.routing import Route, RouteHandler

_PAGES_FOLDER = files("onejob.http") / "pages"


def page_handler(name: str) -> RouteHandler:
    """A page with inline style and script; its Content-Security-Policy allows exactly these two."""
    style = _read("style.css")
    script = _read("common.js") + _read(f"{name}.js")
    body = _read(f"{name}.html").replace("{{style}}", style).replace("{{script}}", script).encode()
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src {_csp_hash(style)}; script-src {_csp_hash(script)}"
    )
    response = raw_response(
        200,
        body,
        b"text/html; charset=utf-8",
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
    )

    async def handler(request: Request) -> Response:
        return response

    return handler


def _read(name: str) -> str:
    return (_PAGES_FOLDER / name).read_text(encoding="utf-8")


def _csp_hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


PAGES = (
    Route(
        "GET", "/", page_handler("home"), None, "Show the activity of this server", None, str, media_type="text/html"
    ),
    Route("GET", "/docs", page_handler("docs"), None, "Show and try the API", None, str, media_type="text/html"),
)
