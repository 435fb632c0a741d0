"""Interrupts of an agent's graph as calls that wait, and what these were given as the values of the interrupts.

An interrupt of LangChain's `HumanInTheLoopMiddleware` asks to approve calls of the model. Any other one is a question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from throughline.domain.agent_graph import Interruption
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.elicitation import ASK_USER
from throughline.domain.errors import GraphWaitExpired
from throughline.domain.message import Message, ToolCall
from throughline.domain.tool import ApprovalDecision, AwaitedCall, Resolution, Wait, WaitKind

GRAPH = "graph"
"""Who asks, as interfaces show it: no call of a model, and no server of tools."""

TEXTS = ("question", "message", "description", "query", "prompt", "instruction", "task")
"""Members of an interrupt's value of which one may hold the text for the person."""


def awaited_calls(
    interruptions: Sequence[Interruption], own: Sequence[Message]
) -> tuple[tuple[AwaitedCall, ...], JsonValue]:
    """Return the calls that wait, and which interrupt each belongs to, as JSON for `answers_to`.

    `own` are the messages of the run: approvals are shown as approvals of the calls in its last step.
    """
    waiting: list[AwaitedCall] = []
    asked: list[JsonValue] = []
    calls = next((list(message.tool_calls) for message in reversed(own) if message.tool_calls), [])
    for one in interruptions:
        approvals = list(_approvals(one, calls))
        found = [AwaitedCall(call, WaitKind.APPROVAL) for call in approvals] or [_question(one)]
        waiting += found
        asked.append({
            "id": one.id,
            "calls": [call.id for call in found],
            "schema": None if one.schema is None else dict(one.schema),
        })
    return tuple(waiting), asked


def _approvals(asked: Interruption, calls: list[ToolCall]) -> Iterator[ToolCall]:
    """Yield the calls that the middleware asks to approve; none if it is another interrupt, or one has no call.

    A call that was found is taken from `calls`: a model may call a tool twice with the same arguments.
    """
    value = asked.value
    actions = value.get("action_requests") if isinstance(value, dict) else None
    found = []
    for action in actions if isinstance(actions, list) else ():
        call = next((call for call in calls if _is_of(call, action)), None)
        if call is None:
            return
        calls.remove(call)
        found.append(call)
    yield from found


def _is_of(call: ToolCall, action: JsonValue) -> bool:
    return (
        isinstance(action, dict)
        and action.get("name") == call.name
        and _json_in(call.arguments or "{}") == action.get("args")
    )


def _question(asked: Interruption) -> AwaitedCall:
    value = asked.value
    text = value if isinstance(value, str) else _text_in(value) or json.dumps(value, ensure_ascii=False, indent=1)
    options = value.get("options") if isinstance(value, dict) else None
    chosen = [one for one in options if isinstance(one, str)] if isinstance(options, list) else []
    arguments: dict[str, JsonValue] = {"question": text, "options": [*chosen], "value": value}
    if asked.schema is not None:
        arguments["schema"] = dict(asked.schema)
    call = ToolCall(asked.id, ASK_USER, json.dumps(arguments, ensure_ascii=False))
    return AwaitedCall(call, WaitKind.ANSWER, server=GRAPH)


def _text_in(value: JsonValue) -> str:
    """Return the text for the person in a value, '' if none of its members is known to be it."""
    members = value if isinstance(value, dict) else {}
    return next((text for name in TEXTS if isinstance(text := members.get(name), str)), "")


def answers_to(state: JsonObject, wait: Wait | None) -> Mapping[str, JsonValue]:
    """Return the values for the interrupts that `state` names, by their ids; empty if it names none.

    Raises GraphWaitExpired if a question was given no answer in time: the graph might take any value for a yes.
    """
    asked = state.get("asked")
    if wait is None or not isinstance(asked, list):
        return {}
    return {str(one["id"]): _answer(one, wait) for one in asked if isinstance(one, dict)}


def _answer(asked: JsonObject, wait: Wait) -> JsonValue:
    named = asked["calls"]
    ids = [str(call_id) for call_id in named] if isinstance(named, list) else []
    calls = [call for call in wait.calls if call.id in ids]
    if all(call.kind is WaitKind.APPROVAL for call in calls):
        return {"decisions": [_decision(call.call, wait.resolution_for(call.id)) for call in calls]}
    given = wait.resolution_for(ids[0])
    if given is None:
        raise GraphWaitExpired("The agent's question was not answered in time. Send your message again.")
    return _value(given.text, asked.get("schema"))


def _decision(call: ToolCall, given: Resolution | None) -> JsonValue:
    if given is None:
        return {"type": "reject", "message": "Nobody decided in time, so this call was not run."}
    match given.decision:
        case ApprovalDecision.APPROVE:
            return {"type": "approve"}
        case ApprovalDecision.EDIT:
            return {"type": "edit", "edited_action": {"name": call.name, "args": _json_in(given.arguments or "{}")}}
        case _:
            reason = f"Reason: {given.text}" if given.text else "No reason was given."
            return {"type": "reject", "message": f"A person rejected this call, so it was not run. {reason}"}


def _value(text: str, schema: JsonValue) -> JsonValue:
    """Return the answer as the graph gets it: JSON if it is an object or a list, or the interrupt's schema wants it."""
    wants_json = isinstance(schema, dict) and schema.get("type") != "string"
    if wants_json or text.lstrip().startswith(("{", "[")):
        found = _json_in(text)
        return text if found is None else found
    return text


def _json_in(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return None
    return value
