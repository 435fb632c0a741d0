"""A loopback HTTP server that answers with scripted bytes, and a client that sends such bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

JSON = "application/json"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer. `pieces` are sent one after the other; after them the server hangs up, or waits for ever.

    Pieces without end are sent until the client hangs up.

    `is_cut` breaks the chunked body off without its end, as a dying server does.
    """

    pieces: Iterable[str | bytes]
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False
    hangs: bool = False


@dataclass(slots=True)
class RawServer:
    """What the server was asked. `hung_up` is set when a client closes a connection whose answer was not over."""

    url: str
    answers: list[Answer]
    requests: list[dict[str, object]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)


def error_answer(status: int, body: object, **headers: str) -> Answer:
    """An error with a JSON body (a string goes out as it is)."""
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer(
        [text], status=status, headers=tuple((name.replace("_", "-"), value) for name, value in headers.items())
    )


def openai_stream(*events: object, is_cut: bool = False, hangs: bool = False, done: bool = True) -> Answer:
    """Server-sent events as OpenAI writes them; a string goes out as the data of its event."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    ending = ["data: [DONE]\n\n"] if done and not is_cut and not hangs else []
    pieces = [f"data: {text}\n\n" for text in texts]
    return Answer([*pieces, *ending], content_type=EVENT_STREAM, is_cut=is_cut, hangs=hangs)


def anthropic_stream(*events: dict[str, object]) -> Answer:
    """Server-sent events as Anthropic writes them."""
    pieces = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return Answer(pieces, content_type=EVENT_STREAM)


def anthropic_start(input_tokens: int) -> dict[str, object]:
    """The event that opens an answer of Anthropic's."""
    message: dict[str, object] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-test",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": 1},
    }
    return {"type": "message_start", "message": message}


@asynccontextmanager
async def serve_raw(*answers: Answer) -> AsyncIterator[RawServer]:
    """Serve the answers in order on a free port of 127.0.0.1; all must be asked for."""
    state = RawServer(url="", answers=list(answers))
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _answer(state, reader, writer)
        except ConnectionError:
            state.hung_up.set()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
        assert not state.answers, f"{len(state.answers)} scripted answers were not asked for"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(state: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    state.heads.append(head)
    state.paths.append(head.split(" ", 2)[1])
    length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
    body = await reader.readexactly(length)
    is_form = "application/x-www-form-urlencoded" in head
    state.requests.append(dict(parse_qsl(body.decode())) if is_form else json.loads(body or b"{}"))
    answer = state.answers.pop(0)
    lines = [
        f"HTTP/1.1 {answer.status} Scripted",
        f"content-type: {answer.content_type}",
        "transfer-encoding: chunked",
        "connection: close",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    for piece in answer.pieces:
        data = piece if isinstance(piece, bytes) else piece.encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
    if answer.hangs:
        await reader.read()
        state.hung_up.set()
    elif not answer.is_cut:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer: its status, its headers by lower-case name, its body."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        """Send what is given, as it is."""
        self._writer.write(data)

    async def drip(self, data: bytes, seconds: float) -> None:
        """Send one byte after the other with a pause between, until the server closes or all is sent."""
        for byte in data:
            if self._reader.at_eof() or self._writer.is_closing():
                return
            self._writer.write(bytes([byte]))
            await asyncio.sleep(seconds)

    async def answer(self) -> RawAnswer:
        """Return the next answer, whose length must be declared."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.splitlines()
            pairs = [line.split(": ", 1) for line in lines if line]
            headers = {name.lower(): value for name, value in pairs}
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return RawAnswer(int(status.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """Return what comes until the server closes; b'' too where it aborts."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        """Close."""
        self._writer.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RawClient]:
    """Yield a connection to the server at `url`."""
    address = urlsplit(url)
    client = RawClient(*await asyncio.open_connection(address.hostname, address.port))
    try:
        yield client
    finally:
        client.close()
