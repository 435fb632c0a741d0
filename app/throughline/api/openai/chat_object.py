"""The chat completion object of OpenAI's interface, made from one part of a run.

Tools that the service runs are not shown. A question of the model is text, because chat programs run every tool call.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from throughline.api.openai.output_items import JsonDict
from throughline.api.openai.response_object import RunResponse, part_usage
from throughline.domain.message import Message, Role, ToolCall, text_of
from throughline.domain.run import Run
from throughline.domain.text import is_blank
from throughline.domain.waiting import WaitKind

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
    questions = _of_kind(response, open_calls, WaitKind.ANSWER)
    appended = [_question_text(call) for call in questions]
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
    used = part_usage(response)
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
