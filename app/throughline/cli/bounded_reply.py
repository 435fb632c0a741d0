"""How much the command line reads of one answer: `--url` may name any server, and one that never ends fills the memory.

Streams of events have a bound of their own, on each event (`sse.py`).
"""

from collections.abc import AsyncIterator

import httpx

from throughline.cli.failures import UnexpectedReply

MAX_REPLY_BYTES = 100_000_000
"""A page of history has 8 MB of text at most, and JSON may write one byte in six."""

IDENTITY = {"Accept-Encoding": "identity"}
"""What a few bytes can stand for has no bound, so no compressed answers are asked for, nor read."""


async def bound_reply(response: httpx.Response) -> None:
    """Bound the body of `response`; a hook of httpx. Raises UnexpectedReply for a compressed one."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnexpectedReply(f"The answer is compressed ({encoding[:40]}), unasked. Check the proxy behind --url.")
    is_stream = response.is_success and response.request.headers.get("accept") == "text/event-stream"
    if not is_stream:
        assert isinstance(response.stream, httpx.AsyncByteStream), "an asynchronous client has such streams"
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx.AsyncByteStream):
    """Another stream, up to MAX_REPLY_BYTES."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise UnexpectedReply(
                    f"The answer is larger than any of this service's ({MAX_REPLY_BYTES:,} bytes). Check that --url is "
                    "the address of a Throughline service."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
