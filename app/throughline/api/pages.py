"""Pages for browsers: the address `/`, the reference at `/docs`, and what an error means.

They need no key, because they tell nothing beyond the manual, `/openapi.json` and `/health/live`.
"""

import re
from functools import cache
from html import escape
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse

from throughline.domain.errors import NotFound
from throughline.domain.message import clean_text
from throughline.http.call import dependencies_of
from throughline.http.headers import prefers_html
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import PROBLEM_KINDS
from throughline.http.services import ApiConfig
from throughline.wire.service import ProblemKindOut

# The page `/docs`: Swagger UI. All of its files are served by this service.

ASSETS: Final = "fastapi_offline"
"""Package that contains Swagger UI's files; nothing else of the package is used."""

REFERENCE_PAGE = Path(__file__).with_name("reference_page.html").read_text(encoding="utf-8")
REFERENCE_SCRIPT = Path(__file__).with_name("reference_page.js").read_text(encoding="utf-8")
REFERENCE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}
KEPT = {**REFERENCE_HEADERS, "Cache-Control": "max-age=86400"}
reference_router = PrefixRouter(prefix="/docs", include_in_schema=False)


@reference_router.head("", include_in_schema=False)
@reference_router.get("")
async def page() -> Response:
    """Return the Swagger UI page. Its links are relative, so that it also works behind a proxy that adds a prefix."""
    return HTMLResponse(REFERENCE_PAGE, headers=REFERENCE_HEADERS)


@reference_router.head("/start.js", include_in_schema=False)
@reference_router.get("/start.js")
async def reference_script() -> Response:
    """Return the script that starts Swagger UI. The page's security policy forbids inline scripts."""
    return Response(REFERENCE_SCRIPT, media_type="text/javascript", headers=REFERENCE_HEADERS)


@reference_router.head("/swagger-ui-bundle.js", include_in_schema=False)
@reference_router.get("/swagger-ui-bundle.js")
async def script() -> Response:
    """Return Swagger UI's script."""
    return FileResponse(_assets() / "swagger-ui-bundle.js", media_type="text/javascript", headers=KEPT)


@reference_router.head("/swagger-ui.css", include_in_schema=False)
@reference_router.get("/swagger-ui.css")
async def style() -> Response:
    """Return Swagger UI's style sheet."""
    return FileResponse(_assets() / "swagger-ui.css", media_type="text/css", headers=KEPT)


@cache
def _assets() -> Path:
    return Path(str(files(ASSETS) / "static"))


MEDIA_TYPE = "text/html"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
</head>
<body>
{body}
</body>
</html>
"""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept",
}
"""Headers of a route that answers with a page or with JSON."""


def html_page(title: str, body: str) -> str:
    """Return a whole page. Both arguments are HTML: texts from elsewhere have to be escaped."""
    return PAGE.format(title=title, body=body)


NAME = "Throughline"
LINKS = {
    "reference": ("docs", "The REST interface, to read and to try out"),
    "openapi": ("openapi.json", "The same as an OpenAPI document"),
    "live": ("health/live", "Whether the process answers"),
    "ready": ("health/ready", "Whether it can accept messages"),
    "metrics": ("metrics", "Metrics for Prometheus"),
}
"""Address and description of each link, by its name. Addresses are relative, because a proxy may add a prefix."""

KEY_NEEDED = "Requests need an API key, sent as <code>Authorization: Bearer KEY</code>."
NO_KEY_NEEDED = "Requests need no API key."
BODY = """<h1>{name} {version}</h1>
<p>{key}</p>
<ul>
{links}
</ul>"""
router = APIRouter(include_in_schema=False)


@router.head("/", include_in_schema=False)
@router.get("/")
async def start(request: Request) -> Response:
    """Lead a browser to the pages of the service; without any, return the links as a page. Return JSON to others."""
    dependencies = dependencies_of(request)
    config = dependencies.config
    if prefers_html(request.headers.getlist("accept")):
        if dependencies.home:
            return RedirectResponse(dependencies.home.removeprefix("/"), HTTPStatus.SEE_OTHER, HEADERS)
        return HTMLResponse(_page(config), headers=HEADERS)
    links: dict[str, str] = {name: address for name, (address, _) in LINKS.items()}
    found = {"name": NAME, "version": config.version, "is_key_needed": config.is_key_needed, "links": {**links}}
    return JsonResponse(found, headers=HEADERS)


def _page(config: ApiConfig) -> str:
    items = (f'<li><a href="{address}">/{address}</a> {text}</li>' for address, text in LINKS.values())
    body = BODY.format(
        name=NAME,
        version=escape(config.version),
        key=KEY_NEEDED if config.is_key_needed else NO_KEY_NEEDED,
        links="\n".join(items),
    )
    return html_page(NAME, body)


# The addresses that problem documents have as their `type`.

MOST_SHOWN = 80
CODE = re.compile(r"`([^`]+)`")
MANUAL = "docs/"
PROBLEM_BODY = """<h1>{title}</h1>
<p><code>{type}</code>, HTTP status {status}</p>
<h2>Cause</h2>
<p>{cause}</p>
<h2>Remedy</h2>
<p>{remedy}</p>"""
SEE = "\n<p>More in the manual: <code>{page}</code></p>"
HTML = {MEDIA_TYPE: {"schema": {"type": "string"}}}
problems_router = PrefixRouter(prefix="/problems", tags=["problems"])


@problems_router.head("/{name}", include_in_schema=False)
@problems_router.get("/{name}", responses={HTTPStatus.OK: {"model": ProblemKindOut, "content": HTML}})
async def get_problem(name: str, request: Request) -> Response:
    """Return cause and remedy of an error by its code, as a page if the client prefers one, else as JSON."""
    kind = PROBLEM_KINDS.get(name)
    if kind is None:
        shown = clean_text(name)[:MOST_SHOWN]
        raise NotFound(f"There is no error with the code {shown!r}. /openapi.json names the codes of each route.")
    found = ProblemKindOut(
        type=f"/problems/{name}",
        title=kind.title,
        status=kind.status,
        cause=kind.cause,
        remedy=kind.remedy,
        page=MANUAL + kind.page if kind.page else None,
    )
    if prefers_html(request.headers.getlist("accept")):
        return HTMLResponse(_problem_page(found), headers=HEADERS)
    return JsonResponse(found.model_dump(), headers=HEADERS)


def _problem_page(found: ProblemKindOut) -> str:
    fields = {name: CODE.sub(r"<code>\1</code>", escape(str(value))) for name, value in found.model_dump().items()}
    return html_page(fields["title"], PROBLEM_BODY.format(**fields) + (SEE.format(**fields) if found.page else ""))
