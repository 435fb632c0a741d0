"""Slack's Events API over HTTP: an ASGI endpoint that verifies the signature of the raw body and calls bolt."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import structlog
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier

from throughline.domain.basic_types import Clock
from throughline.slack.check_payload import MalformedPayload, check_payload

Scope: TypeAlias = MutableMapping[str, Any]  # ASGI's own types are open
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]  # the same
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]  # the same

PATH = "/slack/events"
LONGEST_TIMESTAMP = 12
WARN_SECONDS = 60.0
OK, BAD_REQUEST, UNAUTHORIZED, METHOD_NOT_ALLOWED, UNAVAILABLE = 200, 400, 401, 405, 503
RETRY_AFTER_SECONDS = "30"
log = structlog.get_logger(__name__)


class EventsEndpoint:
    """ASGI endpoint for Slack's events, commands and interactions, at PATH."""

    def __init__(self, app: AsyncApp | None, signing_secret: str, clock: Clock) -> None:
        """Pass requests with a valid signature to `app`. If it is None, they get 503 until `open` sets it."""
        self._app = app
        self._verifier = SignatureVerifier(signing_secret)
        self._clock = clock
        self._warned_at = -WARN_SECONDS

    def open(self, app: AsyncApp) -> None:
        """Pass requests to `app` from now on."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _respond(send, METHOD_NOT_ALLOWED, b"", {"allow": "POST"})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _body(receive)
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            await _respond(send, BAD_REQUEST, b'{"error": "the body is not UTF-8"}')
            return
        if not self._is_genuine(text, headers):
            self._log_refusal(headers)
            await _respond(send, UNAUTHORIZED, b'{"error": "invalid request"}')
            return
        try:
            check_payload(text, headers.get("content-type", ""))
        except MalformedPayload as error:
            log.warning("request from slack rejected", reason=str(error))
            await _respond(send, BAD_REQUEST, json.dumps({"error": str(error)}).encode())
            return
        if self._app is None:
            await _respond(send, UNAVAILABLE, b'{"error": "not ready yet"}', {"retry-after": RETRY_AFTER_SECONDS})
            return
        await self._dispatch(self._app, text, headers, send)

    async def _dispatch(self, app: AsyncApp, text: str, headers: Mapping[str, str], send: Send) -> None:
        request = AsyncBoltRequest(body=text, headers={name: [value] for name, value in headers.items()})
        response = await app.async_dispatch(request)
        found = {name: values[0] for name, values in response.headers.items()}
        await _respond(send, response.status, response.body.encode(), found)

    def _is_genuine(self, text: str, headers: Mapping[str, str]) -> bool:
        """Return whether the request has a valid and recent signature.

        The headers are checked first, because the SDK's verifier raises for a non-numeric timestamp or non-ASCII text.
        """
        timestamp = headers.get("x-slack-request-timestamp", "")
        signature = headers.get("x-slack-signature", "")
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= LONGEST_TIMESTAMP):
            return False
        return signature.isascii() and self._verifier.is_valid(text, timestamp, signature)

    def _log_refusal(self, headers: Mapping[str, str]) -> None:
        """Log refused requests, at most once in WARN_SECONDS.

        The log entry matters because a wrong SLACK_SIGNING_SECRET looks the same as a forgery.
        """
        now = self._clock.monotonic()
        if now - self._warned_at < WARN_SECONDS:
            return
        self._warned_at = now
        log.warning(
            "request from slack rejected",
            reason="wrong or old signature",
            is_signed="x-slack-signature" in headers,
            hint="If all requests are refused, check SLACK_SIGNING_SECRET and this machine's clock.",
        )


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _respond(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    kept = {name.lower(): value for name, value in (headers or {}).items()} | {"content-length": str(len(body))}
    kept.setdefault("content-type", "application/json")
    start = {"type": "http.response.start", "status": status}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept.items()]
    await send({**start, "headers": raw})
    await send({"type": "http.response.body", "body": body})
