"""Streaming of a chat completion as server-sent events in OpenAI's form."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from fastapi import Response

from throughline.api.http.admitted_request import Call
from throughline.api.http.responses import json_line
from throughline.api.http.sse import STREAM_HEADERS, EventStream
from throughline.api.openai.chat_chunks import ChatChunks
from throughline.api.openai.chat_object import ChatAnswer
from throughline.api.openai.errors import TurnFailed, error_json
from throughline.api.openai.output_items import JsonDict
from throughline.api.openai.stream_response import END
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import Event, RunEnded, RunWaiting

HEARTBEAT = b": heartbeat\n"
"""Comment that keeps a connection open. It ends without a blank line, because some readers take that for an event."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChatStream:
    """A completion to stream.

    `first` were read already and come before `followed`. `finish` returns the answer once the part is over, or raises
    why there is none. `closed` is called at the end, however the stream ends.
    """

    chunks: ChatChunks
    followed: AsyncGenerator[Event | None]
    first: tuple[Event | None, ...]
    finish: Callable[[RunEnded | RunWaiting], Awaitable[ChatAnswer]]
    closed: Callable[[], None]


def stream_chat(call: Call, stream: ChatStream, headers: Mapping[str, str]) -> Response:
    """Return the HTTP response that streams the completion."""
    timeout = call.config.send_timeout_seconds
    return EventStream(_encoded(stream), {**STREAM_HEADERS, **headers}, send_timeout_seconds=timeout)


async def _encoded(stream: ChatStream) -> AsyncGenerator[bytes]:
    """Yield the stream's bytes. An error is sent as a chunk, which OpenAI's clients raise."""
    try:
        async with aclosing(_chunks(stream)) as chunks:
            async for chunk in chunks:
                yield HEARTBEAT if chunk is None else b"data: %s\n\n" % json_line(chunk)
    except ThroughlineError as error:
        log.warning("completion stream ended by an error", error=error.code)
        yield b"data: %s\n\n" % json_line({"error": error_json(error.code, error.detail)})
    except TurnFailed as failed:
        yield b"data: %s\n\n" % json_line({"error": error_json(failed.error.type, failed.error.detail)})
    finally:
        stream.closed()
    yield END


async def _chunks(stream: ChatStream) -> AsyncGenerator[JsonDict | None]:
    """Yield the chunks, and None while nothing happens."""
    async with aclosing(_events(stream)) as events:
        async for event in events:
            for chunk in await _shown(stream, event):
                yield chunk


async def _shown(stream: ChatStream, event: Event | None) -> Iterable[JsonDict | None]:
    """Return the chunks that follow from one event; one None if nothing happened."""
    if event is None:
        return (None,)
    if isinstance(event, RunEnded | RunWaiting):
        return stream.chunks.end(await stream.finish(event))
    return stream.chunks.feed(event)


async def _events(stream: ChatStream) -> AsyncGenerator[Event | None]:
    async with aclosing(stream.followed) as followed:
        for event in stream.first:
            yield event
        async for event in followed:
            yield event
