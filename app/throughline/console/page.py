"""How a page is made: its template, its words in the reader's language, its headers, and pages for errors."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import yaml
from fastapi import Depends, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from throughline.console.text_filters import FILTERS
from throughline.domain.errors import NotAllowed, NotAuthenticated, NotFound, ThroughlineError
from throughline.domain.keys import Scope
from throughline.domain.message import clean_text
from throughline.http.auth import route_of
from throughline.http.call import PAGES, Call, admit, as_operator, dependencies_of
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import error_problem, route_class_with_error_format
from throughline.http.route_errors import PROBLEM_KINDS

PACKAGE: Final = "throughline.console"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept-Language, Cookie, HX-Request",
}
HTMX, HTMX_REDIRECT = "hx-request", "HX-Redirect"
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
GERMAN: Mapping[str, str] = yaml.safe_load(files(PACKAGE).joinpath("german.yaml").read_text(encoding="utf-8"))
"""German text by its English one, for all texts of the templates."""

Words: TypeAlias = Callable[..., str]


def language_of(request: Request) -> str:
    """Return `de` if the browser prefers German to English, else `en`."""
    ranges = request.headers.get("accept-language", "").lower().split(",")
    known = (tag.strip()[:2] for tag in ranges)
    return next((tag for tag in known if tag in {"de", "en"}), "en")


def words_in(language: str) -> Words:
    """Return a function that returns a text in a language, with its fields filled."""
    known = GERMAN if language == "de" else {}

    def text(english: str, **fields: object) -> str:
        translated = known.get(english, english)
        return translated.format(**fields) if fields else translated

    return text


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(FILTERS)
    return environment


def base_of(request: Request) -> str:
    """Return the relative address of the console's root: a proxy may add a prefix that the service does not know."""
    depth = request.url.path.removeprefix(f"{PAGES}/").count("/")
    return "../" * depth or "./"


def address_of(request: Request) -> str:
    """Return the address of the page with its query, relative to the console's root."""
    path = request.url.path.removeprefix(f"{PAGES}/")
    return f"{path}?{request.url.query}" if request.url.query else path


def show(
    request: Request, template: str, call: Call | None, values: Mapping[str, object], status: int = HTTPStatus.OK
) -> Response:
    """Return the page that a template makes of these values, in the reader's language."""
    language = language_of(request)
    may_send = call is not None and Scope.WRITE in call.principal.scopes
    known: dict[str, Any] = {
        "_": words_in(language),
        "language": language,
        "base": base_of(request),
        "asset": asset_address,
        "call": call,
        "may_operate": may_operate,
        "may_send": may_send,
        "may_change": may_send and call is not None and call.shared_by is None,
        "version": dependencies_of(request).config.version,
        "is_key_needed": dependencies_of(request).config.is_key_needed,
        "path": request.url.path.removeprefix(f"{PAGES}/"),
        "here": address_of(request),
    }
    return HTMLResponse(_templates().get_template(template).render({**known, **values}), status, HEADERS)


def _error_page(request: Request, error: ThroughlineError) -> Response:
    """Return the page that tells an error with its remedy, with the status of its problem document.

    It has the navigation of a reader who was admitted before the error. Readers who are not signed in are redirected to
    the page for signing in.
    """
    if isinstance(error, NotAuthenticated):
        return _to_sign_in(request)
    kind = PROBLEM_KINDS.get(error.code, PROBLEM_KINDS["internal_error"])
    status = error_problem(error).status_code
    call = getattr(request.state, "call", None)
    return show(request, "error.html", call, {"kind": kind, "detail": error.detail}, status)


PageRoute = route_class_with_error_format(_error_page)


def _to_sign_in(request: Request) -> Response:
    """Lead to the page for signing in, which leads back here; a part of a page makes its whole page go there."""
    if HTMX in request.headers:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={HTMX_REDIRECT: f"{base_of(request)}sign-in"})
    address = f"{base_of(request)}sign-in?next={quote(address_of(request), safe='')}"
    return RedirectResponse(address, HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})


async def _page_reader(request: Request) -> Call:
    """Return a request for a page as a `Call`: `/console/x` needs the rights of `GET /v1/x`. Raises as `admit` does."""
    method, path = route_of(request)
    request.state.call = call = await admit(request, Scope.READ, (method, f"/v1{path.removeprefix(PAGES)}"))
    return call


async def _page_operator(request: Request) -> Call:
    """Return a request for a page of operators as a `Call`. Raises NotAuthenticated, NotAllowed."""
    try:
        request.state.call = call = await as_operator(request)
    except NotAllowed:
        await _page_reader(request)  # for the page of the error
        raise
    return call


PageReader: TypeAlias = Annotated[Call, Depends(_page_reader)]
PageOperator: TypeAlias = Annotated[Call, Depends(_page_operator)]


def may_operate(call: Call) -> bool:
    """Return whether the reader sees the pages for operators."""
    return Scope.OPERATE in call.principal.scopes


# The files of the pages: style sheet, scripts and picture. An address names the file's content, so that browsers keep
# files for good.

files_router = PrefixRouter(prefix=f"{PAGES}/static", include_in_schema=False, route_class=PageRoute)


@files_router.get("/{name}")
async def get_file(name: str) -> Response:
    """Return a file of the pages."""
    found = _assets().get(name)
    if found is None:
        raise NotFound(f"The console has no file {name[:80]!r}.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(found, media_type=MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def _assets() -> Mapping[str, bytes]:
    folder = files(PACKAGE).joinpath("static")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in MEDIA_TYPES}


@cache
def asset_address(name: str) -> str:
    """Return the relative address of a file, with a part that changes with its content."""
    return f"static/{name}?{hashlib.sha256(_assets()[name]).hexdigest()[:12]}"


missing_router = PrefixRouter(prefix=PAGES, include_in_schema=False, route_class=PageRoute)


@missing_router.get("/{path:path}")
async def get_missing(path: str) -> Response:
    """Raise NotFound, as a page."""
    raise NotFound(f"The console has no page {clean_text(path)[:80]!r}.")
