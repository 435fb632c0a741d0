"""Streaming of a response as server-sent events in OpenAI's form."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog
from fastapi import Response

from throughline.agents.definition import AgentDefinition
from throughline.chat_protocols.follow_part import FollowedPart, RunPart, follow_batches
from throughline.domain.basic_types import MessageId
from throughline.domain.elicitation import ASK_USER
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    Event,
    MessageCompleted,
    MessageDelta,
    RunEnded,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, ToolCall, text_of
from throughline.domain.run import RunStatus
from throughline.domain.tool import AwaitedCall, WaitKind
from throughline.http.call import Call
from throughline.http.follow import STREAM_HEADERS, EventStream
from throughline.http.problem_documents import json_line
from throughline.http.route_errors import StreamAborted
from throughline.openai.output_items import (
    JsonDict,
    approval_item,
    call_item_id,
    function_item,
    mcp_item,
    message_item,
    message_item_id,
    question_items,
    text_part,
)
from throughline.openai.response_object import RunResponse, final_response, response_json

# Events of a streamed response in OpenAI's form, made from the events of a run. See
# https://platform.openai.com/docs/api-reference/responses-streaming . The same events of a run always give the same
# events with the same sequence numbers, so that a reader can come back and continue after any of them.

IN_PROGRESS, INCOMPLETE = "in_progress", "incomplete"


@dataclass(slots=True)
class _OpenText:
    """The text of a message that is being streamed."""

    item_id: str
    index: int
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenCall:
    """A tool call that is being streamed, or whose result is awaited."""

    item_id: str
    index: int
    call: ToolCall
    is_for_client: bool

    def item(self, status: str, result: Message | None = None) -> JsonDict:
        """Return the call's item with the arguments streamed so far."""
        if self.is_for_client:
            return function_item(self.item_id, self.call, status)
        return mcp_item(self.item_id, self.call, result, status)

    @property
    def kind(self) -> str:
        """The part of the names of events about the call's arguments."""
        return "function_call" if self.is_for_client else "mcp_call"


class ResponseEvents:
    """The events of one response, from the run's events of its part; all but the first two and the last.

    `client_tools` are the names of tools whose results the client brings. Calls of tools for which `asks_approval` is
    true are left out: they are shown once the run waits for them.
    """

    def __init__(self, client_tools: frozenset[str], asks_approval: Callable[[str], bool]) -> None:
        self._client_tools = client_tools
        self._asks_approval = asks_approval
        self._next_index = 0
        self._texts: dict[MessageId, _OpenText] = {}
        self._calls: dict[tuple[MessageId, int], _OpenCall] = {}
        self._running: dict[str, _OpenCall] = {}
        self._called: dict[MessageId, int] = {}

    def feed(self, event: Event) -> Iterator[JsonDict]:
        """Yield the response's events that follow from one event of the run; none for many kinds of events."""
        match event:
            case MessageDelta(message_id=message_id, text=text):
                yield from self._add_text(message_id, text)
            case MessageCompleted(message=message):
                yield from self._complete_message(message)
            case ToolCallDelta():
                yield from self._add_arguments(event)
            case ToolCalled(call=call, message_id=message_id):
                yield from self._complete_call(message_id, call)
            case ToolAnswered(message=message):
                yield from self._complete_result(message)
            case AnswerReset():
                yield from self._discard()
            case _:
                pass

    def add_item(self, item: JsonDict) -> Iterator[JsonDict]:
        """Yield the events of an item that comes as a whole."""
        index = self._take_index()
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _take_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    def _add_text(self, message_id: MessageId, text: str) -> Iterator[JsonDict]:
        if message_id not in self._texts:
            opened = _OpenText(message_item_id(message_id), self._take_index())
            self._texts[message_id] = opened
            item: JsonDict = {
                "type": "message",
                "id": opened.item_id,
                "status": IN_PROGRESS,
                "role": "assistant",
                "content": [],
            }
            yield {"type": "response.output_item.added", "output_index": opened.index, "item": item}
            yield {"type": "response.content_part.added", **_at_text(opened), "part": text_part("")}
        opened = self._texts[message_id]
        opened.pieces.append(text)
        yield {"type": "response.output_text.delta", **_at_text(opened), "delta": text, "logprobs": []}

    def _complete_message(self, message: Message) -> Iterator[JsonDict]:
        whole = text_of(message.content)
        if message.id not in self._texts and (whole or not message.tool_calls):
            yield from self._add_text(message.id, whole)
        opened = self._texts.pop(message.id, None)
        if opened is not None:
            yield from _text_done(opened, whole)
            yield {
                "type": "response.output_item.done",
                "output_index": opened.index,
                "item": message_item(message),
            }

    def _add_arguments(self, event: ToolCallDelta) -> Iterator[JsonDict]:
        if self._asks_approval(event.name):
            return
        key = (event.message_id, event.index)
        if key not in self._calls:
            yield from self._open_call(key, ToolCall(event.call_id, event.name, ""))
        opened = self._calls[key]
        opened.call = ToolCall(opened.call.id, opened.call.name, opened.call.arguments + event.arguments_delta)
        if event.arguments_delta:
            yield _arguments_delta(opened, event.arguments_delta)

    def _open_call(self, key: tuple[MessageId, int], call: ToolCall) -> Iterator[JsonDict]:
        opened = _OpenCall(call_item_id(*key), self._take_index(), call, call.name in self._client_tools)
        self._calls[key] = opened
        yield {"type": "response.output_item.added", "output_index": opened.index, "item": opened.item(IN_PROGRESS)}

    def _complete_call(self, message_id: MessageId, call: ToolCall) -> Iterator[JsonDict]:
        """Yield the events of a call whose arguments are complete. One of the service goes on until it has a result."""
        number = self._called.get(message_id, 0)
        self._called[message_id] = number + 1
        if self._asks_approval(call.name):
            return
        key = (message_id, number)
        if key not in self._calls:
            yield from self._open_call(key, ToolCall(call.id, call.name, ""))
        opened = self._calls.pop(key)
        if not opened.call.arguments:
            yield _arguments_delta(opened, call.arguments)
        opened.call = call
        yield {
            "type": f"response.{opened.kind}_arguments.done",
            **_at_call(opened),
            "arguments": call.arguments,
            **({"name": call.name} if opened.is_for_client else {}),
        }
        if opened.is_for_client:
            yield _item_done(opened, "completed")
        else:
            self._running[call.id] = opened
            yield {"type": "response.mcp_call.in_progress", **_at_call(opened)}

    def _complete_result(self, message: Message) -> Iterator[JsonDict]:
        opened = self._running.pop(message.tool_call_id or "", None)
        if opened is not None:
            outcome = "failed" if message.metadata.get("is_error") is True else "completed"
            yield {"type": f"response.mcp_call.{outcome}", **_at_call(opened)}
            yield _item_done(opened, outcome, message)

    def _discard(self) -> Iterator[JsonDict]:
        """Close what is being streamed as incomplete: the run begins its answer again."""
        for opened in self._texts.values():
            text = "".join(opened.pieces)
            yield from _text_done(opened, text)
            item: JsonDict = {
                "type": "message",
                "id": opened.item_id,
                "status": INCOMPLETE,
                "role": "assistant",
                "content": [text_part(text)],
            }
            yield {"type": "response.output_item.done", "output_index": opened.index, "item": item}
        for call in (*self._calls.values(), *self._running.values()):
            yield _item_done(call, INCOMPLETE)
        self._texts.clear()
        self._calls.clear()
        self._running.clear()


def _at_text(opened: _OpenText) -> JsonDict:
    return {"item_id": opened.item_id, "output_index": opened.index, "content_index": 0}


def _at_call(opened: _OpenCall) -> JsonDict:
    return {"item_id": opened.item_id, "output_index": opened.index}


def _text_done(opened: _OpenText, text: str) -> Iterator[JsonDict]:
    yield {"type": "response.output_text.done", **_at_text(opened), "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **_at_text(opened), "part": text_part(text)}


def _arguments_delta(opened: _OpenCall, delta: str) -> JsonDict:
    return {"type": f"response.{opened.kind}_arguments.delta", **_at_call(opened), "delta": delta}


def _item_done(opened: _OpenCall, status: str, result: Message | None = None) -> JsonDict:
    return {
        "type": "response.output_item.done",
        "output_index": opened.index,
        "item": opened.item(status, result),
    }


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
    """Return the events with which the response ends. Calls that wait for approval, and questions, are shown now."""
    shown = response_json(await final_response(call, stream.followed, ended, stream.response.part.number))
    waiting: tuple[AwaitedCall, ...] = ()
    if isinstance(ended, RunWaiting) and ended.run.wait is not None:
        waiting = ended.run.wait.calls
    asked = [approval_item(awaited.call) for awaited in waiting if awaited.kind is WaitKind.APPROVAL]
    items = (*asked, *question_items(ended.run.wait if isinstance(ended, RunWaiting) else None))
    return (*(event for item in items for event in made.add_item(item)), _last_event(shown))


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
    agent = response.agent or AgentDefinition("")
    return ResponseEvents(tools, agent.asks_approval)


def _whole_events(response: RunResponse) -> Iterator[JsonDict]:
    yield from _first_events(response)
    shown, made = response_json(response), _events_of(response)
    output = shown["output"]
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict):
            yield from made.add_item(item)
    yield _last_event(shown)
