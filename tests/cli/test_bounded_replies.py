"""Servers whose answers never end, or hold more than was sent: the command line reads so much and no more."""

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from throughline.cli.answer_stream import MAX_EVENT_BYTES, SseParser
from throughline.cli.client import ServiceClient, SessionFilter
from throughline.cli.connection import MAX_REPLY_BYTES, bound_reply
from throughline.cli.failures import UnexpectedReply

PIECE = b" " * 1_000_000


class Endless(httpx.AsyncByteStream):
    """A body without end; `sent` counts its bytes."""

    def __init__(self) -> None:
        """Begin."""
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield one piece after the other."""
        while True:
            self.sent += len(PIECE)
            yield PIECE


def client_of(response: httpx.Response) -> ServiceClient:
    http = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: response),
        base_url="http://server.test",
        event_hooks={"response": [bound_reply]},
    )
    return ServiceClient(http, place="http://server.test")


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "application/json"), (500, "text/html"), (200, "text/event-stream")]
)
async def test_an_answer_without_end_is_read_up_to_a_bound(status: int, kind: str) -> None:
    body = Endless()
    client = client_of(httpx.Response(status, stream=body, headers={"content-type": kind}))

    with pytest.raises(
        UnexpectedReply, match=r"larger than 100,000,000 bytes, the most that the service sends. Check that"
    ):
        await client.sessions(SessionFilter(), limit=1)

    assert body.sent == MAX_REPLY_BYTES + len(PIECE)


async def test_a_compressed_answer_is_refused_unread() -> None:
    response = httpx.Response(200, content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})

    with pytest.raises(UnexpectedReply, match=r"compressed \(gzip\), although the request forbids it. Check the proxy"):
        await client_of(response).agents()


@pytest.mark.slow
def test_an_event_without_end_is_read_up_to_a_bound() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: first\n\ndata: second\ndata: ")) != []

    for _ in range(MAX_EVENT_BYTES // len(PIECE)):
        assert list(parser.feed(PIECE)) == []

    with pytest.raises(UnexpectedReply, match="the most that the service sends"):
        list(parser.feed(PIECE))
