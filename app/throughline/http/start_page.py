"""The address `/`: links to the documentation and to health, as a page for browsers and as JSON for programs.

It needs no key, because it tells nothing beyond what `/openapi.json` and `/health/live` tell.
"""

from html import escape

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from throughline.http.admitted_request import dependencies_of
from throughline.http.headers import prefers_html
from throughline.http.services import ApiConfig
from throughline.http.sse import JsonResponse

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
    """Return the links as an HTML page if the client prefers one, else as JSON."""
    config = dependencies_of(request).config
    if prefers_html(request.headers.getlist("accept")):
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
