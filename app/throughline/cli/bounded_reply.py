"""Limit on the size of one reply: `--url` may name any server, and an endless reply would fill the memory.

Event streams have a limit of their own, on each event (`sse.py`).
"""

from collections.abc import AsyncIterator

import httpx

from throughline.cli.failures import UnexpectedReply

MAX_REPLY_BYTES = 100_000_000
"""Largest reply in bytes. A page of history has at most 8 MB of text, and JSON may need six bytes for one."""

IDENTITY = {"Accept-Encoding": "identity"}
"""Header that asks for uncompressed replies: a few compressed bytes can expand to any size."""


async def bound_reply(response: httpx.Response) -> None:
    """Limit the body of `response`, except an event stream, to MAX_REPLY_BYTES; used as a hook of httpx.

    Raises UnexpectedReply for a compressed body.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnexpectedReply(
            f"The response is compressed ({encoding[:40]}), although the request forbids it. Check the proxy "
            "behind --url."
        )
    is_stream = response.is_success and response.request.headers.get("accept") == "text/event-stream"
    if not is_stream:
        assert isinstance(response.stream, httpx.AsyncByteStream), "an asynchronous client has such streams"
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx.AsyncByteStream):
    """Wrapper of a byte stream that raises UnexpectedReply beyond MAX_REPLY_BYTES."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise UnexpectedReply(
                    f"The response is larger than {MAX_REPLY_BYTES:,} bytes, the most that the service sends. "
                    "Check that --url is the address of a Throughline service."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
