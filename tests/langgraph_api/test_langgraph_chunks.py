"""Pieces of messages in LangGraph's stream, where an attempt starts again or a stream is joined."""

from datetime import UTC, datetime
from uuid import UUID

from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.events import MessageDelta, ToolCallDelta
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.langgraph_api.stream import MessageChunks, ServerSentEvent

FIRST, SECOND = MessageId(UUID(int=1)), MessageId(UUID(int=2))


def chunks(*, is_joined: bool = False) -> MessageChunks:
    return MessageChunks(("messages-tuple",), {}, is_joined=is_joined)


def answer(text: str, *calls: ToolCall) -> Message:
    now = datetime.now(UTC)
    return Message(SECOND, SessionId(UUID(int=9)), 2, Role.ASSISTANT, text, Source.API, now, tool_calls=calls)


def shown(*parts: ServerSentEvent) -> list[object]:
    """Return the type, the end of the id and the content of each message among the parts."""
    messages = [data[0] for _, data in parts if isinstance(data, list)]
    return [(one["type"], str(one["id"])[-1], one["content"]) for one in messages if isinstance(one, dict)]


def test_an_attempt_that_starts_again_takes_its_pieces_back() -> None:
    printed = chunks()
    begun = [*printed.grow(MessageDelta(FIRST, "Hel"))]

    taken_back = [*printed.remove_incomplete()]
    again = [*printed.grow(MessageDelta(SECOND, "Hello")), *printed.complete(answer("Hello."))]

    assert shown(*begun) == [("AIMessageChunk", "1", "Hel")]
    assert shown(*taken_back) == [("remove", "1", "")]
    assert shown(*again) == [("AIMessageChunk", "2", "Hello"), ("AIMessageChunk", "2", ".")]


def test_a_joined_stream_repeats_nothing_of_the_message_that_was_begun() -> None:
    printed = chunks(is_joined=True)

    first = [*printed.complete(answer("Hello."))]
    second = [*printed.complete(answer("Bye."))]

    assert shown(*first) == []
    assert shown(*second) == [("AIMessageChunk", "2", "Bye.")]


def test_calls_that_came_at_once_follow_those_that_came_in_pieces() -> None:
    printed = chunks()
    calls = ToolCall("call_1", "add", '{"a": 1}'), ToolCall("call_2", "add", '{"a": 2}')

    pieces = [
        *printed.grow(ToolCallDelta(SECOND, 0, "call_1", "add", '{"a": 1}')),
        *printed.complete(answer("", *calls)),
    ]

    made = [data[0]["tool_call_chunks"] for _, data in pieces if isinstance(data, list) and isinstance(data[0], dict)]
    assert made == [
        [{"args": call.arguments, "index": place, "type": "tool_call_chunk", "name": "add", "id": call.id}]
        for place, call in enumerate(calls)
    ]
