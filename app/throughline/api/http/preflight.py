"""Refusal of preflight requests from pages whose origin is not listed, with the setting that lists it.

A browser sends a preflight (`OPTIONS`) before a page of another origin may call the service.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from throughline.api.http.config import ANY_ORIGIN
from throughline.api.http.problem_documents import problem
from throughline.domain.text import clean_text

MOST_SHOWN = 200


class RefusedPreflights:
    """Middleware that answers a preflight from an origin that is not listed with a problem document."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _preflight_origin(scope)
        if origin is None or origin in self._origins or ANY_ORIGIN in self._origins:
            await self._app(scope, receive, send)
            return
        await problem("origin_refused", _reason(clean_text(origin)[:MOST_SHOWN]))(scope, receive, send)


def _preflight_origin(scope: Scope) -> str | None:
    """Return the origin of the page that sends a preflight, None for any other request."""
    if scope["type"] != "http" or scope["method"] != "OPTIONS":
        return None
    headers = Headers(scope=scope)
    return headers.get("origin") if "access-control-request-method" in headers else None


def _reason(origin: str) -> str:
    if origin == "null":
        return (
            "The page has no origin: it is a file, or in a sandboxed frame. Serve it over HTTP, and list its origin in "
            "CORS_ORIGINS."
        )
    return (
        f"Pages of {origin} may not call this service, because CORS_ORIGINS does not list them. Set "
        f"CORS_ORIGINS={origin}, beside other origins after a comma, and restart the service."
    )
