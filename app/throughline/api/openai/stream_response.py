"""Streaming of a response as server-sent events in OpenAI's form."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog
from fastapi import Response

from throughline.api.http.admitted_request import Call
from throughline.api.http.request_errors import StreamAborted
from throughline.api.http.responses import json_line
from throughline.api.http.sse import STREAM_HEADERS, EventStream
from throughline.api.openai.follow_part import FollowedPart, follow_batches
from throughline.api.openai.output_items import JsonDict, approval_item
from throughline.api.openai.read_response import ended_response
from throughline.api.openai.response_events import ResponseEvents
from throughline.api.openai.response_object import RunResponse, response_json
from throughline.api.openai.run_parts import RunPart
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import Event, RunEnded, RunWaiting
from throughline.domain.run import RunStatus
from throughline.domain.tool import ASK_USER
from throughline.domain.waiting import AwaitedCall, WaitKind

END = b"data: [DONE]\n\n"
LAST_EVENTS = {"completed": "response.completed", "failed": "response.failed"}
"""Name of a stream's last event by the response's status; `response.incomplete` for all others."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ResponseStream:
    """A response to stream, and where its events are found. Events up to number `starting_after` are not sent.

    `is_whole`: the run's events are deleted, so each item comes as a whole.
    """

    response: RunResponse
    followed: FollowedPart
    starting_after: int = -1
    is_whole: bool = False


async def find_events(
    call: Call, response: RunResponse, followed: FollowedPart, starting_after: int = -1
) -> ResponseStream:
    """Return the stream of the response. If it is over, the run's events may be deleted."""
    has_none = response.is_over and not await call.services.database.followed_runs.read_events(response.run.id, 0, 1)
    return ResponseStream(response, followed, starting_after, is_whole=has_none)


def stream_response(call: Call, stream: ResponseStream, headers: Mapping[str, str] | None = None) -> Response:
    """Return the HTTP response that streams the response's events, up to its last one; `headers` are further ones."""
    timeout = call.config.send_timeout_seconds
    return EventStream(_chunks(call, stream), {**STREAM_HEADERS, **(headers or {})}, send_timeout_seconds=timeout)


async def _chunks(call: Call, stream: ResponseStream) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(numbered_events(call, stream)) as batches:
            async for events in batches:
                yield _encoded(events)
    except ThroughlineError as error:
        log.warning("response stream cut after an error", run_id=str(stream.response.run.id), error=error.code)
        raise StreamAborted from error
    yield END


async def numbered_events(call: Call, stream: ResponseStream) -> AsyncGenerator[list[JsonDict]]:
    """Yield the response's events with their numbers, all that are known at a time together.

    While nothing happens, `response.in_progress` is repeated: some clients give a stream up that has no event for a
    while, and comments are none. Raises what `follow_run` raises.
    """
    numbers = _Numbers(stream.starting_after)
    async with aclosing(_events(call, stream)) as batches:
        async for events in batches:
            numbered = numbers.add(events) if events else [numbers.repeat(_in_progress(stream.response))]
            if numbered:
                yield numbered


def _encoded(events: Iterable[JsonDict]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), json_line(event)) for event in events)


@dataclass(slots=True)
class _Numbers:
    """Numbers events in their order. Those up to number `starting_after` are left out."""

    starting_after: int
    next_number: int = 0

    def add(self, events: Iterable[JsonDict]) -> list[JsonDict]:
        """Return the next events with their numbers, without those that are left out."""
        numbered = list(enumerate(events, start=self.next_number))
        self.next_number += len(numbered)
        return [{**event, "sequence_number": number} for number, event in numbered if number > self.starting_after]

    def repeat(self, event: JsonDict) -> JsonDict:
        """Return an event that a resumed stream does not have: it has the number of the one before it."""
        return {**event, "sequence_number": max(self.next_number - 1, 0)}


async def _events(call: Call, stream: ResponseStream) -> AsyncGenerator[list[JsonDict]]:
    """Yield the response's events without their numbers, all that are known at a time together; none while idle."""
    if stream.is_whole:
        yield list(_whole_events(stream.response))
        return
    yield list(_first_events(stream.response))
    made = _events_of(stream.response)
    async with aclosing(follow_batches(call, stream.followed)) as batches:
        async for happened in batches:
            shown = [shown for event in happened for shown in await _shown(call, event, made, stream)]
            if shown or not happened:
                yield shown


async def _shown(call: Call, happened: Event, made: ResponseEvents, stream: ResponseStream) -> Sequence[JsonDict]:
    """Return the response's events that follow from one event of the run."""
    if isinstance(happened, RunEnded | RunWaiting):
        return await _ending(call, happened, made, stream)
    return tuple(made.feed(happened))


async def _ending(
    call: Call, ended: RunEnded | RunWaiting, made: ResponseEvents, stream: ResponseStream
) -> tuple[JsonDict, ...]:
    """Return the events with which the response ends. Calls that wait for approval are shown now."""
    shown = response_json(await ended_response(call, stream.followed, ended, stream.response.part.number))
    waiting: tuple[AwaitedCall, ...] = ()
    if isinstance(ended, RunWaiting) and ended.run.wait is not None:
        waiting = ended.run.wait.calls
    asked = [approval_item(awaited.call) for awaited in waiting if awaited.kind is WaitKind.APPROVAL]
    return (*(event for item in asked for event in made.add_item(item)), _last_event(shown))


def _first_events(response: RunResponse) -> Iterator[JsonDict]:
    """Yield the two events with which every stream begins, with the response object as it was then."""
    begun = _in_progress(response)
    yield {**begun, "type": "response.created"}
    yield begun


def _in_progress(response: RunResponse) -> JsonDict:
    run = replace(response.run, status=RunStatus.RUNNING, finished_at=None)
    begun = response_json(replace(response, run=run, part=RunPart(number=response.part.number)))
    return {"type": "response.in_progress", "response": begun}


def _last_event(shown: JsonDict) -> JsonDict:
    return {"type": LAST_EVENTS.get(str(shown["status"]), "response.incomplete"), "response": shown}


def _events_of(response: RunResponse) -> ResponseEvents:
    tools = response.kinds.client_tools | {ASK_USER}
    approvals = frozenset[str]() if response.agent is None else response.agent.needs_approval
    return ResponseEvents(tools, approvals)


def _whole_events(response: RunResponse) -> Iterator[JsonDict]:
    yield from _first_events(response)
    shown, made = response_json(response), _events_of(response)
    output = shown["output"]
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict):
            yield from made.add_item(item)
    yield _last_event(shown)
