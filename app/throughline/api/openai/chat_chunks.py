"""Chunks of a streamed chat completion, made from the events of a run.

A stream cannot take text back. After a reset the new text is held until it has reached the end of what was sent; if it
differs before, the stream cannot go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from throughline.api.openai.chat_object import BETWEEN, ChatAnswer, call_json, chat_usage_json, head_json
from throughline.api.openai.output_items import JsonDict
from throughline.api.openai.response_object import RunResponse
from throughline.domain.errors import TemporaryError
from throughline.domain.events import (
    AnswerReset,
    Event,
    MessageCompleted,
    MessageDelta,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.ids import MessageId
from throughline.domain.json_types import JsonValue
from throughline.domain.message import ToolCall, text_of


class AnswerRestarted(TemporaryError):
    """The answer was begun again, and its new text differs from what the client was sent."""

    code = "answer_restarted"


@dataclass(slots=True)
class _Sent:
    """What was sent of the message that the model writes now, and what it has written since the last reset."""

    text: str = ""
    written: str = ""
    calls: dict[tuple[MessageId, int], str] = field(default_factory=dict)


class ChatChunks:
    """The chunks of one completion. `feed` takes the run's events of its part, `end` the answer once the part is over.

    `response` is the part's response before its end. With `is_structured` the text comes as a whole at the end, because
    an answer that does not fit the format is asked again.
    """

    def __init__(self, response: RunResponse, *, is_structured: bool, includes_usage: bool) -> None:
        self._head = head_json(response, "chat.completion.chunk")
        self._client_tools = response.kinds.client_tools
        self._is_structured = is_structured
        self._includes_usage = includes_usage
        self._sent = _Sent()
        self._has_begun = False
        self._has_text = False
        self._numbers: dict[str, int] = {}
        self._counted: dict[MessageId, int] = {}

    def feed(self, event: Event) -> Iterator[JsonDict]:
        """Yield the chunks that follow from one event of the run. Raises AnswerRestarted."""
        yield from self._with_role(self._event_chunks(event))

    def end(self, answer: ChatAnswer) -> Iterator[JsonDict]:
        """Yield the last chunks: what was not sent yet, why the answer ends, and what it has used if that is asked."""
        yield from self._with_role(self._last_chunks(answer))

    def _with_role(self, chunks: Iterator[JsonDict]) -> Iterator[JsonDict]:
        """Yield the chunks, with the one that names the role before the first of all."""
        for chunk in chunks:
            if not self._has_begun:
                self._has_begun = True
                yield self._chunk({"role": "assistant", "content": "", "refusal": None})
            yield chunk

    def _event_chunks(self, event: Event) -> Iterator[JsonDict]:
        match event:
            case MessageDelta(text=text):
                yield from self._write(text)
            case MessageCompleted(message=message):
                yield from self._complete(text_of(message.content))
            case ToolCallDelta(name=name) if name in self._client_tools:
                yield from self._write_arguments(event)
            case ToolCalled(call=call, message_id=message_id):
                yield from self._complete_call(call, message_id)
            case AnswerReset():
                self._reset()
            case _:
                pass

    def _last_chunks(self, answer: ChatAnswer) -> Iterator[JsonDict]:
        if not self._has_text:
            yield from self._text(answer.text)
        for call in answer.calls:
            yield from self._send_unsent_call(call)
        if answer.appended:
            yield from self._text(answer.appended, starts_message=True)
        yield self._chunk({}, answer.finish_reason)
        if self._includes_usage:
            yield {**self._head, "choices": [], "usage": chat_usage_json(answer.response)}

    def _write(self, text: str) -> Iterator[JsonDict]:
        sent = self._sent
        sent.written += text
        if self._is_structured or sent.text.startswith(sent.written):
            return
        if not sent.written.startswith(sent.text):
            raise _restarted()
        rest, starts_message = sent.written[len(sent.text) :], not sent.text
        sent.text = sent.written
        yield from self._text(rest, starts_message=starts_message)

    def _complete(self, whole: str) -> Iterator[JsonDict]:
        """Send the rest of a message that is stored now. Raises AnswerRestarted if it is not what was sent."""
        self._sent.written = ""
        if not self._is_structured and not whole.startswith(self._sent.text):
            raise _restarted()
        yield from self._write(whole)
        self._sent = _Sent(calls=self._sent.calls)

    def _write_arguments(self, event: ToolCallDelta) -> Iterator[JsonDict]:
        key = (event.message_id, event.index)
        if key not in self._sent.calls:
            self._sent.calls[key] = event.call_id
            yield self._call_chunk(ToolCall(event.call_id, event.name, event.arguments_delta))
        elif event.arguments_delta:
            number = self._numbers[event.call_id]
            yield self._chunk({
                "tool_calls": [{"index": number, "function": {"arguments": event.arguments_delta}}],
            })

    def _complete_call(self, call: ToolCall, message_id: MessageId) -> Iterator[JsonDict]:
        """Send a call that did not come in pieces. Calls that came in pieces cannot be taken back any more."""
        index = self._counted.get(message_id, 0)
        self._counted[message_id] = index + 1
        self._sent.calls.pop((message_id, index), None)
        if call.name in self._client_tools:
            yield from self._send_unsent_call(call)

    def _send_unsent_call(self, call: ToolCall) -> Iterator[JsonDict]:
        if call.id not in self._numbers:
            yield self._call_chunk(call)

    def _call_chunk(self, call: ToolCall) -> JsonDict:
        self._numbers[call.id] = len(self._numbers)
        calls: list[JsonValue] = [{"index": self._numbers[call.id], **call_json(call)}]
        return self._chunk({"tool_calls": calls})

    def _reset(self) -> None:
        if self._sent.calls:
            raise _restarted()
        self._sent.written = ""

    def _text(self, text: str, *, starts_message: bool = False) -> Iterator[JsonDict]:
        if not text:
            return
        between = BETWEEN if starts_message and self._has_text else ""
        self._has_text = True
        yield self._chunk({"content": between + text})

    def _chunk(self, delta: JsonDict, finish_reason: str | None = None) -> JsonDict:
        choice: JsonDict = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage: JsonDict = {"usage": None} if self._includes_usage else {}
        return {**self._head, "choices": [choice], **usage}


def _restarted() -> AnswerRestarted:
    return AnswerRestarted(
        "The answer was begun again after a failure, and differs from what was sent. Send the request again."
    )
