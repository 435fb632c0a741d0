"""The stream of one part of a run, in the form of a protocol: every protocol prints the same events."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

import structlog
from fastapi import Response

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import follow_batches
from throughline.chat_protocols.request_run import RequestRun
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import AnswerReset, Event, RunEnded, RunWaiting
from throughline.http.call import Call
from throughline.http.follow import HEARTBEAT, STREAM_HEADERS, EventStream

log = structlog.get_logger(__name__)


class EventPrinter(Protocol):
    """Prints one part of a run as a stream of bytes. Its methods are called in this order, `feed` for each event."""

    async def begin(self) -> bytes:
        """Return what comes before all events."""
        ...

    def feed(self, event: Event) -> bytes:
        """Return what follows from an event, b"" for nothing. Raises ThroughlineError if the stream cannot go on."""
        ...

    async def restart(self, event: AnswerReset) -> bytes:
        """Return what follows from the reset: text sent so far may be invalid. Raises ThroughlineError as `feed`."""
        ...

    async def end(self, event: RunEnded | RunWaiting) -> bytes:
        """Return the end of the stream."""
        ...

    def fail(self, error: ThroughlineError) -> bytes:
        """Return the end of a stream that an error has ended, whatever came before. The run may go on."""
        ...


def stream_turn(call: Call, turn: ChatTurn, printer: EventPrinter, headers: Mapping[str, str]) -> Response:
    """Return the HTTP response that streams the turn's part. The connection is cut if the process stops."""
    sent, timeout = {**STREAM_HEADERS, **headers}, call.config.send_timeout_seconds
    return EventStream(_printed(call, turn, printer), sent, send_timeout_seconds=timeout)


async def _printed(call: Call, turn: ChatTurn, printer: EventPrinter) -> AsyncGenerator[bytes]:
    bound = RequestRun(call, turn.followed.run, turn.ends_with_client)
    try:
        unsent = await printer.begin()
        if not turn.followed.is_fresh:  # else the first event comes at once
            yield unsent
            unsent = b""
        async with aclosing(follow_batches(call, turn.followed)) as batches:
            async for events in batches:
                bound.has_ended = any(_ends(event, turn) for event in events)
                printed = b"".join([unsent, *[await _print(printer, event) for event in events]])
                yield printed or HEARTBEAT
                unsent = b""
    except ThroughlineError as error:
        log.warning("stream ended by an error", error=error.code, run_id=str(turn.followed.run.id))
        yield printer.fail(error)
    finally:
        bound.close()


def _ends(event: Event, turn: ChatTurn) -> bool:
    """Return whether the run no longer needs its client: it is over, or waits in a session that stays."""
    return isinstance(event, RunEnded) or (isinstance(event, RunWaiting) and turn.is_stored)


async def _print(printer: EventPrinter, event: Event) -> bytes:
    match event:
        case RunEnded() | RunWaiting():
            return await printer.end(event)
        case AnswerReset():
            return await printer.restart(event)
        case _:
            return printer.feed(event)
