"""Refusal of requests on connections beyond the limit, after `api/http/protocol.py` has marked them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from throughline.api.http.problem_documents import error_problem
from throughline.api.http.protocol import BEYOND_LIMIT
from throughline.api.http.request_errors import TooManyConnections

STILL_SERVED = ("/health/live", "/health/ready", "/metrics")
RETRY_SECONDS = 5.0


def refuse_beyond_limit(app: ASGIApp) -> ASGIApp:
    """Wrap `app` so that connections beyond the limit get only the health and metrics routes.

    Their other requests are answered with TooManyConnections (503).
    """

    async def refuse_or_serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = scope.get("state", {}).get(BEYOND_LIMIT) and scope["path"] not in STILL_SERVED
        if scope["type"] != "http" or not is_refused:
            await app(scope, receive, send)
            return
        error = TooManyConnections(
            "The service has reached its limit of connections (MAX_CONNECTIONS). Try again later.",
            delay_seconds=RETRY_SECONDS,
        )
        response = error_problem(error)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    return refuse_or_serve
