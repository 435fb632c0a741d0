"""A provider on OpenAI's wire whose models do one wrong thing each, for `benchmarks.hostile`.

`ANSWERS` says what; the model `fine` answers as it should. What has no end goes on until the client hangs up.
"""

import argparse
import asyncio
import gzip
import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

EVENTS = "text/event-stream"
PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent: pieces, maybe without end, and the head before them."""

    pieces: Iterable[bytes]
    status: str = "200 OK"
    content_type: str = EVENTS
    encoding: str = ""


def _event(delta: Mapping[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return (
        b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def _call_pieces() -> list[bytes]:
    """Forty thousand pieces of two hundred calls, in turns."""
    calls = (
        {"index": n % 200, "id": f"c{n % 200}", "function": {"name": "x", "arguments": "1"}} for n in range(40_000)
    )
    return [*(_event({"tool_calls": [call]}) for call in calls), _event({}, "tool_calls"), b"data: [DONE]\n\n"]


FINE = [_event({"role": "assistant", "content": "Fine."}), _event({}, "stop"), b"data: [DONE]\n\n"]
BOMB = gzip.compress(b"data: " + b"x" * 500_000_000)
JUNK = b"x" * PIECE_BYTES
ANSWERS: Mapping[str, Answer] = {
    "fine": Answer(FINE),
    "empty-deltas": Answer(itertools.repeat(_event({"content": ""}) * 100)),
    "reasoning": Answer(itertools.repeat(_event({"reasoning_content": "hm "}) * 100)),
    "one-character-deltas": Answer(itertools.repeat(_event({"content": "x"}) * 100)),
    "endless-line": Answer(itertools.chain([b"data: "], itertools.repeat(JUNK))),
    "endless-page": Answer(itertools.repeat(b"<p>busy</p>\n" * 5_000), content_type="text/html"),
    "gzip-bomb": Answer([BOMB], encoding="gzip"),
    "endless-error": Answer(itertools.repeat(JUNK), "500 Internal Server Error", "application/json"),
    "long-error": Answer([JUNK] * 700, "400 Bad Request", "application/json"),
    "many-calls": Answer(_call_pieces()),
}


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(_listen(parser.parse_args().port))


async def _listen(port: int) -> None:
    async with await asyncio.start_server(_serve, "127.0.0.1", port) as server:
        await server.serve_forever()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request and hang up."""
    with suppress(OSError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
        body = await reader.readexactly(length)
        await _answer(writer, ANSWERS[json.loads(body)["model"] if body else "fine"])
    writer.close()


async def _answer(writer: asyncio.StreamWriter, answer: Answer) -> None:
    encoding = f"Content-Encoding: {answer.encoding}\r\n" if answer.encoding else ""
    head = f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.content_type}\r\n{encoding}Connection: close\r\n\r\n"
    writer.write(head.encode())
    for piece in answer.pieces:
        writer.write(piece)
        await writer.drain()
