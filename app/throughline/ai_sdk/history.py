"""The stored messages of a chat as UIMessages, for the initial messages of `useChat`.

A turn's messages are one answer with the id of its run. A stream has the same states of calls, and another id for a
later part that a message of the user began.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from throughline.ai_sdk.request import DYNAMIC_TOOL, TOOL
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonValue, SessionId
from throughline.domain.elicitation import ASK_USER, QUESTIONS_KEY
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import (
    CLIENT_MESSAGE_ID,
    Message,
    NewMessage,
    Role,
    TextBlock,
    ToolCall,
    blocks_of,
    text_of,
)
from throughline.domain.run import Run, user_message
from throughline.domain.tool import OUTSIDE, ApprovalDecision, Wait, WaitKind, send_again
from throughline.http.body import parse_json
from throughline.http.call import Call
from throughline.wire.json_shape import JsonDict


def output_state(output: JsonValue, *, is_error: bool = False) -> JsonDict:
    """Return the state of a call that has this output."""
    return (
        {"state": "output-error", "errorText": output} if is_error else {"state": "output-available", "output": output}
    )


NOT_FINISHED = output_state("The call was not finished.", is_error=True)


def result_state(result: Message) -> JsonDict:
    """Return the state of a call with its stored result."""
    decision = result.metadata.get("decision")
    is_denied = decision == ApprovalDecision.REJECT
    is_error = result.metadata.get("is_error") is True
    output = text_of(result.content) if is_error else _value(result)
    state: JsonDict = {"state": "output-denied"} if is_denied else output_state(output, is_error=is_error)
    if decision is None:
        return state
    reason = {"reason": result.metadata["reason"]} if result.metadata.get("reason") else {}
    return {**state, "approval": {"id": result.tool_call_id, "approved": not is_denied, **reason}}


def _value(result: Message) -> JsonValue:
    """Return the text of a result; of a tool's result that is a JSON object or array, its value."""
    text = text_of(result.content)
    if text[:1] in {"{", "["} and result.name != ASK_USER:
        with suppress(ThroughlineError):
            return parse_json(text.encode())
    return text


def answered_questions(result: Message) -> Iterator[tuple[ToolCall, JsonDict]]:
    """Yield the questions that the server of the call's tool has asked, as calls of `ask_user`, with their states."""
    asked = result.metadata.get(QUESTIONS_KEY)
    for number, one in enumerate(asked if isinstance(asked, list) else (), start=1):
        if isinstance(one, dict) and isinstance(one.get("answer"), str):
            arguments = json.dumps({"question": one.get("question")})
            yield ToolCall(f"{result.tool_call_id}:{number}", ASK_USER, arguments), output_state(one["answer"])


def client_tool_names(run: Run) -> frozenset[str]:
    """Return the names of the tools whose calls the run's client gives an output."""
    return frozenset((ASK_USER, *(tool.name for tool in run.input.client_tools)))


def input_of(call: ToolCall) -> JsonValue:
    """Return the arguments of a call as JSON."""
    arguments: JsonValue = send_again(call.arguments).value  # type: ignore[assignment]  # parsed from JSON
    return arguments


async def read_history(
    call: Call, session_id: SessionId, *, before: int | None, limit: int, newest: Run | None
) -> list[JsonDict]:
    """Return the chat's newest messages before a position as UIMessages, oldest first.

    `limit` counts stored messages; more are read up to the beginning of a turn. `newest` is the chat's newest run. Its
    user's message is shown before it is stored, its answer once it waits or has ended.
    """
    messages = await _read(call, session_id, before, limit)
    made: list[JsonDict] = []
    for (is_users, run_id), group in groupby(messages, key=lambda one: (one.role is Role.USER, one.run_id)):
        run = newest if newest is not None and newest.id == run_id else None
        if is_users:
            made += [_user_json(one, _metadata(one)) for one in group]
        elif run is None or not run.status.needs_worker:
            made.append(_answer_json([*group], run))
    is_missing = newest is not None and before is None and all(one.run_id != newest.id for one in messages)
    if newest is not None and is_missing and not newest.status.is_final:
        made.append(_user_json(user_message(newest), {}))
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


def _user_json(message: Message | NewMessage, metadata: JsonDict) -> JsonDict:
    """Return a user's message, with the id that the client gave it if it gave one."""
    content, client_id = message.content, message.metadata.get(CLIENT_MESSAGE_ID)
    parts: list[JsonValue] = []
    for block in blocks_of(content):
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
            continue
        kind = block.url[5:].partition(";")[0] if block.url.startswith("data:") else "image"
        parts.append({"type": "file", "mediaType": kind, "url": block.url})
    shown = client_id if isinstance(client_id, str) else str(message.id)
    return {"id": shown, "role": "user", "metadata": metadata, "parts": parts}


def _metadata(message: Message) -> JsonDict:
    return {
        "position": message.position,
        "created_at": message.created_at.isoformat(),
        "session_id": str(message.session_id),
        "run_id": None if message.run_id is None else str(message.run_id),
    }


def _answer_json(messages: Sequence[Message], run: Run | None) -> JsonDict:
    """Return the messages of an answer as one. `run` is its run if that is the chat's newest."""
    wait = None if run is None or run.waiting_for is None else run.wait
    own = frozenset({ASK_USER}) if run is None else client_tool_names(run)
    results = {one.tool_call_id: one for one in messages if one.role is Role.TOOL}
    parts: list[JsonValue] = []
    for step in (one for one in messages if one.role is Role.ASSISTANT):
        parts += _step_parts(step)
        for call in step.tool_calls:
            result = results.get(call.id)
            is_own = call.name in own or (result is not None and result.metadata.get(OUTSIDE) == WaitKind.TOOL_RESULT)
            state = _waiting_state(call.id, wait) if result is None else result_state(result)
            parts.append({**_tool(call, is_own=is_own), **state})
            asked = () if result is None else answered_questions(result)
            parts += [{**_tool(question, is_own=True), **answered} for question, answered in asked]
    called = {call.id for one in messages for call in one.tool_calls}
    for awaited in () if wait is None else wait.calls:
        if awaited.id not in called:  # a question of a tool's server, which is a call that no model has made
            parts.append({**_tool(awaited.call, is_own=True), **_waiting_state(awaited.id, wait)})
    first = messages[0]
    return {"id": str(first.run_id or first.id), "role": "assistant", "metadata": _metadata(first), "parts": parts}


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
    return {**kind, "toolCallId": call.id, "input": input_of(call)}


def _waiting_state(call_id: str, wait: Wait | None) -> JsonDict:
    """Return the state of a call without a result: what the turn waits for, or was given."""
    if wait is None:
        return NOT_FINISHED
    kind, given = wait.kind_of(call_id), wait.resolution_for(call_id)
    if kind is WaitKind.APPROVAL:
        if given is None:
            return {"state": "approval-requested", "approval": {"id": call_id}}
        is_approved = given.decision is not ApprovalDecision.REJECT
        return {"state": "approval-responded", "approval": {"id": call_id, "approved": is_approved}}
    if kind is None or given is None:
        return {"state": "input-available"}
    return output_state(given.text, is_error=given.is_error)
