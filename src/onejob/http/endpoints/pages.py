"""The pages for people: the console at `/` and below, and `/docs` (the API). All files are read once, at import.

The console is one HTML page for all its paths: its scripts read the path and ask the API. Scripts and styles have URLs that
change with their content, so that a browser may keep them.
"""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from onejob.http.problems import problem
from onejob.http.request import Request
from onejob.http.responses import Response, problem_response, raw_response
from onejob.http.routing import Route, RouteHandler

_PAGES_FOLDER = files("onejob.http") / "pages"
_POLICY = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
# Text from a store can become neither markup nor a script, even if a script of the console has a mistake.
_TRUSTED_TYPES = "; require-trusted-types-for 'script'; trusted-types 'none'"
_MEDIA_TYPES = {"js": b"text/javascript; charset=utf-8", "css": b"text/css; charset=utf-8"}

# Every path of the console. A link to any of them can be pasted, opened and reloaded.
CONSOLE_PATHS = (
    "/",
    "/jobs",
    "/jobs/{job}",
    "/keys",
    "/keys/{scope}/{key}",
    "/lost",
    "/types",
    "/workers",
    "/schedules",
    "/quotas",
    "/reservations",
    "/sequences",
    "/callbacks",
    "/api-keys",
    "/search",
)


def docs_handler() -> RouteHandler:
    """A page with inline style and script; its Content-Security-Policy allows exactly these two."""
    style, script = _read("style.css") + _read("docs.css"), _read("docs.js")
    body = _read("docs.html").replace("{{style}}", style).replace("{{script}}", script)
    return _page_handler(body, f"style-src {_csp_hash(style)}; script-src {_csp_hash(script)}")


def console_routes() -> tuple[Route, ...]:
    assets = {"style.css": _read("style.css")} | {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted((_PAGES_FOLDER / "console").iterdir(), key=lambda file: file.name)
        if file.name.endswith((".js", ".css"))
    }
    version = sha256("".join(assets.values()).encode()).hexdigest()[:16]
    folder = f"/assets/{version}"
    preloads = "\n".join(
        f'<link rel="modulepreload" href="{folder}/{name}">' for name in assets if name.endswith(".js")
    )
    body = _read("console/index.html").replace("{{folder}}", folder).replace("{{preloads}}", preloads)
    handler = _page_handler(body, f"style-src 'self'; script-src 'self'{_TRUSTED_TYPES}")
    return (
        *(_page(path, handler, "Show the console") for path in CONSOLE_PATHS),
        _page("/assets/{version}/{file}", _asset_handler(folder, assets), "A part of the console"),
    )


def _page_handler(body: str, policy: str) -> RouteHandler:
    response = raw_response(
        200,
        body.encode(),
        b"text/html; charset=utf-8",
        (b"content-security-policy", (_POLICY + policy).encode()),
        (b"referrer-policy", b"no-referrer"),
    )

    async def handler(request: Request) -> Response:
        return response

    return handler


def _asset_handler(folder: str, assets: dict[str, str]) -> RouteHandler:
    media_types = {name: _MEDIA_TYPES[name.rpartition(".")[2]] for name in assets}
    responses = {
        f"{folder}/{name}": raw_response(200, text.encode(), media_types[name])._replace(is_cacheable=True)
        for name, text in assets.items()
    }

    async def handler(request: Request) -> Response:
        version, name = request.path_params
        found = responses.get(f"/assets/{version}/{name}")
        other = problem("NOT_FOUND", "this server has another version of the console; load the page again")
        return problem_response(other, request.id) if found is None else found

    return handler


def _page(path: str, handler: RouteHandler, summary: str) -> Route:
    return Route("GET", path, handler, None, summary, None, str, media_type="text/html", is_page=True)


def _read(name: str) -> str:
    return _PAGES_FOLDER.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _csp_hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


PAGES = (_page("/docs", docs_handler(), "Show and try the API"), *console_routes())
