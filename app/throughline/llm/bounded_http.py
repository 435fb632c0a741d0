"""Limits on a provider's response, set on the HTTP clients of the providers' packages.

The packages read lines, events and error bodies of any length into memory. Here every response is counted before it
reaches them, and cut if it exceeds a limit. The registry of chat models and the embedding models use it.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Any

from throughline.domain.errors import AnswerTooLong, ModelInvalidRequest, ThroughlineError
from throughline.domain.prompt import MAX_ANSWER_BYTES

SLICE_BYTES = 4_096
"""Bytes of a response that are passed on before other tasks of the event loop run."""

FIRST_REDIRECT = 300
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
LINE_ENDS = (b"\n", b"\r")
LONGEST_END = max(map(len, EVENT_ENDS))

CLIENT_PATHS = (
    ("http_async_client",),
    ("root_async_client", "_client"),
    ("_async_client", "_client"),
    ("async_client", "_client", "_client"),
    ("async_client", "_client"),
    ("async_client",),
    ("client", "_api_client", "_async_httpx_client"),
)
"""Attributes in which LangChain's models keep their HTTP clients.

In this order: OpenAI's and those built on it; Anthropic's and Ollama's; OpenAI's embeddings and Groq's; others;
Mistral's; Google's.
"""


@dataclass(frozen=True, slots=True)
class ResponseBounds:
    """Limits of one response. Bytes are counted as they arrive; compressed responses are refused.

    `whole_bytes` limits the whole body. `event_bytes` limits one event or line, which packages read as a whole: four
    times an answer, because JSON may be longer. `lines` limits the number of lines, because empty ones cost time. An
    error's body is cut off after `error_bytes`.
    """

    whole_bytes: int = 64_000_000
    event_bytes: int = 4 * MAX_ANSWER_BYTES
    lines: int = 1_000_000
    error_bytes: int = 1_000_000


CHAT_BOUNDS = ResponseBounds()


class ResponseRefused(Exception):
    """Exception for a response that is not read any further. Packages may wrap it.

    `kind` is the exception of this service that is raised in its place.
    """

    def __init__(self, kind: type[ThroughlineError], detail: str) -> None:
        """Keep the exception class and the message, which does not name the model."""
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def bound_responses(model: object, bounds: ResponseBounds) -> None:
    """Set the limits on every known HTTP client of the model."""
    for client in _clients(model):
        hooks = client.event_hooks
        for kind, hook in (("request", ask_uncompressed), ("response", _Bounding(bounds))):
            if hook not in hooks[kind]:  # LangChain lets several models share one client
                hooks[kind].append(hook)


def _clients(model: object) -> Iterator[Any]:  # Any: httpx's client, or its twin of another package
    for path in CLIENT_PATHS:
        held: object = model
        for name in path:
            held = getattr(held, name, None)
        if isinstance(getattr(held, "event_hooks", None), dict):
            yield held


async def ask_uncompressed(request: Any) -> None:  # noqa: ANN401  # httpx's request, or its twin's
    """Request an uncompressed response: a few compressed bytes may expand to any number."""
    request.headers["accept-encoding"] = "identity"


@dataclass(frozen=True, slots=True)
class _Bounding:
    """Hook that a client calls with each response before its body is read: it sets the limits on the body.

    It refuses redirects to other servers and compressed answers.
    """

    bounds: ResponseBounds

    async def __call__(self, response: Any) -> None:  # noqa: ANN401  # httpx's response, or its twin's
        _refuse_redirect(response)
        is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
        if response.status_code >= FIRST_REDIRECT:
            response.headers.pop("content-encoding", None)
            body = _cut_off(response.stream, 0 if is_compressed else self.bounds.error_bytes)
        elif is_compressed:
            raise ResponseRefused(
                ModelInvalidRequest,
                "the provider compressed its answer, though asked not to; switch that off at the server",
            )
        else:
            body = _bounded(response.stream, self.bounds, is_events="event-stream" in _content_type(response))
        response.stream = _stream_class(type(response).__module__.partition(".")[0])(body, response.stream)


def _content_type(response: Any) -> str:  # noqa: ANN401  # httpx's response, or its twin's
    return str(response.headers.get("content-type", "")).lower()


def _refuse_redirect(response: Any) -> None:  # noqa: ANN401  # httpx's response, or its twin's
    """Raise ResponseRefused for a redirect to another server.

    A client that follows it would remove only one of the headers that may carry the API key.
    """
    if not response.has_redirect_location:
        return
    asked = response.request.url
    target = asked.join(response.headers["location"])
    is_same = (target.host, target.port) == (asked.host, asked.port)
    if not is_same or target.scheme not in {asked.scheme, "https"}:
        raise ResponseRefused(
            ModelInvalidRequest,
            f"the provider redirects to another address ({response.status_code}), which is not followed; "
            "set its new address as base_url",
        )


async def _cut_off(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncGenerator[bytes]:
    """Yield the beginning of an error's body; the status alone already tells the kind of error."""
    left = most_bytes
    async for piece in _slices(pieces):
        if left <= 0:
            return
        yield piece[:left]
        left -= len(piece)


async def _bounded(pieces: AsyncIterator[bytes], bounds: ResponseBounds, *, is_events: bool) -> AsyncGenerator[bytes]:
    """Yield a body while it is within the limits. Raises ResponseRefused."""
    whole, lines, run, tail = 0, 0, 0, b""
    async for piece in _slices(pieces):
        whole += len(piece)
        lines += max(piece.count(end) for end in LINE_ENDS)
        joined = tail + piece
        end = max(joined.rfind(mark) for mark in (EVENT_ENDS if is_events else LINE_ENDS))
        run = run + len(piece) if end < 0 else len(joined) - end
        tail = joined[1 - LONGEST_END :]
        _check("bytes", whole, bounds.whole_bytes)
        _check("bytes in one event or line", run, bounds.event_bytes)
        _check("lines", lines, bounds.lines)
        yield piece


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise too_much(most, what)


def too_much(most: int, what: str) -> ResponseRefused:
    """Return the error for a response that exceeds a limit."""
    return ResponseRefused(AnswerTooLong, f"the answer was stopped: the provider sent more than {most:,} {what}")


async def _slices(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the pieces, long ones in slices, and let the event loop run after each `SLICE_BYTES`.

    A client whose buffer is never empty never waits, and its consumer may take milliseconds for a slice.
    """
    since = 0
    async for piece in pieces:
        for start in range(0, len(piece), SLICE_BYTES):
            part = piece[start : start + SLICE_BYTES]
            since += len(part)
            if since >= SLICE_BYTES:
                since = 0
                await asyncio.sleep(0)
            yield part


@cache
def _stream_class(package: str) -> Any:  # noqa: ANN401  # a class made for the package
    """Return the class of limited bodies for `package`: httpx, or its twin, which accepts only streams of its own."""
    base: Any = importlib.import_module(package).AsyncByteStream  # either package's

    class BoundedStream(base):  # type: ignore[misc]  # its base is known when it is made
        """A response's body within the limits."""

        def __init__(self, body: AsyncGenerator[bytes], stream: Any) -> None:  # noqa: ANN401  # the package's stream
            self._body = body
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async with aclosing(self._body) as body:
                async for piece in body:
                    yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    return BoundedStream
