"""Answers an unexpected error with a problem document that shows nothing of it, and logs it without its text."""

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.errors import problem
from app.domain.errors import ThroughlineError, places_of

log = structlog.get_logger(__name__)


class UnexpectedErrors:
    """Catches what no handler expected. A response that has begun is cut instead of ended."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand around `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def note_start(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note_start)
        except ClientDisconnect:
            log.info("client left before its body was complete")
        except Exception as error:  # noqa: BLE001  # the one outer loop of the door: nothing of the error may leak
            log.error("request broke", method=scope["method"], error=type(error).__name__, where=places_of(error))
            if not has_begun:
                detail = "Something unexpected went wrong here. Nothing stored is lost; try again."
                await problem(ThroughlineError.code, detail)(scope, receive, send)
