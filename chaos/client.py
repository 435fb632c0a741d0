"""A client that does not give up: sends a message under one key until it is answered, and writes down what it hears."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager

import httpx

from chaos.client_log import Answer, Sent

TRY_SECONDS = 30.0
PAUSE_SECONDS = 0.1
COME_BACK = {httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE}
"""What says that the same request may succeed later."""


class GaveUp(Exception):
    """A message was not answered within the client's time."""


class Client:
    """Talks to any of `urls` in turn; they may change while it is at work."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str]) -> None:
        """Send through `http`."""
        self._http = http
        self._urls = urls
        self._turn: Iterator[int] = itertools.count()
        self.log: list[Sent] = []

    async def new_session(self, agent: str, *, key: str, timeout_seconds: float = 60.0) -> str:
        """Return the id of a new session."""
        headers = {"Idempotency-Key": key}
        async with asyncio.timeout(timeout_seconds):
            while True:
                response = await self._post("/v1/sessions", {"agent": agent}, headers)
                if isinstance(response, httpx.Response) and response.is_success:
                    return str(response.json()["id"])
                await asyncio.sleep(PAUSE_SECONDS)

    async def send(self, sent: Sent, *, timeout_seconds: float = 60.0) -> Sent:
        """Send it and wait for the answer, again and again. A run that failed is an answer, too."""
        await self._until_told(sent, {}, timeout_seconds)
        return sent

    async def submit(self, sent: Sent, *, timeout_seconds: float = 60.0) -> Sent:
        """Send it and wait until it is accepted."""
        await self._until_told(sent, {"Prefer": "respond-async"}, timeout_seconds)
        return sent

    async def _until_told(self, sent: Sent, headers: dict[str, str], timeout_seconds: float) -> None:
        self.log.append(sent)
        sent.sent_at = time.monotonic()
        told = {"Idempotency-Key": sent.key, **headers}
        path = f"/v1/sessions/{sent.session_id}/messages"
        try:
            async with asyncio.timeout(timeout_seconds):
                while not _note(sent, await self._post(path, {"content": sent.text}, told)):
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise GaveUp(f"{sent.text[:40]!r} after {timeout_seconds:g} s: {sent.refusals[-5:]}") from None

    async def _post(self, path: str, body: dict[str, str], headers: dict[str, str]) -> httpx.Response | str:
        """Return the response, or `cut` where there was none."""
        url = self._urls[next(self._turn) % len(self._urls)]
        try:
            return await self._http.post(f"{url}{path}", json=body, headers=headers)
        except httpx.TransportError:
            return "cut"


@asynccontextmanager
async def open_client(urls: Sequence[str]) -> AsyncGenerator[Client]:
    """Yield a client of these addresses."""
    limits = httpx.Limits(max_connections=400, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=TRY_SECONDS, limits=limits) as http:
        yield Client(http, urls)


def _note(sent: Sent, response: httpx.Response | str) -> bool:
    """Write down what was answered; return whether that is the end of it."""
    now = time.monotonic()
    if isinstance(response, str):
        sent.refusals.append(response)
        return False
    body = response.json()
    if response.is_success:
        sent.accept(body["run"], now)
        if response.status_code == httpx.codes.OK:
            sent.answered_at, sent.answer = now, _answer(body["message"])
        return True
    sent.refusals.append(f"{response.status_code} {body.get('type', '')}")
    run_id = body.get("run_id")
    if run_id and response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        sent.accept({"id": run_id}, now)
    return "run" in body or response.status_code not in COME_BACK


def _answer(message: dict[str, object]) -> Answer:
    return Answer(str(message["id"]), int(str(message["position"])), str(message["content"]))
