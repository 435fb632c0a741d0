"""Slack's delivery of events over HTTP: signed, and tried again with the headers and reasons Slack sends.

Signing follows https://docs.slack.dev/authentication/verifying-requests-from-slack/ (by slack_sdk's own code), retries
https://docs.slack.dev/apis/events-api/#retries : up to three more, at once, after a minute and after five, whenever
the answer is not 2xx or takes longer than three seconds.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
from slack_sdk.signature import SignatureVerifier

from fakes.provider_double.json_types import Json
from fakes.slack_double.payloads import SIGNING_SECRET

ACK_SECONDS = 3.0
RETRY_SECONDS = (0.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt: what was answered (0: nothing) and how long it took."""

    status: int
    seconds: float
    text: str = ""


@dataclass(slots=True)
class Sender:
    """Delivers to one URL. `retry_seconds` may be shortened, `ack_seconds` lengthened."""

    client: httpx.AsyncClient
    path: str = "/slack/events"
    secret: str = SIGNING_SECRET
    retry_seconds: Sequence[float] = RETRY_SECONDS
    ack_seconds: float = ACK_SECONDS
    deliveries: list[Delivery] = field(default_factory=list)

    async def deliver(self, payload: Json) -> Delivery:
        """Deliver until it is acknowledged or Slack would give up; return the last attempt."""
        last = await self.once(payload)
        for number, pause in enumerate(self.retry_seconds, start=1):
            if httpx.codes.is_success(last.status):
                return last
            await asyncio.sleep(pause)
            last = await self.once(payload, retry=number, reason="http_error" if last.status else "http_timeout")
        return last

    async def once(self, payload: Json, *, retry: int = 0, reason: str = "http_timeout") -> Delivery:
        """Deliver one time, as a retry if `retry` counts one."""
        headers = {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": reason} if retry else {}
        return await self.post(json.dumps(payload), "application/json", headers)

    async def form(self, body: str) -> Delivery:
        """Deliver a slash command or an interaction."""
        return await self.post(body, "application/x-www-form-urlencoded", {})

    async def post(self, body: str, content_type: str, headers: dict[str, str]) -> Delivery:
        """Sign and send."""
        signed = headers | sign(body, self.secret) | {"Content-Type": content_type}
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.ack_seconds):
                response = await self.client.post(self.path, content=body.encode(), headers=signed)
        except (TimeoutError, httpx.TransportError):
            delivery = Delivery(0, time.monotonic() - started)
        else:
            delivery = Delivery(response.status_code, time.monotonic() - started, response.text)
        self.deliveries.append(delivery)
        return delivery


def sign(body: str, secret: str = SIGNING_SECRET, *, at: float | None = None) -> dict[str, str]:
    """Return the two headers that prove a body."""
    timestamp = str(int(time.time() if at is None else at))
    signature = SignatureVerifier(secret).generate_signature(timestamp=timestamp, body=body)
    return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": str(signature)}
