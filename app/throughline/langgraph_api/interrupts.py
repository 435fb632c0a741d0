"""What a waiting run waits for as LangGraph's interrupts, and what a client resumes it with."""

import json
from collections.abc import Iterator, Mapping, Sequence

from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.run import Run
from throughline.domain.tool import (
    MAX_OUTPUT,
    MAX_REASON,
    ApprovalDecision,
    AwaitedCall,
    Resolution,
    Wait,
    WaitKind,
    read_question,
)
from throughline.langgraph_api.messages import call_json
from throughline.wire.json_shape import JsonDict

RESUME = "command.resume"
DECISIONS: Mapping[str, ApprovalDecision] = {
    **dict.fromkeys(("approve", "accept"), ApprovalDecision.APPROVE),
    "edit": ApprovalDecision.EDIT,
    **dict.fromkeys(("reject", "ignore", "response", "respond"), ApprovalDecision.REJECT),
}
"""The words of LangChain's middleware for human decisions, and of the interrupts before it."""

DECISION_WORDS = (
    'Send {"decisions": [{"type": "approve"}]}, with the type "approve", "edit" (and `edited_action`) or "reject" '
    "(and `message`)."
)


def interrupts_of(run: Run) -> list[JsonValue]:
    """Return the interrupts of a run, one for each call that was given nothing yet. The id is that of the call."""
    wait = run.waiting_for
    return [] if wait is None else [{"id": one.id, "value": _value(one)} for one in wait.calls]


def _value(awaited: AwaitedCall) -> JsonDict:
    shown = call_json(awaited.call)
    match awaited.kind:
        case WaitKind.APPROVAL:
            action: JsonDict = {"name": awaited.name, "args": shown["args"]}
            allowed: JsonDict = {"action_name": awaited.name, "allowed_decisions": [*map(str, ApprovalDecision)]}
            return {"action_requests": [action], "review_configs": [allowed]}
        case WaitKind.ANSWER:
            question = read_question(awaited.arguments)
            return {"question": question.text, "options": [*question.options], "server": awaited.server}
        case WaitKind.TOOL_RESULT:
            return {"tool_call": shown}


def read_resume(wait: Wait, given: JsonValue, author: str | None) -> tuple[Resolution, ...]:
    """Return what the open calls of the wait are given: a value for the only one, or an object of values by id.

    `decisions` may have as many as calls wait for approval, in their order. Raises InvalidInput.
    """
    return tuple(_resolution(awaited, value, author) for awaited, value in _values(wait.open_calls, given))


def _values(open_calls: Sequence[AwaitedCall], given: JsonValue) -> Iterator[tuple[AwaitedCall, JsonValue]]:
    by_id = {awaited.id: awaited for awaited in open_calls}
    if isinstance(given, dict) and given and given.keys() <= by_id.keys():
        yield from ((by_id[name], value) for name, value in given.items())
        return
    decisions = _decisions(given)
    needed = [awaited for awaited in open_calls if awaited.kind is WaitKind.APPROVAL]
    if decisions is not None and needed and len(decisions) == len(needed):
        yield from zip(needed, decisions, strict=True)
        return
    if len(open_calls) != 1:
        raise InvalidInput(
            f"The run waits for {len(open_calls)} calls. Send an object with a value for each id: {', '.join(by_id)}.",
            field=RESUME,
        )
    yield open_calls[0], given


def _decisions(given: JsonValue) -> list[JsonValue] | None:
    """Return the decisions of a list, or of the object with `decisions`; None if it is neither."""
    found = given.get("decisions") if isinstance(given, dict) else given
    return found if isinstance(found, list) else None


def _resolution(awaited: AwaitedCall, value: JsonValue, author: str | None) -> Resolution:
    if awaited.kind is WaitKind.APPROVAL:
        return _decision(awaited, value, author)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_OUTPUT:
        raise InvalidInput(f"It has {len(text)} characters; at most {MAX_OUTPUT} are taken.", field=RESUME)
    return Resolution(awaited.id, text, author=author)


def _decision(awaited: AwaitedCall, value: JsonValue, author: str | None) -> Resolution:
    decisions = _decisions(value)
    decided = decisions[0] if decisions is not None and len(decisions) == 1 else value
    if isinstance(decided, bool):
        decided = {"type": "approve" if decided else "reject"}
    if isinstance(decided, str):
        decided = {"type": decided}
    if not isinstance(decided, dict):
        raise InvalidInput(f"The call {awaited.id!r} waits for a decision. {DECISION_WORDS}", field=RESUME)
    kind = DECISIONS.get(str(decided.get("type", decided.get("decision"))))
    if kind is None:
        raise InvalidInput(f"The decision on the call {awaited.id!r} has no known type. {DECISION_WORDS}", field=RESUME)
    arguments = _edited(decided, awaited) if kind is ApprovalDecision.EDIT else None
    reason = _reason(decided) if kind is ApprovalDecision.REJECT else ""
    return Resolution(awaited.id, reason, decision=kind, arguments=arguments, author=author)


def _edited(decided: JsonDict, awaited: AwaitedCall) -> str:
    """Return the edited arguments as JSON text. Raises InvalidInput without them, or for another tool."""
    edited = decided.get("edited_action", decided.get("args"))
    action = edited if isinstance(edited, dict) else {}
    name = action.get("name", action.get("action", awaited.name))
    arguments = action.get("args", decided.get("arguments"))
    if not isinstance(arguments, dict):
        raise InvalidInput(
            f"The edit of the call {awaited.id!r} has no arguments. "
            'Send {"type": "edit", "edited_action": {"name": …, "args": {…}}}.',
            field=RESUME,
        )
    if name != awaited.name:
        raise InvalidInput(f"The call {awaited.id!r} is one of {awaited.name!r}, which an edit keeps.", field=RESUME)
    return json.dumps(arguments, ensure_ascii=False)


def _reason(decided: JsonDict) -> str:
    found = next((decided[name] for name in ("message", "reason", "args") if isinstance(decided.get(name), str)), "")
    reason = found if isinstance(found, str) else ""
    if len(reason) > MAX_REASON:
        raise InvalidInput(f"The reason has {len(reason)} characters; at most {MAX_REASON} are taken.", field=RESUME)
    return reason
