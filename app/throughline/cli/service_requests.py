"""Requests to a service over HTTP: pages, event streams, and the errors of refusals and broken connections.

A module of its own, because `client.py` only names routes and shapes.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from throughline.cli.failures import RequestRefused, ServiceUnreachable, UnexpectedReply, with_provider_message
from throughline.cli.replies import Item, Page, Reply, read_json
from throughline.domain.json_types import JsonObject
from throughline.wire.service import Problem

PAGE_SIZE = 100
STREAM_SILENCE_SECONDS = 30.0  # the service sends a heartbeat every 5 s

Query = Mapping[str, str | int]


class ServiceRequests:
    """Requests through one HTTP client. Error texts name the service by `place`."""

    def __init__(self, http: httpx.AsyncClient, *, place: str) -> None:
        """Send requests through `http`, which has the base URL and the key. Its opener closes it."""
        self._http = http
        self._place = place

    def unreachable(self, error: httpx.HTTPError) -> ServiceUnreachable:
        """Return the error for a connection that failed."""
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
            return ServiceUnreachable(
                f"Cannot connect to {self._place}. Start the service with `throughline serve`, or check --url."
            )
        if isinstance(error, httpx.TimeoutException):
            return ServiceUnreachable(f"{self._place} did not answer in time. Try again, or read the service's log.")
        return ServiceUnreachable(f"The connection to {self._place} broke. Try again, or read the service's log.")

    async def _up_to(
        self, limit: int, page_type: type[Page[Item]], path: str, query: Query, cursor: str = ""
    ) -> tuple[list[Item], str]:
        """Return up to `limit` items after the cursor, and the next cursor, '' at the end of the list."""
        found: list[Item] = []
        while len(found) < limit:
            size = min(PAGE_SIZE, limit - len(found))
            page = await self._page(page_type, path, {**query, "limit": size, "cursor": cursor})
            found.extend(page.data)
            cursor = page.next_cursor or ""
            if not cursor:
                break
        return found, cursor

    async def _page(self, page_type: type[Reply], path: str, query: Query) -> Reply:
        return read_json(page_type, await self._get(path, query))

    async def _get(self, path: str, query: Query | None = None) -> bytes:
        given = {name: value for name, value in (query or {}).items() if value}
        return (await self._send("GET", path, params=given)).content

    async def _post(self, path: str, body: JsonObject, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpx's own deadline
        extensions = {} if timeout is None else {"timeout": httpx.Timeout(timeout, connect=10).as_dict()}
        return (await self._send("POST", path, json=body, extensions=extensions)).content

    async def _send(self, method: str, path: str, **parts: object) -> httpx.Response:
        request = self._http.build_request(method, path, **parts)  # type: ignore[arg-type]  # httpx's own keywords
        try:
            response = await self._http.send(request)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        self._refuse(response)
        return response

    def _stream_request(
        self, method: str, path: str, headers: Mapping[str, str], body: JsonObject | None = None
    ) -> httpx.Request:
        return self._http.build_request(
            method,
            path,
            json=body,
            headers={"Accept": "text/event-stream", **headers},
            timeout=httpx.Timeout(STREAM_SILENCE_SECONDS, connect=10),
        )

    @asynccontextmanager
    async def _open_stream(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        try:
            response = await self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        try:
            if not response.is_success:
                await response.aread()
            self._refuse(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise UnexpectedReply(f"{self._place} did not answer with a stream. Is it a Throughline service?")
            yield response
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        finally:
            await response.aclose()

    def _refuse(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        raise RequestRefused(self._sentence(response), status=response.status_code)

    def _sentence(self, response: httpx.Response) -> str:
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if not response.headers.get("content-type", "").startswith("application/problem+json"):
            return f"{self._place} answered with status {status}, but not in Throughline's format. Check --url."
        problem = read_json(Problem, response.content)
        text = problem.detail or problem.title or f"The service answered {status}."
        text = with_provider_message(text, problem.provider_message or "")
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return f"{text} Give a key with --api-key or THROUGHLINE_API_KEY."
        return text
