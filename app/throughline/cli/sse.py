"""Parser of server-sent events according to the HTML standard (section 9.2.6), fed with bytes as they arrive.

The package httpx-sse (0.4.3) is not used. It turns each heartbeat into an event without data once an id was sent. It
loses the first event of a stream that begins with a byte order mark. It holds back an event whose last byte is a
carriage return until the next chunk.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from throughline.cli.failures import UnexpectedReply

MAX_EVENT_BYTES = 100_000_000
"""Largest event in bytes. An answer with tool results has at most 7 MB, and JSON may need six bytes for one."""

LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `id` is the last event id received up to its dispatch, '' if none was sent."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Parser that turns a byte stream, split at any position, into events.

    An event larger than MAX_EVENT_BYTES is refused before it fills the memory. Comments and unknown fields are skipped.
    An event that the stream's end cuts off is dropped, as the standard demands. A line feed that follows a carriage
    return in the next chunk belongs to the same line end.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True
        self._after_return = False
        self._pending: list[str] = []
        self._held = 0
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Parse the next bytes and yield the completed events. Raises UnexpectedReply if an event is too large."""
        self._held += len(chunk)
        if self._held > MAX_EVENT_BYTES:
            raise UnexpectedReply(
                f"An event of the stream is larger than {MAX_EVENT_BYTES:,} bytes, the most that the service sends."
            )
        for line in self._lines(self._decoder.decode(chunk)):
            if line:
                self._take_field(line)
                continue
            self._held = 0
            event = self._dispatch()
            if event is not None:
                yield event

    def _lines(self, text: str) -> Iterator[str]:
        if not text:
            return
        if self._at_start:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        if self._after_return:
            text = text.removeprefix("\n")
        self._after_return = text.endswith("\r")
        *complete, rest = LINE_END.split(text)
        for line in complete:
            self._pending.append(line)
            yield "".join(self._pending)
            self._pending.clear()
        self._pending.append(rest)

    def _take_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\x00" not in value:
            self._id = value

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = "\n".join(self._data), self._event
        had_data = bool(self._data)
        self._data.clear()
        self._event = ""
        return ServerSentEvent(data, event or "message", self._id) if had_data else None
