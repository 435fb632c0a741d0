"""The stored messages of a chat as UIMessages, for the initial messages of `useChat`.

A turn's messages are one answer with the id of its run, as its stream has it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from throughline.ai_sdk.chunks import NOT_FINISHED, REJECTED, answered_questions, output_value
from throughline.ai_sdk.request import DYNAMIC_TOOL, TOOL
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonValue, RunId, SessionId
from throughline.domain.elicitation import ASK_USER
from throughline.domain.message import CLIENT_MESSAGE_ID, Content, Message, Role, TextBlock, ToolCall, text_of
from throughline.domain.run import Run
from throughline.domain.tool import OUTSIDE, ApprovalDecision, Resolution, Wait, WaitKind, send_again
from throughline.http.call import Call
from throughline.wire.json_shape import JsonDict


async def read_history(
    call: Call, session_id: SessionId, *, before: int | None, limit: int, newest: Run | None
) -> list[JsonDict]:
    """Return the chat's newest messages before a position as UIMessages, oldest first.

    `limit` counts stored messages; more are read up to the beginning of a turn. `newest` is the chat's newest run. Its
    user's message is shown before it is stored, its answer once it waits or has ended.
    """
    messages = await _read(call, session_id, before, limit)
    is_running = newest is not None and newest.status.needs_worker
    shown = [one for one in messages if not (is_running and newest and one.run_id == newest.id and _is_answer(one))]
    made = list(_ui_messages(shown, newest))
    is_missing = newest is not None and before is None and all(one.run_id != newest.id for one in messages)
    if newest is not None and is_missing and not newest.status.is_final:
        asked = newest.input
        made.append(_user_json(str(newest.user_message_id), asked.content, asked.metadata.get(CLIENT_MESSAGE_ID), {}))
    return made


async def _read(call: Call, session_id: SessionId, before: int | None, limit: int) -> list[Message]:
    """Return the messages, oldest first, beginning with one of a user unless the session begins with another."""
    newest_first: list[Message] = []
    while True:
        query = MessageQuery(before=before, limit=limit, order="desc", reasoning="shown")
        page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
        newest_first += page.items
        if page.next_cursor is None or newest_first[-1].role is Role.USER:
            return newest_first[::-1]
        before = newest_first[-1].position


def _is_answer(message: Message) -> bool:
    return message.role is not Role.USER


def _ui_messages(messages: Sequence[Message], newest: Run | None) -> Iterator[JsonDict]:
    """Yield a UIMessage for each message of a user, and one for all messages of an answer."""
    for (is_answer, run_id), group in groupby(messages, key=lambda one: (_is_answer(one), one.run_id)):
        found = list(group)
        if is_answer:
            yield _answer_json(found, run_id, newest if newest is not None and newest.id == run_id else None)
            continue
        for one in found:
            yield _user_json(str(one.id), one.content, one.metadata.get(CLIENT_MESSAGE_ID), _metadata(one))


def _user_json(message_id: str, content: Content, client_id: JsonValue, metadata: JsonDict) -> JsonDict:
    """Return a user's message, with the id that the client gave it if it gave one."""
    blocks = (TextBlock(content),) if isinstance(content, str) else content
    parts: list[JsonValue] = [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "file", "mediaType": _media_type(block.url), "url": block.url}
        for block in blocks
    ]
    shown = client_id if isinstance(client_id, str) else message_id
    return {"id": shown, "role": "user", "metadata": metadata, "parts": parts}


def _media_type(url: str) -> str:
    return url[5:].partition(";")[0] if url.startswith("data:") else "image"


def _metadata(message: Message) -> JsonDict:
    return {
        "position": message.position,
        "created_at": message.created_at.isoformat(),
        "session_id": str(message.session_id),
        "run_id": None if message.run_id is None else str(message.run_id),
    }


def _answer_json(messages: Sequence[Message], run_id: RunId | None, run: Run | None) -> JsonDict:
    """Return the messages of an answer as one. `run` is its run if that is the chat's newest."""
    wait = None if run is None or run.waiting_for is None else run.wait
    own_tools = {ASK_USER, *(() if run is None else (tool.name for tool in run.input.client_tools))}
    results = {one.tool_call_id: one for one in messages if one.role is Role.TOOL}
    parts: list[JsonValue] = []
    for step in (one for one in messages if one.role is Role.ASSISTANT):
        parts += _step_parts(step)
        for call in step.tool_calls:
            result = results.get(call.id)
            is_own = call.name in own_tools or (result is not None and result.metadata.get(OUTSIDE) == "tool_result")
            parts.append({**_tool(call, is_own=is_own), **_state(call, result, wait)})
            parts += _question_parts(result)
    parts += _open_questions(wait, {call.id for one in messages for call in one.tool_calls})
    shown = str(messages[0].id if run_id is None else run_id)
    return {"id": shown, "role": "assistant", "metadata": _metadata(messages[0]), "parts": parts}


def _step_parts(step: Message) -> Iterator[JsonDict]:
    yield {"type": "step-start"}
    if step.reasoning is not None and step.reasoning.text:
        yield {"type": "reasoning", "text": step.reasoning.text, "state": "done"}
    if text := text_of(step.content):
        yield {"type": "text", "text": text, "state": "done"}


def _tool(call: ToolCall, *, is_own: bool) -> JsonDict:
    kind: JsonDict = {"type": f"{TOOL}{call.name}"}
    if not is_own:
        kind = {"type": DYNAMIC_TOOL, "toolName": call.name, "providerExecuted": True}
    arguments: JsonValue = send_again(call.arguments).value  # type: ignore[assignment]  # parsed from JSON
    return {**kind, "toolCallId": call.id, "input": arguments}


def _state(call: ToolCall, result: Message | None, wait: Wait | None) -> JsonDict:
    """Return the state of a call with its output: of a stored result, or of what the turn waits for."""
    if result is not None:
        return _result_state(result)
    if wait is None:
        return {"state": "output-error", "errorText": NOT_FINISHED}
    kind, given = wait.kind_of(call.id), wait.resolution_for(call.id)
    if kind is WaitKind.APPROVAL:
        return _approval_state(call, given)
    return {"state": "input-available"} if kind is None or given is None else _given_state(given)


def _result_state(result: Message) -> JsonDict:
    decision = result.metadata.get("decision")
    is_denied = decision == REJECTED
    approval: JsonDict = {}
    if decision is not None:
        reason = {"reason": result.metadata["reason"]} if result.metadata.get("reason") else {}
        approval = {"approval": {"id": result.tool_call_id, "approved": not is_denied, **reason}}
    if is_denied:
        return {"state": "output-denied", **approval}
    if result.metadata.get("is_error") is True:
        return {"state": "output-error", "errorText": text_of(result.content), **approval}
    return {"state": "output-available", "output": output_value(result), **approval}


def _approval_state(call: ToolCall, given: Resolution | None) -> JsonDict:
    if given is None:
        return {"state": "approval-requested", "approval": {"id": call.id}}
    is_approved = given.decision is not ApprovalDecision.REJECT
    return {"state": "approval-responded", "approval": {"id": call.id, "approved": is_approved}}


def _given_state(given: Resolution) -> JsonDict:
    if given.is_error:
        return {"state": "output-error", "errorText": given.text}
    return {"state": "output-available", "output": given.text}


def _question_parts(result: Message | None) -> Iterator[JsonDict]:
    """Yield the answered questions of the server of a call's tool, as the stream showed them."""
    for question, answer in () if result is None else answered_questions(result):
        yield {**_tool(question, is_own=True), "state": "output-available", "output": answer}


def _open_questions(wait: Wait | None, called: set[str]) -> Iterator[JsonDict]:
    """Yield the questions of tools' servers that the turn waits for, which are calls that no model has made."""
    for awaited in () if wait is None else wait.calls:
        if awaited.id not in called:
            yield {**_tool(awaited.call, is_own=True), **_state(awaited.call, None, wait)}
