"""Signing in with an API key or an access token, and signing out.

A key is exchanged for a sign-in, a token of its own in the database that ends with the key, after SIGNED_IN_SECONDS, or
when the person signs out. The browser keeps it in a cookie that no script can read.
"""

from collections import deque
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import structlog
from fastapi import Request, Response
from starlette.responses import RedirectResponse

from throughline.console.page import PageRoute, base_of, show
from throughline.domain.basic_types import Clock
from throughline.domain.errors import InvalidInput, NotAuthenticated, PermanentError
from throughline.domain.keys import SIGN_IN_SCOPES, NewToken, Scope
from throughline.http.auth import Credentials, check_same_origin, sign_in_cookie
from throughline.http.call import PAGES, ApiDependencies, dependencies_of
from throughline.http.prefix_router import PrefixRouter

SIGNED_IN_SECONDS = 14 * 86_400
MOST_TRIES, TRIES_SECONDS = 20, 60.0
"""Most failed tries of all browsers together within this time that are logged and answered with their reason."""

MOST_FORM_BYTES = 4_000
router = PrefixRouter(prefix=PAGES, include_in_schema=False, route_class=PageRoute)
log = structlog.get_logger(__name__)
_failed: deque[float] = deque(maxlen=MOST_TRIES)


@router.get("")
async def get_console(request: Request) -> Response:
    """Lead to the list of sessions."""
    return RedirectResponse(f"{request.url.path.rpartition('/')[2]}/sessions", HTTPStatus.SEE_OTHER)


@router.get("/sign-in")
async def get_sign_in(request: Request) -> Response:
    """Return the page on which a person enters a key."""
    return show(request, "sign_in.html", None, {"next": _local(request.query_params.get("next", "")), "error": ""})


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Take a key or a token; set the cookie and lead to the page that was asked for."""
    check_same_origin(request)
    form = await _read_form(request)
    dependencies, secret = dependencies_of(request), form.get("key", "").strip()
    after = _local(form.get("next", ""))
    try:
        cookie, seconds = await _exchange(dependencies, request, secret)
    except NotAuthenticated as error:
        told = _too_many_tries(dependencies.services.clock) or error.detail
        return show(request, "sign_in.html", None, {"next": after, "error": told}, HTTPStatus.UNAUTHORIZED)
    except PermanentError as error:
        return show(request, "sign_in.html", None, {"next": after, "error": error.detail}, HTTPStatus.UNAUTHORIZED)
    response = RedirectResponse(f"{base_of(request)}{after or 'sessions'}", HTTPStatus.SEE_OTHER)
    response.set_cookie(
        sign_in_cookie(request.headers),
        cookie,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=_is_encrypted(request),
    )
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the sign-in, so that its cookie is worth nothing, and delete the cookie."""
    check_same_origin(request)
    secret = request.cookies.get(sign_in_cookie(request.headers), "")
    if await dependencies_of(request).services.database.access_tokens.delete_sign_in(secret):
        dependencies_of(request).authenticator.forget_all()
    response = RedirectResponse(f"{base_of(request)}sign-in", HTTPStatus.SEE_OTHER)
    response.delete_cookie(
        sign_in_cookie(request.headers), httponly=True, samesite="strict", secure=_is_encrypted(request)
    )
    return response


def _too_many_tries(clock: Clock) -> str:
    """Count a failed try. Return the error in place of its reason if there were too many, else ''.

    A valid key is accepted all the same: else anybody could keep everybody out.
    """
    now = clock.monotonic()
    if len(_failed) == MOST_TRIES and now - _failed[0] < TRIES_SECONDS:
        return "Too many failed tries. Wait a minute, and try again."
    _failed.append(now)
    log.info("sign-in failed")
    return ""


async def _exchange(dependencies: ApiDependencies, request: Request, secret: str) -> tuple[str, int]:
    """Return the value of the cookie for a key or a token, and the seconds that it is kept.

    Raises NotAuthenticated for an unknown one, NotAllowed for a key that may not read.
    """
    credentials, tokens = Credentials(secret), dependencies.services.database.access_tokens
    if not secret:
        raise NotAuthenticated("Enter an API key, or an access token.")
    principal = await dependencies.authenticator.admit(request.headers, credentials, Scope.READ)
    if credentials.is_token:
        found = await tokens.authenticate(secret)
        return secret, max(int(found.seconds_left), 0) if found else 0
    if principal.key_id is None:
        raise InvalidInput("This service has no keys, and needs none: open its pages without signing in.")
    scopes = principal.scopes.intersection(SIGN_IN_SCOPES)
    new = NewToken(principal.key_id, principal.user_id, scopes, None, SIGNED_IN_SECONDS, is_sign_in=True)
    return (await tokens.create(new)).secret, SIGNED_IN_SECONDS


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, each once. Raises InvalidInput if it is too long."""
    body = await request.body()
    if len(body) > MOST_FORM_BYTES:
        raise InvalidInput(f"The form has more than {MOST_FORM_BYTES} bytes.")
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(address: str) -> str:
    """Return the address of a page if it is one of the console's own, relative to its root; else ''."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    is_own = not (parts.scheme or parts.netloc) and not address.startswith(("/", "\\", ".")) and address.isprintable()
    return address if is_own else ""


def _is_encrypted(request: Request) -> bool:
    """Return whether the browser reached the service, or the proxy before it, by TLS."""
    return "https" in {request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip()}
