"""Parser of server-sent events as the HTML standard describes them (section 9.2.6), fed with bytes as they come.

The package httpx-sse (0.4.3) is not used: it makes an event without data of each heartbeat once an id was sent, loses
the first event of a stream that begins with a byte order mark, and holds back an event whose last byte is a carriage
return until the next chunk.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from throughline.cli.failures import UnexpectedReply

MAX_EVENT_BYTES = 100_000_000
"""An answer and its tool results are 7 MB at most, and JSON may write one byte in six."""

LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `id` is the last event id in force when it was dispatched, empty where none was sent."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Turns a byte stream, cut anywhere, into events.

    An event larger than the service's largest is refused, before it fills the memory. Comments and unknown fields are
    skipped; an event that the stream's end cuts off is dropped, as the standard
    demands. A line feed that follows a carriage return in the next chunk belongs to the same line end.
    """

    def __init__(self) -> None:
        """Start at the beginning of a stream."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True
        self._after_return = False
        self._pending: list[str] = []
        self._held = 0
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Take the next bytes and yield the events they complete. Raises UnexpectedReply for one without end."""
        self._held += len(chunk)
        if self._held > MAX_EVENT_BYTES:
            raise UnexpectedReply(f"An event of the stream is larger than any of this service's ({MAX_EVENT_BYTES:,}).")
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
