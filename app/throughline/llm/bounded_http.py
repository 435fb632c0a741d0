"""Bounds on what a provider may send in one response, set on the HTTP clients that providers' packages bring along.

The packages read lines, events and error bodies of any length into memory. Here every response is counted on its way
to them, and cut where it exceeds a bound. Used by the registry of chat models and by the embedding models.
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
"""So much of a response is handed on before everything else in the process gets its turn."""

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
"""Where LangChain's models keep their HTTP clients: OpenAI's and those built on it, Anthropic's and Ollama's, OpenAI's
embeddings and Groq's, others, Mistral's, Google's."""


@dataclass(frozen=True, slots=True)
class ResponseBounds:
    """The most of one response. Bytes are counted as they arrive; compressed responses are refused.

    `event_bytes` bounds one event or line, which packages read whole: four times an answer, as JSON may write it
    longer. `lines` bounds what costs time and brings nothing. A longer error body is cut off.
    """

    whole_bytes: int = 64_000_000
    event_bytes: int = 4 * MAX_ANSWER_BYTES
    lines: int = 1_000_000
    error_bytes: int = 1_000_000


CHAT_BOUNDS = ResponseBounds()


class ResponseRefused(Exception):
    """A response that is not read on. Packages may wrap it; `kind` is the error of our tree that it stands for."""

    def __init__(self, kind: type[ThroughlineError], detail: str) -> None:
        """Keep the kind and the sentence, which does not name the model."""
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def bound_responses(model: object, bounds: ResponseBounds) -> None:
    """Set the bounds on every HTTP client that the model of a provider's package is known to keep."""
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
    """Ask for a plain response: a few compressed bytes may unpack to any number."""
    request.headers["accept-encoding"] = "identity"


@dataclass(frozen=True, slots=True)
class _Bounding:
    """The hook that a client calls with each response before anything of its body is read."""

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
    """Raise where the client would follow to another server: of the key's headers it would take only one away."""
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
    """Yield the beginning of an error's body: what kind of error it is, the status tells anyway."""
    left = most_bytes
    async for piece in _slices(pieces):
        if left <= 0:
            return
        yield piece[:left]
        left -= len(piece)


async def _bounded(pieces: AsyncIterator[bytes], bounds: ResponseBounds, *, is_events: bool) -> AsyncGenerator[bytes]:
    """Yield a body as long as it keeps within the bounds. Raises ResponseRefused."""
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
    """Return the error of a response that exceeds a bound."""
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
    """Return the class of bounded bodies for `package`: httpx, or its twin, which takes streams of its own only."""
    base: Any = importlib.import_module(package).AsyncByteStream  # either package's

    class BoundedStream(base):  # type: ignore[misc]  # its base is known when it is made
        """A response's body within bounds."""

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
