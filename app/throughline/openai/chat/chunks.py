"""Chunks of a streamed chat completion, made from the events of a run.

A stream cannot take text back. After a reset the new text is held until it has reached the end of what was sent; if it
differs before, the stream cannot go on.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from throughline.chat_protocols.follow_part import part_usage
from throughline.domain.basic_types import JsonValue, MessageId
from throughline.domain.errors import TemporaryError
from throughline.domain.events import (
    AnswerReset,
    Event,
    MessageCompleted,
    MessageDelta,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, Role, ToolCall, is_blank, text_of
from throughline.domain.run import Run
from throughline.domain.tool import WaitKind
from throughline.openai.output_items import JsonDict
from throughline.openai.response_object import RunResponse

# The chat completion object of OpenAI's interface, made from one part of a run. Tools that the service runs are not
# shown. A question of the model is text, because chat programs run every tool call.

BETWEEN = "\n\n"
"""What stands between the texts of two steps, or between a text and a question."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer of one part of a run: its text, the calls of the client's tools, and why it ends.

    `approvals` are calls that wait for a person's approval. `appended` is the end of the text that no model has
    written: questions, and how to approve.
    """

    response: RunResponse
    text: str
    appended: str
    calls: tuple[ToolCall, ...]
    approvals: tuple[ToolCall, ...]
    finish_reason: str

    @property
    def whole_text(self) -> str:
        """The text with what is appended to it."""
        return BETWEEN.join(text for text in (self.text, self.appended) if text)


def answer_of(response: RunResponse) -> ChatAnswer:
    """Return the answer of a part that has ended.

    The texts of its steps are joined. With a response format only the last text counts, because it alone is checked.
    """
    steps = [message for message in response.part.made if message.role is Role.ASSISTANT]
    last = steps[-1] if steps else None
    open_calls = () if last is None else _unanswered(response, last.tool_calls)
    calls = _of_kind(response, open_calls, WaitKind.TOOL_RESULT)
    approvals = _of_kind(response, open_calls, WaitKind.APPROVAL)
    appended = [_question_text(call) for call in _questions(response, open_calls)]
    if approvals:
        appended.append(_approval_text(response.run, approvals))
    is_cut = last is not None and last.metadata.get("finish_reason") == "length"
    return ChatAnswer(
        response,
        joined_text(steps, is_structured=is_structured(response.run)),
        BETWEEN.join(appended),
        calls,
        approvals,
        "tool_calls" if calls else "length" if is_cut else "stop",
    )


def joined_text(steps: Sequence[Message], *, is_structured: bool) -> str:
    """Return the joined texts of a part's steps; with `is_structured` only the last one."""
    counted = steps[-1:] if is_structured else steps
    texts = (text_of(message.content) for message in counted)
    return BETWEEN.join(text for text in texts if text)


def is_structured(run: Run) -> bool:
    """Return whether the run's answer has to be in a response format."""
    return run.input.overrides.response_format is not None


def completion_id(response: RunResponse) -> str:
    """Return the id of the completion that the part is."""
    return f"chatcmpl-{str(response.ref).removeprefix('resp_')}"


def completion_json(answer: ChatAnswer) -> JsonDict:
    """Return the completion object."""
    message: JsonDict = {"role": "assistant", "content": answer.whole_text, "refusal": None, "annotations": []}
    if answer.calls:
        message |= {"content": answer.whole_text or None, "tool_calls": [call_json(call) for call in answer.calls]}
    choice: JsonDict = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    return {
        **head_json(answer.response, "chat.completion"),
        "choices": [choice],
        "usage": chat_usage_json(answer.response),
    }


def head_json(response: RunResponse, kind: str) -> JsonDict:
    """Return what a completion and each chunk of it begin with."""
    created = response.echo.get("created_at", int(response.run.created_at.timestamp()))
    return {
        "id": completion_id(response),
        "object": kind,
        "created": created,
        "model": response.run.agent,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def call_json(call: ToolCall) -> JsonDict:
    """Return a call of a client's tool."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def chat_usage_json(response: RunResponse) -> JsonDict | None:
    """Return what the part has used, None if that is not known."""
    used = part_usage(response.run, response.part)
    if used is None:
        return None
    read, written = used.input_tokens or 0, used.output_tokens or 0
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens or 0},
    }


def _unanswered(response: RunResponse, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls without those that the waiting run was given something for."""
    wait = response.run.waiting_for if response.part.is_last else None
    return tuple(calls) if wait is None else tuple(call for call in calls if wait.kind_of(call.id) is not None)


def _questions(response: RunResponse, open_calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the questions that the next message answers; of a part that is over, those of the model."""
    wait = response.run.waiting_for if response.part.is_last else None
    if wait is None:
        return _of_kind(response, open_calls, WaitKind.ANSWER)
    return tuple(one.call for one in wait.shown_questions)


def _of_kind(response: RunResponse, calls: Sequence[ToolCall], kind: WaitKind) -> tuple[ToolCall, ...]:
    """Return the calls that wait for this, or have waited for it."""
    names, awaited = response.kinds.client_tools, response.kinds.awaited
    known = {call.id: WaitKind.TOOL_RESULT for call in calls if call.name in names}
    return tuple(call for call in calls if awaited.get(call.id, known.get(call.id)) is kind)


def _question_text(call: ToolCall) -> str:
    """Return the question of a call of `ask_user`, with the options to choose from below it."""
    asked = json.loads(call.arguments)
    options = asked.get("options")
    listed = [f"- {option}" for option in options] if isinstance(options, list) else []
    question = str(asked.get("question", ""))
    return "\n".join([question if not is_blank(question) else call.arguments, *listed])


def _approval_text(run: Run, calls: Sequence[ToolCall]) -> str:
    """Return what the run waits for, and the request that approves it."""
    listed = [f"- `{call.name}` with `{call.arguments}`" for call in calls]
    decisions = json.dumps({"calls": [{"call_id": call.id, "decision": "approve"} for call in calls]})
    return "\n".join([
        f"The turn waits for approval, as run {run.id}:",
        *listed,
        f"To approve: `POST /v1/runs/{run.id}/resume` with `{decisions}`. To reject: `reject` in place of `approve`.",
    ])


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
