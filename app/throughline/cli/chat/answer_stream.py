"""Streaming of the answer to one message, or of a run that has begun, with reconnection when the connection is lost."""

import asyncio
import codecs
import re
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from throughline.cli.client import RequestRefused, ServiceClient, ServiceUnreachable, UnexpectedReply, read_json
from throughline.wire.events import EVENTS, EventData, RunEnded, RunOut, RunStarted, RunWaiting

# Parser of server-sent events according to the HTML standard (section 9.2.6), fed with bytes as they arrive. The
# package httpx-sse (0.4.3) is not used. It turns each heartbeat into an event without data once an id was sent. It
# loses the first event of a stream that begins with a byte order mark. It holds back an event whose last byte is a
# carriage return until the next chunk.

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


RETRY_DELAYS_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class ConnectionCut:
    """Event: the connection was lost and is being opened again.

    `attempt` counts the attempts to reconnect since the last received event, from 1.
    """

    attempt: int


AnswerEvent: TypeAlias = EventData | ConnectionCut


class AnswerStream:
    """Sender of one message that yields the events of its answer up to the last one, or until its run waits.

    The message has a fresh idempotency key, so that sending it again after a lost connection joins the same run. Once
    the run is known, the stream resumes after the last received event. `run_known` is set as soon as `run_id` is.
    `is_waiting` says whether the last event was that the run waits.
    """

    def __init__(
        self,
        client: ServiceClient,
        session_id: str,
        content: str,
        *,
        retry_delays: tuple[float, ...],
        model: str = "",
    ) -> None:
        """Prepare the message, which `model` answers, '' for the agent's own. `events` sends it."""
        self._client = client
        self._session_id = session_id
        self._content = content
        self._retry_delays = retry_delays
        self._model = model
        self._key = secrets.token_hex(16)
        self._last_event_id = ""
        self._was_connected = False
        self._has_ended = False
        self._failures = 0
        self.is_waiting = False
        self.run_id = ""
        self.run_known = asyncio.Event()

    @classmethod
    def of_run(cls, client: ServiceClient, run: RunOut, *, retry_delays: tuple[float, ...]) -> "AnswerStream":
        """Return the stream of a run that has begun, from its first event on; it sends no message."""
        stream = cls(client, run.session_id, "", retry_delays=retry_delays)
        stream._learn_run(run.id)
        return stream

    async def events(self) -> AsyncGenerator[AnswerEvent, None]:
        """Send the message and yield the events of its answer. After a wait, yield what follows once it is resumed.

        Raises ServiceUnreachable if the connection stays lost, and RequestRefused if the service refuses the message.
        """
        self.is_waiting = False
        async with aclosing(self._read_until_cut()) as events:
            async for event in events:
                yield event
        while not (self._has_ended or self.is_waiting):
            await self._wait_after_cut()
            yield ConnectionCut(attempt=self._failures)
            async with aclosing(self._read_until_cut()) as events:
                async for event in events:
                    yield event

    async def _wait_after_cut(self) -> None:
        if self._failures == len(self._retry_delays):
            raise ServiceUnreachable(
                f"The connection was lost while the answer to session {self._session_id} was being written. The "
                f"service completes the answer. Continue with `throughline chat --session {self._session_id}`."
            )
        await asyncio.sleep(self._retry_delays[self._failures])
        self._failures += 1

    async def _read_until_cut(self) -> AsyncGenerator[AnswerEvent, None]:
        try:
            async with self._connect() as response, aclosing(self._read(response)) as events:
                async for event in events:
                    yield event
        except (ServiceUnreachable, RequestRefused) as error:
            if not self._may_try_again(error):
                raise

    def _may_try_again(self, error: ServiceUnreachable | RequestRefused) -> bool:
        """Return whether to connect again after `error`, which may be due to a restart of the service.

        True only after a first successful connection, and never for a client error (4xx).
        """
        return self._was_connected and not (
            isinstance(error, RequestRefused) and error.status < httpx.codes.INTERNAL_SERVER_ERROR
        )

    async def _read(self, response: httpx.Response) -> AsyncGenerator[AnswerEvent, None]:
        """Yield the events of one connection, up to the last event of the run or the end of the stream."""
        self._was_connected = True
        self._learn_run(_run_id_of(response))
        parser = SseParser()
        async for chunk in response.aiter_bytes():
            for raw in parser.feed(chunk):
                event = self._take(raw)
                if event is not None:
                    yield event
            if self._has_ended:
                return

    def _take(self, raw: ServerSentEvent) -> AnswerEvent | None:
        event = _read_event(raw)
        self._failures = 0
        self._last_event_id = raw.id or self._last_event_id
        if isinstance(event, RunStarted):
            self._learn_run(event.run.id)
        self._has_ended = self._has_ended or isinstance(event, RunEnded)
        self.is_waiting = isinstance(event, RunWaiting)
        return event

    def _connect(self) -> AbstractAsyncContextManager[httpx.Response]:
        if self.run_id:
            return self._client.follow_run(self.run_id, last_event_id=self._last_event_id)
        return self._client.post_message(self._session_id, self._content, key=self._key, model=self._model)

    def _learn_run(self, run_id: str) -> None:
        if run_id:
            self.run_id = run_id
            self.run_known.set()


def _read_event(raw: ServerSentEvent) -> EventData | None:
    """Return the data of an event, None for a type that this version does not know.

    Raises UnexpectedReply if the event is unreadable.
    """
    kind = EVENTS.get(raw.event)
    return None if kind is None else read_json(kind, raw.data)


def _run_id_of(response: httpx.Response) -> str:
    """Return the run id in the headers of the reply to a message, '' if they contain none."""
    path = str(response.headers.get("content-location") or response.headers.get("location") or "")
    _, found, rest = path.partition("/v1/runs/")
    return rest.partition("/")[0] if found else ""
