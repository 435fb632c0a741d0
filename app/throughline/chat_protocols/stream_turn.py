"""The stream of one part of a run, in the form of a protocol: every protocol prints the same events."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

import structlog
from fastapi import Response

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import follow_numbered
from throughline.chat_protocols.request_run import RequestRun
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import RunEvent
from throughline.http.call import Call
from throughline.http.follow import HEARTBEAT, STREAM_HEADERS, EventStream

log = structlog.get_logger(__name__)


class EventPrinter(Protocol):
    """Printer of one part of a run as a stream of bytes. Its methods are called in their order."""

    async def begin(self) -> bytes:
        """Return what comes before all events."""
        ...

    async def encode_event(self, numbered: RunEvent) -> bytes:
        """Return what follows from the next event, b"" for nothing. The last one is RunEnded or RunWaiting.

        After AnswerReset, text sent so far may be invalid. Raises ThroughlineError if the stream cannot go on.
        """
        ...

    def fail(self, error: ThroughlineError) -> bytes:
        """Return the end of a stream that an error has ended, whatever came before. The run may go on."""
        ...


def stream_turn(
    call: Call, turn: ChatTurn, printer: EventPrinter, headers: Mapping[str, str], *, heartbeat: bytes = HEARTBEAT
) -> Response:
    """Return the HTTP response that streams the turn's part. The connection is cut if the process stops.

    `heartbeat` is sent while nothing happens.
    """
    printed = _printed(call, turn, printer, heartbeat)
    return EventStream(printed, {**STREAM_HEADERS, **headers}, send_timeout_seconds=call.config.send_timeout_seconds)


async def _printed(call: Call, turn: ChatTurn, printer: EventPrinter, heartbeat: bytes) -> AsyncGenerator[bytes]:
    bound = RequestRun(call, turn.followed.run, turn.ends_with_client)
    unsent = b""
    try:
        unsent = await printer.begin()
        if not turn.followed.is_fresh:  # the first event of a fresh one follows at once: both are sent together
            yield unsent
            unsent = b""
        async with aclosing(follow_numbered(call, turn.followed)) as batches:
            async for batch in batches:
                bound.has_ended = any(one.is_last or (one.is_pause and turn.is_stored) for one in batch)
                yield b"".join([unsent, *[await printer.encode_event(one) for one in batch]]) or heartbeat
                unsent = b""
    except ThroughlineError as error:
        log.warning("stream ended by an error", error=error.code, run_id=str(turn.followed.run.id))
        yield unsent + printer.fail(error)
    finally:
        bound.close()
