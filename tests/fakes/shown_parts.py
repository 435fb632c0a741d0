"""What a reader holds of a run's messages while it reads events, and the check that it holds each under its own id."""

from collections.abc import Sequence

from throughline.domain.basic_types import MessageId
from throughline.domain.events import (
    AnswerReset,
    Event,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, text_of
from throughline.domain.run import RunStatus

Part = MessageDelta | ReasoningDelta | ToolCallDelta


def check_ids(events: Sequence[Event]) -> None:
    """Check that parts have the id of the message they become, unless a reset or the run's end takes them back."""
    open_parts: list[Part] = []
    spent: set[MessageId] = set()
    last: MessageId | None = None
    for event in events:
        match event:
            case MessageDelta() | ReasoningDelta() | ToolCallDelta():
                assert event.message_id not in spent, "an id is shown for two messages"
                open_parts.append(event)
            case AnswerReset():
                spent |= {part.message_id for part in open_parts}
                open_parts = []
            case MessageCompleted(message=message):
                _check_parts(open_parts, message)
                spent.add(message.id)
                open_parts, last = [], message.id
            case ToolCalled(message_id=message_id):
                assert message_id == last
            case RunEnded(run=run, answer=answer):
                assert not open_parts or (answer is None and run.status is not RunStatus.SUCCEEDED)
            case _:
                pass
    assert isinstance(events[-1], RunEnded)


def _check_parts(parts: Sequence[Part], message: Message) -> None:
    assert {part.message_id for part in parts} <= {message.id}
    said = "".join(part.text for part in parts if isinstance(part, MessageDelta))
    assert said in {"", text_of(message.content)}
    pieces = [part for part in parts if isinstance(part, ToolCallDelta)]
    for index, call in enumerate(message.tool_calls):
        of_call = [piece for piece in pieces if piece.index == index]
        assert {(piece.call_id, piece.name) for piece in of_call} <= {(call.id, call.name)}
        assert "".join(piece.arguments_delta for piece in of_call) in {"", call.arguments}
    assert all(piece.index < len(message.tool_calls) for piece in pieces)
